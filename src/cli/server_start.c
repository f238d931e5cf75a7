/* Starts the server: checks, users, directories, cay-keep, the file by which clients find it. Each
 * step is tried in this order and says what it does; the first that fails ends it with the reason
 * and what to do, and what the steps before have made stays for the next try. Called by `up`
 * and `down`. */
#include "cli/server.h"

#include "base/io.h"
#include "cli/commands.h"
#include "cli/doctor.h"
#include "cli/server_ca.h"
#include "contract/keep.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <libgen.h>
#include <pwd.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#ifndef CAY_LIBEXECDIR
#define CAY_LIBEXECDIR "/usr/local/libexec/cay"
#endif

#define MAX_ARGS 128

/* -- what has to be there ---------------------------------------------------------------------- */

static enum err_code check_machine(const struct cli *c, struct err *e)
{
    struct doctor_result results[DOCTOR_MAX];
    size_t n = doctor_run(c->settings.state_dir, results);

    for (size_t i = 0; i < n; i++) {
        if (!results[i].needed || results[i].level != DOCTOR_MISSING)
            continue;
        err_set(e, ERR_UNAVAILABLE, "cannot start here: %s: %s", results[i].name, results[i].text);
        err_hint(e, "`cay doctor` shows all that was looked at.");
        return e->code;
    }
    return ERR_OK;
}

/* Runs a program to its end with its output on ours. Exit status, or -errno. */
int server_run_program(const char *const *argv)
{
    int status;
    pid_t pid = fork();

    if (pid < 0)
        return -errno;
    if (pid == 0) {
        execvp(argv[0], (char *const *)argv);
        fprintf(stderr, "cay: cannot run %s: %s\n", argv[0], strerror(errno));
        _exit(127);
    }
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return -errno;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static enum err_code make_user(const struct cli *c, const char *name, struct err *e)
{
    const char *const argv[] = {"useradd",
                                "--system",
                                "--no-create-home",
                                "--home-dir",
                                "/nonexistent",
                                "--shell",
                                "/usr/sbin/nologin",
                                "--user-group",
                                "--comment",
                                "cay",
                                name,
                                NULL};

    if (getpwnam(name))
        return ERR_OK;
    cli_note(c, "Making the system user %s.", name);
    if (server_run_program(argv) == 0 && getpwnam(name))
        return ERR_OK;
    err_set(e, ERR_INTERNAL, "the system user %s could not be made", name);
    err_hint(e, "Make it yourself, or name another one with --server-user or --egress-user.");
    return e->code;
}

static enum err_code make_parents(const char *path, struct err *e)
{
    char part[1024];

    snprintf(part, sizeof(part), "%s", path);
    for (char *slash = strchr(part + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0755) < 0 && errno != EEXIST)
            return err_set_sys(e, err_code_from_errno(errno), errno, "cannot make %s", part);
        *slash = '/';
    }
    return ERR_OK;
}

/* -- where the programs are -------------------------------------------------------------------- */

struct programs {
    char keep[1100], cayd[1100], privd[1100], job[1100], agent[1100], egress[1100];
    char checkpoint[1100], seal[1100];
};

static bool find_in(struct programs *p, const char *dir, bool build_tree)
{
    snprintf(p->keep, sizeof(p->keep), "%s/%scay-keep", dir, build_tree ? "keep/" : "");
    snprintf(p->cayd, sizeof(p->cayd), "%s/%scayd", dir, build_tree ? "cayd/" : "");
    snprintf(p->privd, sizeof(p->privd), "%s/%scay-privd", dir, build_tree ? "privd/" : "");
    snprintf(p->job, sizeof(p->job), "%s/%scay-job", dir, build_tree ? "job/" : "");
    snprintf(p->agent, sizeof(p->agent), "%s/%scay-init", dir, build_tree ? "agent/" : "");
    snprintf(p->checkpoint, sizeof(p->checkpoint), "%s/%scay-checkpoint", dir,
             build_tree ? "checkpoint/" : "");
    snprintf(p->seal, sizeof(p->seal), "%s/%scay-seal", dir, build_tree ? "seal/" : "");
    snprintf(p->egress, sizeof(p->egress), "%s/%scay-egress", dir, build_tree ? "egress/" : "");
    return access(p->keep, X_OK) == 0;
}

/* --program-dir, else beside cay itself, else in the build tree that cay was built in, else where
 * `make install` puts them. */
static enum err_code find_programs(const struct cli *c, struct programs *p, struct err *e)
{
    const char *given = cli_value(c, "program-dir"), *dir;
    char self[1024], up[1024];
    ssize_t n;

    if (given) {
        if (find_in(p, given, false))
            return ERR_OK;
        return err_set(e, ERR_NOT_FOUND, "there is no cay-keep in %s", given);
    }
    n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    self[n > 0 ? n : 0] = '\0';
    dir = dirname(self);
    snprintf(up, sizeof(up), "%s", dir);
    dirname(up);
    if (find_in(p, dir, false) || find_in(p, up, true) || find_in(p, CAY_LIBEXECDIR, false))
        return ERR_OK;
    err_set(e, ERR_NOT_FOUND, "cay-keep is neither beside cay nor in %s", CAY_LIBEXECDIR);
    err_hint(e, "Name its directory with --program-dir.");
    return e->code;
}

/* -- cay-keep ---------------------------------------------------------------------------------- */

struct arguments {
    char *list[MAX_ARGS + 1];
    size_t count;
    bool failed;
};

static void add(struct arguments *a, const char *fmt, ...) PRINTF(2, 3);

static void add(struct arguments *a, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (a->count == MAX_ARGS || vasprintf(&a->list[a->count], fmt, ap) < 0)
        a->failed = true;
    else
        a->list[++a->count] = NULL;
    va_end(ap);
}

static void free_arguments(struct arguments *a)
{
    for (size_t i = 0; i < a->count; i++)
        free(a->list[i]);
}

static bool is_key(const struct config_key *k, const char *section, const char *key)
{
    return strcmp(k->section, section) == 0 && (!key || strcmp(k->key, key) == 0);
}

/* Options of cay-keep alone. */
static bool is_for_keep(const struct config_key *k)
{
    return is_key(k, "egress", "user") || is_key(k, "egress", "processes") ||
           is_key(k, "egress", "key_file") || is_key(k, "server", "priority");
}

/* keep and privd are told what of these concerns them; no daemon chooses its own user. */
static bool is_for_cayd(const struct config_key *k)
{
    return !is_key(k, "state", NULL) && !is_key(k, "server", "user") && !is_for_keep(k) &&
           !is_key(k, "snapshots", NULL) &&
           (!is_key(k, "listen", NULL) || strncmp(k->key, "tls", 3) == 0);
}

static bool is_for_egress(const struct config_key *k)
{
    return is_key(k, "server", "log_level") || is_key(k, "traces", NULL) ||
           (is_key(k, "egress", NULL) && !is_for_keep(k));
}

/* Settings that differ from the defaults are passed to the daemons, which have the same table. */
static void add_settings(struct arguments *a, const struct settings *s, const char *option,
                         bool (*wanted)(const struct config_key *k))
{
    for (const struct config_key *k = settings_keys; k->section; k++) {
        char value[1024], name[96];

        if (!wanted(k) || !settings_differs(s, k, value, sizeof(value)))
            continue;
        snprintf(name, sizeof(name), "%s-%s", k->section, k->key);
        for (char *p = name; *p; p++)
            *p = *p == '_' ? '-' : *p;
        add(a, "--%s=--%s=%s", option, name, value);
    }
}

/* privd is not told whose they are: cayd knows the tenants. */
static void add_host_dirs(struct arguments *a, const struct settings *s)
{
    struct host_dir d;

    for (int i = 0; i < HOST_DIRS_MAX; i++)
        if (s->host_dirs[i] && !host_dir_parse(s->host_dirs[i], &d))
            add(a, "--privd-arg=--host-dir-%d=%s:%s", i + 1, d.name, d.path);
}

/* The path of the credentials alone: root opens that file. */
static void add_bucket(struct arguments *a, const struct settings *s)
{
    if (!s->archive.name)
        return;
    add(a, "--privd-arg=--bucket=%s", s->archive.name);
    add(a, "--privd-arg=--bucket-endpoint=%s", s->archive.endpoint);
    add(a, "--privd-arg=--bucket-region=%s", s->archive.region);
    add(a, "--privd-arg=--bucket-credentials=%s", s->archive.credentials);
    if (s->archive.ca_file)
        add(a, "--privd-arg=--bucket-ca-file=%s", s->archive.ca_file);
}

static void keep_arguments(struct arguments *a, const struct programs *p, const struct settings *s)
{
    add(a, "%s", p->keep);
    add(a, "--daemon");
    add(a, "--listen-address=%s", s->listen_address);
    add(a, "--listen-port=%" PRId64, s->listen_port);
    add(a, "--state-dir=%s", s->state_dir);
    add(a, "--run-dir=%s", s->state_run);
    add(a, "--log-file=%s", s->state_log);
    add(a, "--user=%s", s->server_user);
    add(a, "--cayd=%s", p->cayd);
    add(a, "--privd=%s", p->privd);
    add(a, "--job=%s", p->job);
    add(a, "--agent=%s", p->agent);
    add(a, "--egress=%s", p->egress);
    add(a, "--privd-arg=--checkpoint=%s", p->checkpoint);
    add(a, "--privd-arg=--seal=%s", p->seal);
    add(a, "--egress-user=%s", s->egress_user);
    add(a, "--egress-processes=%" PRId64, s->egress_processes);
    if (s->egress_key_file)
        add(a, "--egress-key-file=%s", s->egress_key_file);
    if (settings_has_tls(s)) {
        add(a, "--tls-cert=%s", s->listen_tls_cert);
        add(a, "--tls-key=%s", s->listen_tls_key);
    }
    add(a, "--priority=%" PRId64, s->server_priority);
    add(a, "--uid-first=%" PRId64, s->sandbox_first_uid);
    add(a, "--uid-ranges=%" PRId64, s->sandbox_slots_max);
    add(a, "--privd-arg=--uid-base=%" PRId64, s->sandbox_first_uid);
    add(a, "--privd-arg=--slots-max=%" PRId64, s->sandbox_slots_max);
    add(a, "--privd-arg=--slots-ready=%" PRId64, s->sandbox_slots_ready);
    add(a, "--privd-arg=--disk-backend=%s", s->state_disk_backend);
    add(a, "--privd-arg=--disk-size=%" PRIu64, s->state_disk_size_bytes);
    add(a, "--privd-arg=--template-inodes=%" PRId64, s->state_template_inodes);
    add_host_dirs(a, s);
    add_bucket(a, s);
    if (s->snapshots_exchange_key) /* the path alone: root opens that file */
        add(a, "--privd-arg=--exchange-key=%s", s->snapshots_exchange_key);
    add_settings(a, s, "cayd-arg", is_for_cayd);
    add_settings(a, s, "egress-arg", is_for_egress);
}

static enum err_code run_keep(const struct programs *p, const struct settings *s, struct err *e)
{
    struct arguments a = {.count = 0};
    int status;

    keep_arguments(&a, p, s);
    if (a.failed) {
        free_arguments(&a);
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    }
    status = server_run_program((const char *const *)a.list);
    free_arguments(&a);
    if (status == 0)
        return ERR_OK;
    if (status == KEEP_EXIT_RUNNING)
        return err_set(e, ERR_EXISTS, "a server runs with %s already", s->state_run);
    err_set(e, ERR_INTERNAL, "the server did not start (cay-keep: status %d)", status);
    err_hint(e,
             "What cay-keep said stands above; the end of %s may tell more, and `cay doctor` looks "
             "at the machine.",
             s->state_log);
    return e->code;
}

/* Four lines for commands on this machine: see api.c. They use plain HTTP where it is spoken:
 * traffic that stays on this machine needs no certificate. */
static enum err_code write_connect_file(const struct settings *s, const char *tls_dir,
                                        struct err *e)
{
    CLEANUP_CLOSE int dir = open(s->state_run, O_DIRECTORY | O_CLOEXEC);
    bool v6 = strchr(s->listen_address, ':') != NULL;
    const char *address = s->listen_address;
    char here[128], public[300], text[2000];
    int n, r;

    if (strcmp(address, "0.0.0.0") == 0 || strcmp(address, KEEP_LISTEN_LOCALHOST) == 0)
        address = "127.0.0.1";
    else if (strcmp(address, "::") == 0)
        address = "::1";
    snprintf(here, sizeof(here), "http://%s%s%s:%" PRId64, v6 ? "[" : "", address, v6 ? "]" : "",
             s->listen_port);
    snprintf(public, sizeof(public), "https://%s", s->server_domain);
    n = snprintf(text, sizeof(text), "%s\n%.512s/cayd/api-key\n%s\n%s\n",
                 settings_needs_tls(s) ? public : here, s->state_dir,
                 settings_has_tls(s) ? public : here, tls_dir);
    r = dir < 0 ? -errno : io_replace_file_at(dir, "connect", text, (size_t)n, 0644);
    return r < 0 ? err_set_sys(e, ERR_INTERNAL, r, "cannot write %s/connect", s->state_run)
                 : ERR_OK;
}

/* A certificate of the local CA stands in for the operator's. *dir: where clients find what
 * to trust, or "". */
static enum err_code find_certificate(struct settings *s, struct server_ca_files *files,
                                      struct err *e)
{
    bool changed;

    files->dir[0] = '\0';
    if (!server_ca_is_wanted(s))
        return ERR_OK;
    if (server_ca_ensure(s, false, files, &changed, e) != ERR_OK)
        return e->code;
    s->listen_tls_cert = strdup(files->cert);
    s->listen_tls_key = strdup(files->key);
    return s->listen_tls_cert && s->listen_tls_key ? ERR_OK
                                                   : err_set(e, ERR_EXHAUSTED, "out of memory");
}

enum err_code server_start(struct cli *c, struct err *e)
{
    struct settings *s = &c->settings;
    struct server_ca_files tls = {.dir = ""};
    struct programs p = {.keep = ""};

    if (settings_check_start(s, e) != ERR_OK || find_programs(c, &p, e) != ERR_OK ||
        check_machine(c, e) != ERR_OK || make_user(c, s->server_user, e) != ERR_OK ||
        make_user(c, s->egress_user, e) != ERR_OK || make_parents(s->state_log, e) != ERR_OK ||
        make_parents(s->state_dir, e) != ERR_OK || find_certificate(s, &tls, e) != ERR_OK)
        return e->code;
    if (run_keep(&p, s, e) != ERR_OK)
        return e->code;
    return write_connect_file(s, tls.dir, e);
}
