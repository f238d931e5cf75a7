/* status, env, version. Each is one call of the server, or none, and what it
 * prints; what `env` prints is read by a shell, so that every value in it is quoted. */
#include "base/io.h"
#include "cli/commands.h"
#include "cli/server.h"
#include "cli/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>

pid_t server_pid(const struct settings *s)
{
    CLEANUP_CLOSE int fd = -1;
    char path[512], text[32];
    pid_t pid;

    snprintf(path, sizeof(path), "%s/keep.pid", s->state_run);
    if (io_read_text_at(AT_FDCWD, path, text, sizeof(text)) < 0)
        return 0;
    pid = (pid_t)strtol(text, NULL, 10);
    /* The lock and not the number tells whether it lives: numbers are used again. */
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (pid <= 0 || fd < 0 || flock(fd, LOCK_SH | LOCK_NB) == 0)
        return 0;
    return errno == EWOULDBLOCK ? pid : 0;
}

static void print_pool(const json_t *pool)
{
    const json_t *p;
    size_t i;

    json_array_foreach (pool, i, p) {
        terminal_put(stdout, "pool      ", cli_text(p, "template"));
        printf(": %lld started ahead of %lld, %lld claimed, %lld missed\n",
               (long long)json_integer_value(json_object_get(p, "ready")),
               (long long)json_integer_value(json_object_get(p, "target")),
               (long long)json_integer_value(json_object_get(p, "claims")),
               (long long)json_integer_value(json_object_get(p, "misses")));
    }
}

static void print_status(const struct api *a, const json_t *s)
{
    const json_t *disk = json_object_get(s, "disk"), *slots = json_object_get(s, "slots");
    char uptime[32], total[32], free_bytes[32];

    table_duration(json_integer_value(json_object_get(s, "uptimeSeconds")), uptime, sizeof(uptime));
    table_bytes((uint64_t)json_integer_value(json_object_get(disk, "totalBytes")), total,
                sizeof(total));
    table_bytes((uint64_t)json_integer_value(json_object_get(disk, "freeBytes")), free_bytes,
                sizeof(free_bytes));
    terminal_put(stdout, "cay ", cli_text(s, "version"));
    terminal_put(stdout, " at ", a->url);
    puts(json_is_true(json_object_get(s, "ready")) ? ", ready" : ", not ready");
    printf("up        %s\n", uptime);
    terminal_put(stdout, "domain    ", cli_text(s, "domain"));
    putchar('\n');
    printf("sandboxes %lld%s\n", (long long)json_integer_value(json_object_get(s, "sandboxes")),
           json_is_true(json_object_get(s, "operator")) ? " of all tenants" : "");
    printf("slots     %lld ready, %lld at most\n",
           (long long)json_integer_value(json_object_get(slots, "ready")),
           (long long)json_integer_value(json_object_get(slots, "max")));
    print_pool(json_object_get(s, "pool"));
    printf("disk      %s free of %s", free_bytes, total);
    terminal_put(stdout, " (", cli_text(disk, "backend"));
    puts(")");
}

int cmd_status(struct cli *c)
{
    struct err e = {.code = ERR_OK};
    json_t *status = NULL;
    struct api a;

    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (api_call(&a, "GET", "/cay/v1/status", NULL, &status, &e) == ERR_OK) {
        if (c->json)
            cli_print_json(json_incref(status));
        else
            print_status(&a, status);
        json_decref(status);
    }
    api_close(&a);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}

/* -- env --------------------------------------------------------------------------------------- */

/* Single quotes hold everything but themselves, in sh and in fish. */
static void print_quoted(const char *text, bool fish)
{
    putchar('\'');
    for (; *text; text++) {
        if (*text == '\'')
            fputs(fish ? "\\'" : "'\\''", stdout);
        else if (*text == '\\' && fish)
            fputs("\\\\", stdout);
        else
            putchar(*text);
    }
    putchar('\'');
}

/* Of an earlier `cay env --urls`: they would still be taken instead of the domain. DAYTONA_TARGET
 * is a region of Daytona's own service, which a create here would be refused for. */
static const char *const stale_names[] = {"E2B_API_URL", "E2B_SANDBOX_URL", "E2B_VOLUME_API_URL",
                                          "DAYTONA_TARGET"};

static int print_env(const struct cli *c, const json_t *variables)
{
    const char *shell = cli_value(c, "shell"), *name;
    bool fish = shell && strcmp(shell, "fish") == 0;
    json_t *value;

    if (shell && !fish && strcmp(shell, "sh") != 0 && strcmp(shell, "bash") != 0 &&
        strcmp(shell, "zsh") != 0)
        return cli_usage(c, "--shell: \"%s\" is none of sh, bash, zsh, fish", shell);
    for (size_t i = 0; i < ARRAY_SIZE(stale_names); i++)
        if (getenv(stale_names[i]) && !json_object_get(variables, stale_names[i]))
            printf(fish ? "set -e %s\n" : "unset %s\n", stale_names[i]);
    json_object_foreach ((json_t *)variables, name, value) {
        printf(fish ? "set -gx %s " : "export %s=", name);
        print_quoted(json_string_value(value), fish);
        putchar('\n');
    }
    return CLI_OK;
}

/* A file of roots that this shell names already is not lost: the bundle holds what `cay up` found,
 * and where it is another one, that is said. */
static void add_trust(const struct cli *c, json_t *to, const char *dir)
{
    static const char *const whole[] = {"SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
                                        "GIT_SSL_CAINFO"};
    static const char *const beside[] = {"NODE_EXTRA_CA_CERTS", "DENO_CERT"};
    CLEANUP_FREE char *ca = NULL, *bundle = NULL;

    if (asprintf(&ca, "%s/ca.pem", dir) < 0 || asprintf(&bundle, "%s/bundle.pem", dir) < 0)
        return;
    for (size_t i = 0; i < ARRAY_SIZE(whole); i++)
        json_object_set_new(to, whole[i], json_string(bundle));
    for (size_t i = 0; i < ARRAY_SIZE(beside); i++) {
        const char *now = getenv(beside[i]);

        json_object_set_new(to, beside[i], json_string(now && strcmp(now, ca) != 0 ? bundle : ca));
    }
}

/* Daytona's SDKs are told the address of their API; what else they ask for, its answers have. */
static void add_daytona(json_t *to, const char *base, const char *key)
{
    json_object_set_new(to, "DAYTONA_API_URL", json_sprintf("%s/api", base));
    json_object_set_new(to, "DAYTONA_API_KEY", json_string(key));
}

/* Clients make all addresses from the domain, with TLS. Where they cannot, and for a server
 * elsewhere, whose names may not lead to it, they are told them. */
static json_t *make_variables(const struct cli *c, const struct api *a, const char *domain)
{
    bool is_tls = strncmp(a->public_url, "https://", 8) == 0;
    bool is_here = strcmp(a->public_url, a->url) != 0 || a->tls_dir;
    json_t *out = json_pack("{s:s, s:s}", "E2B_DOMAIN", domain, "E2B_API_KEY", a->key);
    const bool names_server = cli_flag(c, "urls") || !is_tls || !is_here;

    add_daytona(out, names_server ? a->url : a->public_url, a->key);
    if (names_server) {
        json_object_set_new(out, "E2B_API_URL", json_string(a->url));
        json_object_set_new(out, "E2B_SANDBOX_URL", json_string(a->url));
        json_object_set_new(out, "E2B_VOLUME_API_URL", json_string(a->url));
    }
    if (a->tls_dir)
        add_trust(c, out, a->tls_dir);
    return out;
}

/* The addresses and keys for clients; a new reference. NULL with e. */
static json_t *fetch_variables(const struct cli *c, struct api *a, struct err *e)
{
    json_t *status = NULL, *out;
    const char *domain;

    if (api_call(a, "GET", "/cay/v1/status", NULL, &status, e) != ERR_OK)
        return NULL;
    domain = cli_text(status, "domain");
    out = make_variables(c, a, domain[0] ? domain : c->settings.server_domain);
    json_decref(status);
    if (!out)
        err_set(e, ERR_UNAVAILABLE, "out of memory");
    return out;
}

/* Takes variables; NULL: e says why. */
static int show_variables(const struct cli *c, struct api *a, json_t *variables,
                          const struct err *e)
{
    int r = CLI_OK;

    if (!variables)
        r = cli_fail(c, e);
    else if (c->json)
        cli_print_json(json_incref(variables));
    else
        r = print_env(c, variables);
    json_decref(variables);
    api_close(a);
    return r;
}

/* E2B_API_KEY may be left from a server that was here before: where this machine's does not know
 * it, the operator's own key takes its place. NULL with e, which then is the first refusal. */
static json_t *fetch_as_operator(const struct cli *c, struct api *a, struct err *e)
{
    json_t *variables = NULL;
    struct err ignored;
    struct api own;

    if (e->code != ERR_UNAUTHENTICATED || cli_value(c, "api-key") ||
        api_open_local(&own, c, &ignored) != ERR_OK)
        return NULL;
    if (strcmp(own.url, a->url) == 0)
        variables = fetch_variables(c, &own, &ignored);
    if (variables) {
        fprintf(stderr, "cay: this server does not know the key in E2B_API_KEY; the output "
                        "has its operator's\n");
        api_close(a);
        *a = own;
    } else {
        api_close(&own);
    }
    return variables;
}

static json_t *env_variables(const struct cli *c, struct api *a, struct err *e)
{
    json_t *variables = fetch_variables(c, a, e);

    return variables ? variables : fetch_as_operator(c, a, e);
}

static int show_what(const struct cli *c,
                     json_t *(*variables)(const struct cli *, struct api *, struct err *))
{
    struct err e = {.code = ERR_OK};
    struct api a;

    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    return show_variables(c, &a, variables(c, &a, &e), &e);
}

int cmd_env(struct cli *c)
{
    return show_what(c, env_variables);
}

/* -- debug ------------------------------------------------------------------------------------- */

#define DEBUG_PORT \
    49983 /* of the agent; E2B's SDKs take localhost's when they are told nothing else */

/* In debug mode the SDKs ask no control plane and send no token. */
static enum err_code add_debug(struct api *a, const char *id, json_t *to, struct err *e)
{
    const char *domain = json_string_value(json_object_get(to, "E2B_DOMAIN"));
    bool is_tls = strncmp(a->public_url, "https://", 8) == 0;
    struct api_sandbox s;

    if (api_sandbox_enter(a, id, &s, e) != ERR_OK)
        return e->code;
    if (s.token[0]) {
        err_set(e, ERR_INVALID,
                "sandbox %s asks for an access token, which SDKs do not send in debug mode", s.id);
        err_hint(e,
                 "make one with `cay create --no-token`, or do without E2B_DEBUG: `cay env` is all "
                 "that an SDK needs");
        return e->code;
    }
    json_object_set_new(to, "E2B_DEBUG", json_string("true"));
    json_object_set_new(to, "E2B_SANDBOX_URL",
                        json_sprintf("%s://%d-%s.%s", is_tls ? "https" : "http", DEBUG_PORT, s.id,
                                     domain ? domain : ""));
    return ERR_OK;
}

static json_t *debug_variables(const struct cli *c, struct api *a, struct err *e)
{
    json_t *variables = fetch_variables(c, a, e);

    if (variables && add_debug(a, c->operands[0], variables, e) != ERR_OK) {
        json_decref(variables);
        variables = NULL;
    }
    return variables;
}

int cmd_debug(struct cli *c)
{
    return show_what(c, debug_variables);
}

/* -- version ----------------------------------------------------------------------------------- */

int cmd_version(struct cli *c)
{
    if (c->json || cli_flag(c, "json"))
        cli_print_json(json_pack("{s:s}", "version", CAY_VERSION));
    else
        puts("cay " CAY_VERSION);
    return CLI_OK;
}
