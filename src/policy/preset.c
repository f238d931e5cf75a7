/* The presets that policies may name. Hosts are the public ones that each tool asks by default. */
#include "policy/internal.h"

#include <string.h>

static const struct ports web[] = {{80, 80}, {443, 443}};

static const char *const registries[] = {
    /* Debian, Ubuntu, Alpine */
    "deb.debian.org", "security.debian.org", "archive.ubuntu.com", "security.ubuntu.com",
    "ports.ubuntu.com", "dl-cdn.alpinelinux.org",
    /* Python, JavaScript */
    "pypi.org", "files.pythonhosted.org", "registry.npmjs.org", "registry.yarnpkg.com",
    /* Go, Rust, Ruby, Java, PHP */
    "proxy.golang.org", "sum.golang.org", "crates.io", "index.crates.io", "static.crates.io",
    "rubygems.org", "index.rubygems.org", "repo.maven.apache.org", "repo1.maven.org",
    "packagist.org", "repo.packagist.org", NULL};

static const char *const github[] = {"github.com", "api.github.com", "codeload.github.com",
                                     "*.githubusercontent.com", NULL};

static const struct preset presets[] = {
    {"package-registries", registries, web, ARRAY_SIZE(web)},
    {"github", github, web, ARRAY_SIZE(web)},
};
_Static_assert(ARRAY_SIZE(presets) <= PRESETS_MAX, "a policy has room for each of them");

static const char *const fallbacks[] = {
    [FALLBACK_DENY] = "deny", [FALLBACK_PUBLIC] = "public", [FALLBACK_ALLOW] = "allow"};

const struct preset *preset_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(presets); i++)
        if (strcmp(presets[i].name, name) == 0)
            return &presets[i];
    return NULL;
}

const char *preset_names(void)
{
    return "package-registries, github";
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
