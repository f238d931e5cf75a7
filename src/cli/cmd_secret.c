/* secret set|ls|rm: credentials that cay-egress puts on requests. A value is read from standard
 * input, a file or a command's output, never from an argument, sent once, and wiped; with
 * --every that is done again and again, and a value that cannot be had leaves the one before in
 * force. The list has no values. */
#include "base/plain_name.h"
#include "cli/commands.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#define VALUE_MAX   16384
#define EVERY_MAX_S (30u * 24 * 3600)
#define AGAIN_S     30u

/* -- the value --------------------------------------------------------------------------------- */

/* Everything until the end; of a terminal one line, which is not shown. */
static ssize_t read_value(int fd, char *out, size_t size)
{
    struct termios before, quiet;
    bool terminal = tcgetattr(fd, &before) == 0;
    size_t used = 0;
    ssize_t n = 1;

    if (terminal) {
        quiet = before;
        quiet.c_lflag &= ~(tcflag_t)ECHO;
        tcsetattr(fd, TCSAFLUSH, &quiet);
        fputs("value: ", stderr);
    }
    while (used < size && (n = read(fd, out + used, size - used)) > 0) {
        used += (size_t)n;
        if (terminal && out[used - 1] == '\n')
            break;
    }
    if (terminal) {
        tcsetattr(fd, TCSAFLUSH, &before);
        fputc('\n', stderr);
    }
    return n < 0 ? -errno : (ssize_t)used;
}

/* The output of a program of the caller's own: a vault's client, or a program that renews an OAuth
 * token. It runs here, as the caller's user, and nowhere else: no daemon runs a command, and no
 * tenant names one. Its output is not used where it has failed. */
static ssize_t read_command(const char *command, char *out, size_t size, int *status)
{
    FILE *f = popen(command, "re");
    ssize_t n;

    if (!f)
        return -errno;
    n = read_value(fileno(f), out, size);
    *status = pclose(f);
    return n;
}

static enum err_code load_value(const struct cli *c, char *out, struct err *e)
{
    const char *file = cli_value(c, "file"), *command = cli_value(c, "command");
    int status = 0;
    CLEANUP_CLOSE int fd = -1;
    ssize_t n;

    if (!command)
        fd = file ? open(file, O_RDONLY | O_CLOEXEC) : dup(STDIN_FILENO);
    if (command)
        n = read_command(command, out, VALUE_MAX, &status);
    else
        n = fd < 0 ? -errno : read_value(fd, out, VALUE_MAX);
    if (n < 0)
        return err_set_sys(e, ERR_INVALID, (int)n, "reading the value from %s",
                           command ? "the command"
                           : file  ? file
                                   : "standard input");
    if (status != 0)
        return err_set(e, ERR_UNAVAILABLE, "--command: it has failed (status %d): nothing was set",
                       WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
    if (n == VALUE_MAX)
        return err_set(e, ERR_TOO_LARGE, "a value has less than %d bytes", VALUE_MAX);
    if (n > 0 && out[n - 1] == '\n')
        n--;
    out[n] = '\0';
    if (n > 0 && strlen(out) == (size_t)n)
        return ERR_OK;
    err_set(e, ERR_INVALID, "the value is empty, or has a NUL in it");
    err_hint(e, "it is read from standard input, or by --file or --command");
    return e->code;
}

/* -- what it is bound to ----------------------------------------------------------------------- */

static int add_text(void *arg, const char *value)
{
    return json_array_append_new(arg, json_string(value));
}

static void add_list(const struct cli *c, json_t *bind, const char *option, const char *key)
{
    json_t *list = json_array();

    cli_each(c, option, add_text, list);
    if (json_array_size(list) > 0)
        json_object_set(bind, key, list);
    json_decref(list);
}

#define KINDS                                           \
    "bearer, basic, header:NAME, headers, query:NAME, " \
    "aws-sigv4[:REGION[/SERVICE]], oauth2:TOKEN_HOST or placeholder"

/* Adds one of KINDS. */
static enum err_code add_kind(json_t *bind, const char *kind, struct err *e)
{
    static const struct {
        const char *name, *key, *key2; /* of what follows the colon, and of what follows a slash */
        bool needed;
    } kinds[] = {{"bearer", NULL, NULL, false},        {"basic", NULL, NULL, false},
                 {"header", "header", NULL, true},     {"headers", NULL, NULL, false},
                 {"query", "parameter", NULL, true},   {"aws-sigv4", "region", "service", false},
                 {"oauth2", "token_host", NULL, true}, {"placeholder", NULL, NULL, false}};
    size_t n = strcspn(kind, ":"), first;
    const char *rest = kind[n] ? kind + n + 1 : NULL;

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        if (strlen(kinds[i].name) != n || memcmp(kinds[i].name, kind, n) != 0)
            continue;
        if ((rest && !kinds[i].key) || (kinds[i].needed && (!rest || !*rest)))
            break;
        json_object_set_new(bind, "kind", json_string(kinds[i].name));
        first = rest ? (kinds[i].key2 ? strcspn(rest, "/") : strlen(rest)) : 0;
        if (rest)
            json_object_set_new(bind, kinds[i].key, json_stringn(rest, first));
        if (rest && rest[first])
            json_object_set_new(bind, kinds[i].key2, json_string(rest + first + 1));
        return ERR_OK;
    }
    cli_wrong_option(e, "--kind: \"%s\" is not known", kind);
    err_hint(e, "%s", KINDS);
    return e->code;
}

/* The host of --oauth's address is what the secret is bound to, besides its domains. */
static enum err_code add_oauth(const struct cli *c, json_t *bind, struct err *e)
{
    static const char scheme[] = "https://";
    const char *url = cli_value(c, "oauth"), *host = url + sizeof(scheme) - 1;
    char text[320];
    size_t n;

    if (cli_value(c, "kind"))
        return cli_wrong_option(e, "--oauth: says the kind itself, without --kind");
    if (!cli_value(c, "client-id"))
        return cli_wrong_option(e, "--oauth: needs --client-id");
    if (strncasecmp(url, scheme, sizeof(scheme) - 1) != 0)
        return cli_wrong_option(e, "--oauth: must be https://HOST/PATH of the token server");
    n = MIN(strcspn(host, "/?#"), sizeof(text) - 1);
    for (size_t i = 0; i < n; i++)
        text[i] = (char)tolower((unsigned char)host[i]);
    text[n] = '\0';
    if (n > 4 && strcmp(text + n - 4, ":443") == 0)
        text[n - 4] = '\0';
    json_object_set_new(bind, "kind", json_string("oauth2"));
    json_object_set_new(bind, "token_host", json_string(text));
    return ERR_OK;
}

/* Those that are about the token server have no meaning for another kind. */
static enum err_code check_oauth_options(const struct cli *c, struct err *e)
{
    static const char *const options[] = {"client-id", "client-auth", "scope"};

    for (size_t i = 0; i < ARRAY_SIZE(options) && !cli_value(c, "oauth"); i++)
        if (cli_value(c, options[i]))
            return cli_wrong_option(e, "--%s: goes with --oauth=URL", options[i]);
    return ERR_OK;
}

static enum err_code make_bind(const struct cli *c, json_t *bind, struct err *e)
{
    static const char *const flags[] = {"insecure", "target", "bodies", "require"};
    const char *kind = cli_value(c, "kind"), *prefix = cli_value(c, "prefix");

    if (check_oauth_options(c, e) != ERR_OK)
        return e->code;
    if (cli_value(c, "oauth") ? add_oauth(c, bind, e) != ERR_OK
                              : add_kind(bind, kind ? kind : "bearer", e) != ERR_OK)
        return e->code;
    add_list(c, bind, "domain", "domains");
    add_list(c, bind, "port", "ports");
    add_list(c, bind, "method", "methods");
    add_list(c, bind, "path", "paths");
    if (!json_object_get(bind, "domains"))
        return cli_wrong_option(e, "--domain: at least one host has to be named that may see "
                                   "the value");
    if (prefix)
        json_object_set_new(bind, "prefix", json_string(prefix));
    add_list(c, bind, "header", "headers");
    for (size_t i = 0; i < ARRAY_SIZE(flags); i++)
        if (cli_flag(c, flags[i]))
            json_object_set_new(bind, flags[i], json_true());
    return ERR_OK;
}

/* -- commands ---------------------------------------------------------------------------------- */

/* The input is the refresh token, or {"refresh_token", "client_secret"}; the rest is no secret. */
static json_t *oauth_json(const struct cli *c, const char *value)
{
    static const struct {
        const char *option, *key;
    } texts[] = {{"oauth", "token_url"},
                 {"client-id", "client_id"},
                 {"client-auth", "client_auth"},
                 {"scope", "scope"}};
    json_t *o = value[0] == '{' ? json_loads(value, 0, NULL)
                                : json_pack("{s:s}", "refresh_token", value);

    for (size_t i = 0; json_is_object(o) && i < ARRAY_SIZE(texts); i++)
        if (cli_value(c, texts[i].option))
            json_object_set_new(o, texts[i].key, json_string(cli_value(c, texts[i].option)));
    return o;
}

/* AWS's is an object, OAuth's, and that of several headers; all others are texts. */
static json_t *value_json(const struct cli *c, const json_t *bind, const char *value, struct err *e)
{
    const char *kind = cli_text(bind, "kind"), *must_be = "UTF-8";
    json_t *json;

    if (strcmp(kind, "oauth2") == 0) {
        json = value[0] == '{' || cli_value(c, "oauth") ? oauth_json(c, value) : NULL;
        must_be =
            cli_value(c, "oauth")
                ? "a refresh token, or {\"refresh_token\": ..., \"client_secret\": ...}"
                : "{\"token_url\": ..., \"client_id\": ..., \"refresh_token\": ...}, or a refresh "
                  "token with --oauth=URL instead of --kind";
    } else if (strcmp(kind, "aws-sigv4") == 0) {
        json = json_loads(value, 0, NULL);
        must_be = "{\"access_key_id\": ..., \"secret_access_key\": ...} for aws-sigv4";
    } else if (strcmp(kind, "headers") == 0) {
        json = json_loads(value, 0, NULL);
        must_be = "{\"NAME\": \"VALUE\", ...} for headers";
    } else {
        json = json_string(value);
    }
    if (!json) /* nothing of it is shown */
        err_set(e, ERR_INVALID, "the value must be %s", must_be);
    return json;
}

/* A renewed value is no surprise; another binding may be one. */
static void say_replaced(const struct cli *c, const json_t *answer)
{
    const json_t *old = json_object_get(answer, "replaced"),
                 *domains = json_object_get(old, "domains");
    const char *first = json_string_value(json_array_get(domains, 0));

    if (!old || json_equal(old, json_object_get(answer, "bind")))
        return;
    cli_note(c, "cay: it replaces the secret of that name, of kind %s, which was bound to %s%s",
             *cli_text(old, "kind") ? cli_text(old, "kind") : "bearer",
             first ? first : "every host", json_array_size(domains) > 1 ? " and others" : "");
}

static enum err_code set_once(struct cli *c, json_t *bind, struct err *e)
{
    char value[VALUE_MAX + 1];
    json_t *body = NULL, *json, *answer = NULL;
    struct api a;

    *e = (struct err){.code = ERR_OK};
    if (load_value(c, value, e) == ERR_OK && (json = value_json(c, bind, value, e)))
        body = json_pack("{s:s, s:O, s:o}", "name", c->operands[0], "bind", bind, "value", json);
    explicit_bzero(value, sizeof(value));
    if (body && api_open(&a, c, e) == ERR_OK) {
        if (api_call(&a, "POST", "/cay/v1/secrets", body, &answer, e) == ERR_OK) {
            if (c->json)
                cli_print_json(json_incref(answer));
            else
                say_replaced(c, answer);
        }
        api_close(&a);
    }
    json_decref(answer);
    json_decref(body);
    return e->code;
}

/* Seconds; 0: once. */
static enum err_code read_every(const struct cli *c, unsigned *out, struct err *e)
{
    const char *text = cli_value(c, "every");
    char *end = NULL;
    unsigned long seconds = text ? strtoul(text, &end, 10) : 0;

    if (text && (*end || end == text || seconds == 0 || seconds > EVERY_MAX_S))
        return cli_wrong_option(e, "--every: must be 1 to %u seconds", EVERY_MAX_S);
    if (text && !cli_value(c, "command"))
        return cli_wrong_option(e, "--every: goes with --command, which is run again");
    *out = (unsigned)seconds;
    return ERR_OK;
}

int cmd_secret_set(struct cli *c)
{
    json_t *bind = json_object();
    struct err e = {.code = ERR_OK};
    unsigned every = 0;

    if (read_every(c, &every, &e) == ERR_OK && make_bind(c, bind, &e) == ERR_OK)
        (void)set_once(c, bind, &e);
    /* After the first success failures are tried again: the last value stays in force while a vault
     * is away. */
    while (every > 0 && e.code == ERR_OK) {
        unsigned wait = every;

        for (sleep(wait); set_once(c, bind, &e) != ERR_OK; sleep(wait)) {
            wait = MIN(every, AGAIN_S);
            fprintf(stderr, "cay: %s; again in %u s\n", e.text, wait);
        }
    }
    json_decref(bind);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}

static void print_secrets(const json_t *all)
{
    static const char *const heads[] = {"SECRET",  "KIND",  "DOMAINS", "PORTS",
                                        "METHODS", "PATHS", "MADE"};
    struct table *t = table_new(heads, ARRAY_SIZE(heads));
    json_t *item;
    size_t i;

    json_array_foreach (all, i, item) {
        const json_t *bind = json_object_get(item, "bind");

        table_cell(t, "%s", cli_text(item, "name"));
        table_cell(t, "%s", cli_text(bind, "kind"));
        table_cell_list(t, json_object_get(bind, "domains"), " ", "");
        table_cell_list(t, json_object_get(bind, "ports"), " ", "");
        table_cell_list(t, json_object_get(bind, "methods"), " ", "");
        table_cell_list(t, json_object_get(bind, "paths"), " ", "");
        table_cell(t, "%.16s", cli_text(item, "madeAt"));
    }
    table_print(t, stdout);
    table_free(t);
}

int cmd_secret_ls(struct cli *c)
{
    return show_answer(c, "/cay/v1/secrets", print_secrets);
}

int cmd_secret_rm(struct cli *c)
{
    struct err e = {.code = ERR_OK};
    char path[128];
    struct api a;

    for (int i = 0; i < c->operand_count; i++)
        if (!plain_name_is_valid(c->operands[i], 64))
            return cli_usage(c, "\"%s\" is not the name of a secret; `cay secret ls` shows them",
                             c->operands[i]);
    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    for (int i = 0; i < c->operand_count && e.code == ERR_OK; i++) {
        snprintf(path, sizeof(path), "/cay/v1/secrets/%s", c->operands[i]);
        if (api_call(&a, "DELETE", path, NULL, NULL, &e) == ERR_OK && c->json)
            cli_print_json(json_pack("{s:s}", "removed", c->operands[i]));
    }
    api_close(&a);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}
