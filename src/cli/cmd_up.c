/* up: a first sandbox as proof that the server runs (server_start.c), and the build of the template
 * base. A server that runs already is success. */
#include "base/clock.h"
#include "cli/commands.h"
#include "cli/server.h"
#include "cli/server_ca.h"

#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define HOST_TIMEOUT_MS  60000
#define REACH_TIMEOUT_MS 3000L

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

    /* Another command finds a server of other directories by the settings that it is told too. */
    printf("\nConnect SDKs of E2B and Daytona in this shell:   eval \"$(%s env%s%s)\"\n"
           "  E2B_DOMAIN=%s, and E2B_API_KEY from %s/cayd/api-key\n",
           c->program, c->settings_given ? " --state-run=" : "",
           c->settings_given ? s->state_run : "", s->server_domain, s->state_dir);
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

/* The daemons have the settings of their start, also after SIGHUP: a file that was changed since
 * says so, as its reader takes it to be in force. */
static void note_settings(const struct cli *c)
{
    struct stat file, start;
    char path[512];

    if (c->settings_given)
        cli_note(c,
                 "It goes on with its own settings: those of this command line take effect after "
                 "`cay down`.");
    (void)snprintf(path, sizeof(path), "%s/keep.pid", c->settings.state_run);
    if (stat(c->settings_path, &file) == 0 && stat(path, &start) == 0 &&
        file.st_mtime > start.st_mtime)
        cli_note(c,
                 "%s was changed after its start: the change takes effect with `cay down` and "
                 "`cay up`.",
                 c->settings_path);
}

static int running(struct cli *c, pid_t pid)
{
    struct api a = {.url = NULL};
    struct err ignored;
    bool known = api_open_local(&a, c, &ignored) == ERR_OK; /* only its operator may see where */
    const char *url = known ? a.url : "an address that its operator knows";

    renew(c, pid);
    note_settings(c);
    if (c->json)
        cli_print_json(json_pack("{s:b, s:b, s:i, s:s}", "running", 1, "started", 0, "pid",
                                 (int)pid, "url", url));
    else if (!cli_flag(c, "quiet"))
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
    if (cli_flag(c, "quiet")) {
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
