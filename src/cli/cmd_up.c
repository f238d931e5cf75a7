/* up: checks, user, directories, cay-keep, and a first sandbox as proof. Each step is tried in
 * this order and says what it does; the first that fails ends it with the reason and what to
 * do, and what the steps before have made stays for the next try. A server that runs already is
 * success. */
#include "base/clock.h"
#include "base/io.h"
#include "cli/commands.h"
#include "cli/doctor.h"
#include "cli/server.h"
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
#include <time.h>

#ifndef CAY_LIBEXECDIR
#define CAY_LIBEXECDIR "/usr/local/libexec/cay"
#endif

#define MAX_ARGS         96
#define HOST_TIMEOUT_MS  60000
#define REACH_TIMEOUT_MS 3000L

/* -- what has to be there ---------------------------------------------------------------------- */

static enum err_code check_machine(struct err *e)
{
    struct doctor_result results[DOCTOR_MAX];
    size_t n = doctor_run(results);

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
};

static bool find_in(struct programs *p, const char *dir, bool build_tree)
{
    snprintf(p->keep, sizeof(p->keep), "%s/%scay-keep", dir, build_tree ? "keep/" : "");
    snprintf(p->cayd, sizeof(p->cayd), "%s/%scayd", dir, build_tree ? "cayd/" : "");
    snprintf(p->privd, sizeof(p->privd), "%s/%scay-privd", dir, build_tree ? "privd/" : "");
    snprintf(p->job, sizeof(p->job), "%s/%scay-job", dir, build_tree ? "job/" : "");
    snprintf(p->agent, sizeof(p->agent), "%s/%scay-init", dir, build_tree ? "agent/" : "");
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

/* What keep alone is told. */
static bool is_for_keep(const struct config_key *k)
{
    return is_key(k, "egress", "user") || is_key(k, "egress", "processes") ||
           is_key(k, "egress", "key_file");
}

/* keep and privd are told what of these concerns them; no daemon chooses its own user. */
static bool is_for_cayd(const struct config_key *k)
{
    return !is_key(k, "state", NULL) && !is_key(k, "server", "user") && !is_for_keep(k) &&
           (!is_key(k, "listen", NULL) || strncmp(k->key, "tls", 3) == 0);
}

static bool is_for_egress(const struct config_key *k)
{
    return is_key(k, "server", "log_level") || (is_key(k, "egress", NULL) && !is_for_keep(k));
}

/* What differs from the defaults goes on to daemons that have the same table. */
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
    add(a, "--egress-user=%s", s->egress_user);
    add(a, "--egress-processes=%" PRId64, s->egress_processes);
    if (s->egress_key_file)
        add(a, "--egress-key-file=%s", s->egress_key_file);
    if (settings_has_tls(s)) {
        add(a, "--tls-cert=%s", s->listen_tls_cert);
        add(a, "--tls-key=%s", s->listen_tls_key);
    }
    add(a, "--uid-first=%" PRId64, s->sandbox_first_uid);
    add(a, "--uid-ranges=%" PRId64, s->sandbox_slots_max);
    add(a, "--privd-arg=--uid-base=%" PRId64, s->sandbox_first_uid);
    add(a, "--privd-arg=--slots-max=%" PRId64, s->sandbox_slots_max);
    add(a, "--privd-arg=--slots-ready=%" PRId64, s->sandbox_slots_ready);
    add(a, "--privd-arg=--disk-backend=%s", s->state_disk_backend);
    add(a, "--privd-arg=--disk-size=%" PRIu64, s->state_disk_size_bytes);
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

/* Four lines for commands on this machine: see api.c. They use plain HTTP where it is spoken: what
 * stays on this machine needs no certificate. */
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

/* A certificate of the local authority stands in for the operator's. *dir: where clients find what
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
        check_machine(e) != ERR_OK || make_user(c, s->server_user, e) != ERR_OK ||
        make_user(c, s->egress_user, e) != ERR_OK || make_parents(s->state_log, e) != ERR_OK ||
        make_parents(s->state_dir, e) != ERR_OK || find_certificate(s, &tls, e) != ERR_OK)
        return e->code;
    if (run_keep(&p, s, e) != ERR_OK)
        return e->code;
    return write_connect_file(s, tls.dir, e);
}

/* -- templates --------------------------------------------------------------------------------- */

struct template_state {
    bool known, ready, building;
};

static enum err_code read_template(struct api *a, const char *wanted, struct template_state *out,
                                   struct err *e)
{
    json_t *all = NULL, *item;
    enum err_code code = api_call(a, "GET", "/cay/v1/templates", NULL, &all, e);
    size_t i;

    memset(out, 0, sizeof(*out));
    if (code != ERR_OK)
        return code;
    json_array_foreach (all, i, item) {
        const char *name = json_string_value(json_object_get(item, "id"));

        if (!name || strcmp(name, wanted) != 0)
            continue;
        out->known = true;
        out->ready = json_is_true(json_object_get(item, "ready"));
        out->building = json_is_true(json_object_get(item, "building"));
    }
    json_decref(all);
    return ERR_OK;
}

/* The template host is made of this machine's own programs when the server starts. */
static enum err_code wait_for_host(struct api *a, struct err *e)
{
    uint64_t until = clock_mono_ms() + HOST_TIMEOUT_MS;
    struct template_state t;

    do {
        if (read_template(a, "host", &t, e) != ERR_OK)
            return e->code;
        if (t.ready)
            return ERR_OK;
        nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    } while (clock_mono_ms() < until);
    return err_set(e, ERR_TIMEOUT, "the template host was not made within %d s",
                   HOST_TIMEOUT_MS / 1000);
}

/* -- the proof --------------------------------------------------------------------------------- */

static int prove(struct cli *c, struct api *a)
{
    char *argv[] = {(char[]){"/bin/sh"}, (char[]){"-c"},
                    (char[]){"echo \"Hello from $(hostname), a sandbox of its own: user $(id -un), "
                             "$(ls /proc | grep -c '^[0-9]') processes, $(uname -sr)\""}};
    uint64_t begun, made;
    struct err e = {.code = ERR_OK};
    char id[64];
    int status;

    if (wait_for_host(a, &e) != ERR_OK)
        return cli_fail(c, &e);
    begun = clock_mono_us();
    if (sandbox_create(c, a, "host", id, sizeof(id), &e) != ERR_OK)
        return cli_fail(c, &e);
    made = clock_mono_us();
    status = exec_in(c, a, id, argv, ARRAY_SIZE(argv));
    if (sandbox_kill(a, id, &e) != ERR_OK)
        return cli_fail(c, &e);
    printf("  made in %.1f ms; made, used and ended in %.1f ms\n", (double)(made - begun) / 1000,
           (double)(clock_mono_us() - begun) / 1000);
    return status == 0 ? CLI_OK : CLI_FAILED;
}

/* -- base -------------------------------------------------------------------------------------- */

static bool read_package_site(char *out, size_t size)
{
    FILE *f = popen("apt-get indextargets --format '$(SITE)' 2>/dev/null", "re");
    bool found = false;

    if (!f)
        return false;
    while (!found && fgets(out, (int)size, f)) {
        out[strcspn(out, "\n")] = '\0';
        found = strncmp(out, "http", 4) == 0;
    }
    return pclose(f) >= 0 && found;
}

static bool packages_can_be_reached(void)
{
    char site[512];
    CURL *curl = read_package_site(site, sizeof(site)) ? curl_easy_init() : NULL;
    CURLcode r;

    if (!curl)
        return false;
    curl_easy_setopt(curl, CURLOPT_URL, site);
    curl_easy_setopt(curl, CURLOPT_NOBODY, 1L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, REACH_TIMEOUT_MS);
    r = curl_easy_perform(curl);
    curl_easy_cleanup(curl);
    return r == CURLE_OK;
}

static void start_base(struct cli *c, struct api *a)
{
    json_t *body = json_object();
    struct template_state t;
    struct err e;
    bool wanted = read_template(a, "base", &t, &e) == ERR_OK && t.known && !t.ready && !t.building;

    if (wanted && !packages_can_be_reached())
        cli_note(c, "Packages cannot be reached: sandboxes run the template host. "
                    "`cay template build base` makes a real Debian later.");
    else if (wanted &&
             api_call(a, "POST", "/cay/v1/templates/base/build", body, NULL, &e) == ERR_OK)
        cli_note(c, "The template base, a real Debian, is being built; until then host takes its "
                    "place. Watch it with `cay template build base`.");
    json_decref(body);
}

/* -- up ---------------------------------------------------------------------------------------- */

static void print_connect(const struct cli *c, const struct api *a)
{
    const struct settings *s = &c->settings;

    printf("\nConnect any E2B SDK in this shell:   eval \"$(%s env)\"\n"
           "  E2B_DOMAIN=%s, and E2B_API_KEY from %s/cayd/api-key\n",
           c->program, s->server_domain, s->state_dir);
    if (a->tls_dir)
        printf("  programs are told to trust %s/ca.pem, which signs for this server alone\n",
               a->tls_dir);
}

/* A server that runs for a year: the certificate's successor is taken up without an
 * interruption. */
static void renew(struct cli *c, pid_t pid)
{
    struct server_ca_files files = {.dir = ""};
    struct err e = {.code = ERR_OK};
    bool changed = false;

    if (geteuid() != 0 || !server_ca_is_wanted(&c->settings) || cli_flag(c, "check"))
        return;
    if (server_ca_ensure(&c->settings, true, &files, &changed, &e) != ERR_OK)
        cli_note(c, "The certificate was not looked at: %s", e.text);
    else if (changed && kill(pid, SIGHUP) == 0)
        cli_note(c, "The server's certificate was about to end; it has a new one.");
}

static int running(struct cli *c, pid_t pid)
{
    struct api a = {.url = NULL};
    const char *url = api_open_local(&a, c, NULL) == ERR_OK ? a.url : "?";

    renew(c, pid);
    if (c->json)
        cli_print_json(json_pack("{s:b, s:b, s:i, s:s}", "running", 1, "started", 0, "pid",
                                 (int)pid, "url", url));
    else
        printf("cay is running at %s (pid %d)\n", url, (int)pid);
    api_close(&a);
    return CLI_OK;
}

static int started(struct cli *c, struct api *a, double seconds)
{
    int status = CLI_OK;

    if (c->json) {
        cli_print_json(json_pack("{s:b, s:b, s:i, s:s}", "running", 1, "started", 1, "pid",
                                 (int)server_pid(&c->settings), "url", a->url));
        if (!cli_flag(c, "no-build"))
            start_base(c, a);
        return CLI_OK;
    }
    printf("cay %s is up at %s (%.1f s)\n", CAY_VERSION, a->url, seconds);
    fflush(stdout); /* the proof writes to the descriptor itself */
    if (!cli_flag(c, "no-proof"))
        status = prove(c, a);
    print_connect(c, a);
    fflush(stdout);
    if (!cli_flag(c, "no-build"))
        start_base(c, a);
    return status;
}

int cmd_up(struct cli *c)
{
    pid_t pid = server_pid(&c->settings);
    uint64_t begun = clock_mono_ms();
    struct err e = {.code = ERR_OK};
    struct api a;
    int status;

    if (pid > 0)
        return running(c, pid);
    if (cli_flag(c, "check"))
        return CLI_FAILED;
    if (server_start(c, &e) != ERR_OK) {
        pid = e.code == ERR_EXISTS ? server_pid(&c->settings) : 0;
        return pid > 0 ? running(c, pid) : cli_fail(c, &e);
    }
    if (api_open_local(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    status = started(c, &a, (double)(clock_mono_ms() - begun) / 1000);
    api_close(&a);
    return status;
}
