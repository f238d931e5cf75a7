/* Template `host`: the sandbox sees the host's /usr, with what is local to this host hidden, below
 * a generated /etc. Nothing is taken from the host but what its distribution put there and all
 * users may read (tree_copy leaves out the rest): no homes, keys, users, names, network or
 * services. */
#include "job/kinds.h"

#include "base/fnv.h"
#include "base/host_links.h"
#include "base/io.h"
#include "job/host_etc.h"
#include "job/say.h"
#include "job/sources.h"
#include "job/template.h"
#include "job/tree.h"
#include "job/usr.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define NUMBER 1u
/* Of this file, usr.c, host_etc.c and inodes.c: a change makes templates stale. */
#define BUILD_VERSION 5u

/* -- fingerprint ------------------------------------------------------------------------------- */

#define OTHER_START 0x84222325cbf29ce4u

struct hash {
    uint64_t a, b;
};

/* Two FNV-1a with different starts: finds change, nothing else is asked of it. */
static void add_bytes(struct hash *h, const void *bytes, size_t n)
{
    h->a = fnv_64(h->a, bytes, n);
    h->b = fnv_64(h->b, bytes, n);
}

static void add_file_facts(struct hash *h, const char *path)
{
    struct stat st;
    uint64_t facts[5] = {0};

    if (stat(path, &st) == 0) {
        facts[0] = (uint64_t)st.st_dev;
        facts[1] = (uint64_t)st.st_ino;
        facts[2] = (uint64_t)st.st_mtim.tv_sec;
        facts[3] = (uint64_t)st.st_mtim.tv_nsec;
        facts[4] = (uint64_t)st.st_size;
    }
    add_bytes(h, facts, sizeof(facts));
}

/* In whatever order they come. */
static int add_hidden(void *arg, const char *path)
{
    struct hash *sum = arg, one = {FNV_64_START, OTHER_START};

    add_bytes(&one, path, strlen(path));
    sum->a += one.a;
    sum->b += one.b;
    return 0;
}

/* Adds the hidden files of /usr/local: nothing else shows that a secret was put there. */
static void add_local(struct hash *h)
{
    struct hash sum = {0, 0};
    int rc = usr_each_hidden("/usr", true, add_hidden, &sum);

    add_bytes(h, &rc, sizeof(rc));
    add_bytes(h, &sum, sizeof(sum));
}

/* Files that differ when the host is not the one that the template was made from. */
static void make_fingerprint(char *out, size_t size)
{
    static const char *const watched[] = {
        "/usr/lib/os-release", "/var/lib/dpkg/status",
        "/etc/ld.so.cache",    "/usr",
        "/usr/local",          "/etc/ssl/certs/ca-certificates.crt"};
    struct hash h = {FNV_64_START, OTHER_START};
    uint32_t version = BUILD_VERSION;

    add_bytes(&h, &version, sizeof(version));
    add_bytes(&h, CAY_VERSION, strlen(CAY_VERSION));
    for (size_t i = 0; i < ARRAY_SIZE(watched); i++)
        add_file_facts(&h, watched[i]);
    add_local(&h);
    snprintf(out, size, "%016llx%016llx", (unsigned long long)h.a, (unsigned long long)h.b);
}

/* -- the root ---------------------------------------------------------------------------------- */

/* /bin, /lib and their like lead into /usr, as on the host. */
static int put_top_links(void)
{
    int r = 0;

    for (size_t i = 0; i < HOST_LINKS_COUNT && r == 0; i++) {
        char target[HOST_LINKS_TARGET];
        int there = host_links_read(i, target);

        if (there < 0)
            return say_failure(ENOTSUP, "the host's /%s is not a link into /usr",
                               host_links_names[i]);
        if (there)
            r = tree_put_link(host_links_names[i], target);
    }
    return r;
}

static int put_table(void)
{
    int r = 0;

    for (size_t i = 0; i < host_etc_n_dirs && r == 0; i++)
        r = tree_put_dir(host_etc_dirs[i], 0755, 0, 0);
    for (size_t i = 0; i < host_etc_n_links && r == 0; i++)
        r = tree_put_link(host_etc_links[i].path, host_etc_links[i].text);
    for (size_t i = 0; i < host_etc_n_texts && r == 0; i++)
        r = tree_put_text(host_etc_texts[i].path, host_etc_texts[i].mode, host_etc_texts[i].text);
    return r < 0 ? say_failure(r, "cannot write the generated files: %s", strerror(-r)) : 0;
}

static int copy_table(void)
{
    for (size_t i = 0; i < host_etc_n_copies; i++) {
        char from[128];
        int r;

        snprintf(from, sizeof(from), "/%s", host_etc_copies[i]);
        r = tree_copy(from, host_etc_copies[i]);
        if (r < 0)
            return say_failure(r, "cannot copy %s: %s", from, strerror(-r));
    }
    return 0;
}

/* -- what of /usr is not shown ----------------------------------------------------------------- */

/* `python` is what most people and agents type; Debian does not use the name. */
static int put_python(void)
{
    struct stat st;
    int r;

    if (lstat("/usr/bin/python", &st) == 0 || stat("/usr/bin/python3", &st) < 0)
        return 0;
    r = tree_put_dir("usrmask/bin", 0755, 0, 0);
    return r < 0 ? r : tree_put_link("usrmask/bin/python", "python3");
}

static int put_mask(void)
{
    int r = tree_put_dir("usrmask", 0755, 0, 0);

    if (r == 0)
        r = usr_put_mask("/usr", "usrmask");
    if (r == -E2BIG)
        return say_failure(-r,
                           "/usr holds too much that other users may not read, or too much at all");
    if (r == 0)
        r = put_python();
    if (r == 0)
        r = account_put_denials("usrmask/bin");
    return r < 0 ? say_failure(r, "cannot make the layer over /usr: %s", strerror(-r)) : 0;
}

/* -- the whole --------------------------------------------------------------------------------- */

/* Copies come first: the rest is generated on top of them and uses them (etc/skel). */
static int fill(void)
{
    int r = tree_put_dir("etc", 0755, 0, 0);

    if (r == 0)
        r = tree_put_dir("var", 0755, 0, 0);
    if (r == 0)
        r = tree_put_dir("usr", 0755, 0, 0);
    if (r == 0)
        r = put_table();
    if (r == 0)
        r = put_top_links();
    say_progress(30, "copying what the distribution keeps in /etc");
    if (r == 0)
        r = copy_table();
    if (r == 0)
        r = sources_put();
    return r == 0 ? account_put() : r;
}

static int build(const char *fingerprint)
{
    int r = template_begin(NUMBER);

    if (r == 0)
        r = template_enter(NUMBER);
    if (r < 0)
        return r;
    say_progress(10, "generating /etc");
    r = fill();
    if (chdir("..") < 0) /* beside rootfs */
        r = r < 0 ? r : -errno;
    if (r == 0)
        r = put_mask();
    if (chdir("..") < 0)
        return say_failure(errno, "cannot go back: %s", strerror(errno));
    if (r == 0) {
        say_progress(90, "putting it in its place");
        r = template_commit(NUMBER, fingerprint, 0);
    }
    if (r < 0)
        template_abandon(NUMBER);
    return r;
}

int host_build(bool only_if_stale)
{
    char fingerprint[64];

    make_fingerprint(fingerprint, sizeof(fingerprint));
    if (only_if_stale && template_is_current(NUMBER, fingerprint))
        return 0;
    return build(fingerprint);
}
