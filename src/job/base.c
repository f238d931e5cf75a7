/* Template `base`: a Debian of its own, made by mmdebstrap from the host's package sources. The
 * steps of one process, in order: sources are found, mmdebstrap runs within its limits, what it
 * made is cleaned and counted, the record is written. The first failure ends the job; privd
 * removes what it has left. */
#include "base/io.h"
#include "job/kinds.h"
#include "job/node.h"
#include "job/run.h"
#include "job/say.h"
#include "job/sources.h"
#include "job/template.h"
#include "job/tree.h"

#include <errno.h>
#include <fcntl.h>
#include <fts.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#define NUMBER      2u
#define MMDEBSTRAP  "/usr/bin/mmdebstrap"
#define WORK_DIR    "/tmp/cay"
#define TARGET      WORK_DIR "/root"
#define ID_MAX      65535u
#define SOURCES_MAX 16
#define OPTIONS_MAX 4
/* The packages of upstream's image, by Debian's names. gh is in Debian 12 and 13; Node comes from
 * node.c. */
#define PACKAGES                                                                           \
    "bash,coreutils,git,curl,python3,python-is-python3,sudo,ncurses-bin,ncurses-term,"     \
    "ca-certificates,procps,iproute2,less,nano,netbase,adduser,openssh-client,wget,unzip," \
    "xz-utils,python3-pip,python3-venv,python3-dev,build-essential,gh,jq,ripgrep,sqlite3," \
    "file,zip,util-linux"

struct progress {
    unsigned percent;
    char failure[RUN_LINE_MAX]; /* the first line that says what went wrong */
    char options[OPTIONS_MAX][RUN_LINE_MAX];
    size_t n_options;
};

/* -- what mmdebstrap says ---------------------------------------------------------------------- */

static const struct {
    const char *line;
    unsigned percent;
    const char *text;
} steps[] = {
    {"I: running apt-get update", 5, "reading package lists"},
    {"I: downloading packages", 10, "downloading packages"},
    {"I: extracting archives", 30, "unpacking the essential packages"},
    {"I: installing essential packages", 40, "installing the essential packages"},
    {"I: installing remaining packages", 55, "installing the others"},
    {"I: cleaning package lists", 90, "cleaning up"},
};

static bool is_failure(const char *line)
{
    return strncmp(line, "E: ", 3) == 0 || strncmp(line, "Err:", 4) == 0 ||
           strstr(line, "dpkg: error") != NULL;
}

static void on_line(void *arg, const char *line)
{
    struct progress *p = arg;

    if (!p->failure[0] && is_failure(line))
        snprintf(p->failure, sizeof(p->failure), "%s", line);
    for (size_t i = 0; i < ARRAY_SIZE(steps); i++) {
        if (strncmp(line, steps[i].line, strlen(steps[i].line)) == 0) {
            p->percent = steps[i].percent;
            say_progress(p->percent, "%s", steps[i].text);
            return;
        }
    }
    /* About as many packages are set up as there are percents between the last two steps. */
    if (strncmp(line, "Setting up ", 11) == 0 && p->percent >= 40 && p->percent < 89)
        say_progress(++p->percent, "setting up %.60s", line + 11);
}

/* -- where it works ---------------------------------------------------------------------------- */

/* The state disk is mounted without set-id bits and devices, which dpkg and mmdebstrap need while
 * they work: the same tree is mounted once more, in this job's mount namespace only. */
static int attach_target(void)
{
    struct mount_attr attr = {.attr_clr = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV};
    CLEANUP_CLOSE int tree = -1;

    if (mount("cay", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=256m,mode=1777") < 0 ||
        mkdir(WORK_DIR, 0755) < 0 || mkdir(TARGET, 0755) < 0)
        return -errno;
    tree = open_tree(AT_FDCWD, ".", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
    if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH, &attr, sizeof(attr)) < 0 ||
        move_mount(tree, "", AT_FDCWD, TARGET, MOVE_MOUNT_F_EMPTY_PATH) < 0)
        return -errno;
    return 0;
}

/* -- the command ------------------------------------------------------------------------------- */

/* `Acquire::http::Proxy "...";` becomes an option, so that a host behind a proxy can build. */
static void on_option(void *arg, const char *line)
{
    struct progress *p = arg;

    if (p->n_options < OPTIONS_MAX && strncmp(line, "Acquire::", 9) == 0)
        snprintf(p->options[p->n_options++], RUN_LINE_MAX, "--aptopt=%.*s", RUN_LINE_MAX - 16,
                 line);
}

static void read_proxies(struct progress *p)
{
    static char apt_config[] = "/usr/bin/apt-config", dump[] = "dump", no_empty[] = "--no-empty",
                http[] = "Acquire::http::Proxy", https[] = "Acquire::https::Proxy";
    char *argv[] = {apt_config, dump, no_empty, http, https, NULL};

    (void)run_program(argv, on_option, p);
}

static int run_mmdebstrap(struct progress *p, const char *suite, int n_sources)
{
    static char program[] = MMDEBSTRAP, mode[] = "--mode=root", variant[] = "--variant=minbase",
                format[] = "--format=directory", include[] = "--include=" PACKAGES,
                target[] = TARGET;
    char *argv[8 + OPTIONS_MAX + SOURCES_MAX] = {program, mode, variant, format, include};
    char files[SOURCES_MAX][64], suite_arg[64];
    size_t n = 5;

    snprintf(suite_arg, sizeof(suite_arg), "%s", suite);
    for (size_t i = 0; i < p->n_options; i++)
        argv[n++] = p->options[i];
    argv[n++] = suite_arg;
    argv[n++] = target;
    for (int i = 0; i < n_sources && i < SOURCES_MAX; i++) {
        snprintf(files[i], sizeof(files[i]), WORK_DIR "/%d.sources", i + 1);
        if (access(files[i], F_OK) < 0)
            snprintf(files[i], sizeof(files[i]), WORK_DIR "/%d.list", i + 1);
        argv[n++] = files[i];
    }
    return run_program(argv, on_line, p);
}

static int explain(const struct progress *p, int status)
{
    if (strstr(p->failure, "Err:") || strstr(p->failure, "fetch") || strstr(p->failure, "resolve"))
        return say_failure(EHOSTUNREACH, "packages cannot be fetched: %.180s", p->failure);
    if (status == 127)
        return say_failure(ENOENT, "mmdebstrap cannot be started: is it installed?");
    return say_failure(EIO, "mmdebstrap failed (%d): %.180s", status, p->failure);
}

static int install(void)
{
    static struct progress p;
    char suite[64];
    int n, r;

    if (access(MMDEBSTRAP, X_OK) < 0)
        return say_failure(ENOENT, "mmdebstrap is not installed (apt-get install mmdebstrap)");
    r = attach_target();
    if (r < 0)
        return say_failure(r, "cannot mount the tree to build in: %s", strerror(-r));
    sources_suite(suite, sizeof(suite));
    n = sources_collect(suite, "/etc/apt", WORK_DIR);
    read_proxies(&p);
    say_progress(2, "Debian %s, %d package sources of the host", suite, n);
    r = run_mmdebstrap(&p, suite, n);
    return r == 0 ? 0 : explain(&p, r);
}

/* A mirror of Debian is enough for a template: where the npm registry cannot be reached it has no
 * Node, and the last line of the build says so. */
static int add_node(char note[static NODE_WHY_SIZE])
{
    int r = node_install(TARGET, WORK_DIR, note);

    return r < 0 ? say_failure(r, "%.200s", note) : 0;
}

/* pip in Debian refuses to install beside Debian's own packages. A sandbox is its tenant's own
 * machine, and agents' programs call pip as they do in upstream's image. */
static int put_pip_settings(void)
{
    static const char text[] = "[global]\nbreak-system-packages = true\n"
                               "disable-pip-version-check = true\n";

    return tree_put_text("etc/pip.conf", 0644, text);
}

/* Debian's profile starts a program to learn who logs in, though bash knows it; each command of an
 * SDK is run by a login shell, and waits for that. Another text is left as it is. */
static int put_profile(void)
{
    static const char path[] = "etc/profile", slow[] = "\"$(id -u)\"",
                      quick[] = "\"${EUID:-$(id -u)}\"";
    char text[16384], out[2 * sizeof(text)];
    ssize_t n = io_read_text_at(AT_FDCWD, path, text, sizeof(text));
    const char *from = text, *at;
    size_t len = 0;

    if (n < 0)
        return n == -ENOENT || n == -EMSGSIZE ? 0 : (int)n;
    while ((at = strstr(from, slow)) && len < sizeof(text)) {
        len += (size_t)snprintf(out + len, sizeof(out) - len, "%.*s%s", (int)(at - from), from,
                                quick);
        from = at + strlen(slow);
    }
    if (from == text || at)
        return 0;
    snprintf(out + len, sizeof(out) - len, "%s\n", from);
    return tree_put_text(path, 0644, out);
}

/* -- afterwards -------------------------------------------------------------------------------- */

/* Adds a line to a data base of users unless its name is there. */
static int add_line(const char *path, const char *name, const char *line)
{
    char text[16384];
    ssize_t n = io_read_text_at(AT_FDCWD, path, text, sizeof(text) - 512);
    struct stat st;

    if (n < 0)
        return (int)n;
    for (const char *p = text; p && *p; p = strchr(p, '\n'), p += p != NULL)
        if (strncmp(p, name, strlen(name)) == 0 && p[strlen(name)] == ':')
            return 0;
    if (stat(path, &st) < 0)
        return -errno;
    snprintf(text + n, sizeof(text) - (size_t)n, "\n%s\n", line);
    n = tree_put_text(path, st.st_mode & 0777, text);
    return n < 0 || lchown(path, st.st_uid, st.st_gid) == 0 ? (int)n : -errno;
}

static int add_users(void)
{
    static const char *const lines[][3] = {
        {"etc/passwd", "user", "user:x:1000:1000:user:/home/user:/bin/bash"},
        {"etc/group", "user", "user:x:1000:"},
        {"etc/shadow", "user", "user:*:19700:0:99999:7:::"},
        {"etc/passwd", "daytona", "daytona:x:1001:1001:daytona:/home/daytona:/bin/bash"},
        {"etc/group", "daytona", "daytona:x:1001:"},
        {"etc/shadow", "daytona", "daytona:*:19700:0:99999:7:::"},
    };
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(lines) && r == 0; i++)
        r = add_line(lines[i][0], lines[i][1], lines[i][2]);
    return r < 0 ? say_failure(r, "cannot add the users: %s", strerror(-r)) : 0;
}

/* A template holds no device nodes and no id that a sandbox's range cannot hold. */
static int check_entry(const FTSENT *e)
{
    const struct stat *st = e->fts_statp;

    if (e->fts_info == FTS_DP || e->fts_info == FTS_NS || e->fts_info == FTS_ERR)
        return 0;
    if (S_ISBLK(st->st_mode) || S_ISCHR(st->st_mode))
        return unlink(e->fts_accpath) < 0 ? -errno : 0;
    return st->st_uid > ID_MAX || st->st_gid > ID_MAX ? -ERANGE : 0;
}

static int check_tree(void)
{
    static char here[] = ".";
    char *const paths[] = {here, NULL};
    FTS *fts = fts_open(paths, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    int r = 0;

    if (!fts)
        return -errno;
    for (FTSENT *e; r == 0 && (e = fts_read(fts)) != NULL;)
        r = check_entry(e);
    fts_close(fts);
    return r < 0 ? say_failure(r, "the tree is not usable: %s", strerror(-r)) : 0;
}

static int remove_host_traces(void)
{
    static const char *const traces[] = {"etc/apt/sources.list.d",
                                         "etc/apt/apt.conf.d/99mmdebstrap",
                                         "var/log/apt",
                                         "var/log/dpkg.log",
                                         "var/log/bootstrap.log",
                                         "dev",
                                         "run"};
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(traces) && r == 0; i++)
        r = tree_remove(traces[i]);
    if (r == 0)
        r = tree_put_dir("etc/apt/sources.list.d", 0755, 0, 0);
    return r == 0 ? tree_put_dir("var/log/apt", 0755, 0, 0) : r;
}

static int finish(void)
{
    int r = remove_host_traces();

    if (r == 0)
        r = sources_put();
    if (r == 0)
        r = put_pip_settings();
    if (r == 0)
        r = put_profile();
    if (r < 0)
        return say_failure(r, "cannot finish the tree: %s", strerror(-r));
    r = add_users();
    if (r == 0)
        r = account_put();
    if (r == 0)
        r = account_put_denials("usr/local/bin");
    return r == 0 ? check_tree() : r;
}

int base_build(void)
{
    char note[NODE_WHY_SIZE] = "";
    int r = template_begin(NUMBER);

    if (r == 0)
        r = template_enter(NUMBER);
    if (r < 0)
        return r;
    say_progress(1, "preparing");
    r = install();
    if (r == 0)
        r = add_node(note);
    if (r == 0) {
        say_progress(93, "adding the user");
        r = finish();
    }
    if (template_leave() < 0)
        return say_failure(errno, "cannot go back: %s", strerror(errno));
    (void)umount2(TARGET, MNT_DETACH);
    if (r == 0) {
        say_progress(96, "putting it in its place");
        r = template_commit(NUMBER, "", 0);
    }
    if (r == 0 && note[0])
        say_progress(99, "it has no Node: %.200s", note);
    if (r < 0)
        template_abandon(NUMBER);
    return r;
}
