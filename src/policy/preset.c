/* The presets that policies may name. Hosts are the public ones that each tool asks by default. */
#include "policy/preset.h"
#include "policy/internal.h"

#include <stdio.h>
#include <string.h>

static union entry web[] = {{.ports = {80, 80}}, {.ports = {443, 443}}};

#define HOST(name)     \
    {                  \
        .text = (name) \
    }

static union entry registries[] = {
    /* Debian, Ubuntu, Alpine */
    HOST("deb.debian.org"), HOST("security.debian.org"), HOST("archive.ubuntu.com"),
    HOST("security.ubuntu.com"), HOST("ports.ubuntu.com"), HOST("dl-cdn.alpinelinux.org"),
    /* Python, JavaScript */
    HOST("pypi.org"), HOST("files.pythonhosted.org"), HOST("registry.npmjs.org"),
    HOST("registry.yarnpkg.com"),
    /* Go, Rust, Ruby, Java, PHP */
    HOST("proxy.golang.org"), HOST("sum.golang.org"), HOST("crates.io"), HOST("index.crates.io"),
    HOST("static.crates.io"), HOST("rubygems.org"), HOST("index.rubygems.org"),
    HOST("repo.maven.apache.org"), HOST("repo1.maven.org"), HOST("packagist.org"),
    HOST("repo.packagist.org")};

static union entry github[] = {HOST("github.com"), HOST("api.github.com"),
                               HOST("codeload.github.com"), HOST("*.githubusercontent.com")};

#define PRESET(text, hosts)                                        \
    {                                                              \
        .name = (char[]){text}, .action = POLICY_ALLOW, .lists = { \
            [CONDITION_DOMAINS] = {(hosts), ARRAY_SIZE(hosts)},    \
            [CONDITION_PORTS] = {web, ARRAY_SIZE(web)}             \
        }                                                          \
    }

static const struct rule presets[] = {
    PRESET("package-registries", registries),
    PRESET("github", github),
};
_Static_assert(ARRAY_SIZE(presets) <= PRESETS_MAX, "a policy has room for each of them");

static const char *const fallbacks[] = {
    [FALLBACK_DENY] = "deny", [FALLBACK_PUBLIC] = "public", [FALLBACK_ALLOW] = "allow"};

const struct rule *preset_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(presets); i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

const struct rule *preset_at(size_t i)
{
    return i < ARRAY_SIZE(presets) ? &presets[i] : NULL;
}

const char *preset_names(char out[static PRESET_NAMES_SIZE])
{
    size_t used = 0;

    for (size_t i = 0; i < ARRAY_SIZE(presets) && used < PRESET_NAMES_SIZE; i++)
        used += (size_t)snprintf(out + used, PRESET_NAMES_SIZE - used, "%s%s", used ? ", " : "",
                                 presets[i].name);
    return out;
}

bool preset_fallback(const char *name, enum fallback *out)
{
    for (size_t i = 0; i < ARRAY_SIZE(fallbacks); i++) {
        if (strcmp(fallbacks[i], name) == 0) {
            *out = (enum fallback)i;
            return true;
        }
    }
    return false;
}

const char *preset_fallback_name(enum fallback f)
{
    return fallbacks[f];
}

const struct policy *policy_preset(const char *name)
{
    static const struct policy shared[] = {
        [FALLBACK_DENY] = {.shared = true, .fallback = FALLBACK_DENY},
        [FALLBACK_PUBLIC] = {.shared = true, .fallback = FALLBACK_PUBLIC},
        [FALLBACK_ALLOW] = {.shared = true, .fallback = FALLBACK_ALLOW},
    };
    enum fallback f;

    return preset_fallback(name, &f) ? &shared[f] : NULL;
}
