/* create: the options become one request's body, and the answer an id or JSON. It alone asks the
 * server more than once: what it warned of and noted at the new sandbox is shown on standard error.
 */
#include "cli/commands.h"

#include <string.h>

static int add_pair(void *arg, const char *pair)
{
    const char *equals = strchr(pair, '=');
    char name[256];

    if (!equals || equals == pair || equals - pair >= (ptrdiff_t)sizeof(name))
        return -1;
    snprintf(name, sizeof(name), "%.*s", (int)(equals - pair), pair);
    return json_object_set_new(arg, name, json_string(equals + 1)) == 0 ? 0 : -1;
}

/* NAME:PATH or NAME:PATH:ro. */
static int add_volume(void *arg, const char *text)
{
    const char *colon = strchr(text, ':');
    size_t n = colon ? strlen(colon + 1) : 0;
    bool only = n > 3 && strcmp(colon + 1 + n - 3, ":ro") == 0;

    if (!colon || colon == text || n == 0)
        return -1;
    return json_array_append_new(arg, json_pack("{s:s%, s:s%, s:b}", "name", text,
                                                (size_t)(colon - text), "path", colon + 1,
                                                only ? n - 3 : n, "readOnly", only));
}

/* NAME:PATH. */
static int add_host_mount(void *arg, const char *text)
{
    const char *colon = strchr(text, ':');

    return colon && colon != text && colon[1]
               ? json_array_append_new(arg, json_pack("{s:s%, s:s}", "name", text,
                                                      (size_t)(colon - text), "path", colon + 1))
               : -1;
}

/* --volume and --mount: each makes a list of one of the body's fields. */
static enum err_code add_mounts(const struct cli *c, json_t *body, struct err *e)
{
    static const struct {
        const char *option, *field, *form;
        int (*add)(void *arg, const char *text);
    } kinds[] = {{"volume", "volumeMounts", "NAME:PATH or NAME:PATH:ro", add_volume},
                 {"mount", "hostMounts", "NAME:PATH", add_host_mount}};

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        json_t *list = cli_value(c, kinds[i].option) ? json_array() : NULL;

        if (!list)
            continue;
        json_object_set_new(body, kinds[i].field, list);
        if (cli_each(c, kinds[i].option, kinds[i].add, list) != 0)
            return cli_wrong_option(e, "--%s: not %s", kinds[i].option, kinds[i].form);
    }
    return ERR_OK;
}

/* --idle and --idle-counts. */
static enum err_code add_idle(const struct cli *c, json_t *body, struct err *e)
{
    const char *idle = cli_value(c, "idle"), *counts = cli_value(c, "idle-counts");
    bool traffic = !counts || strcmp(counts, "processes") != 0;
    bool processes = !counts || strcmp(counts, "traffic") != 0;
    uint64_t ms = 0;

    if (!idle && counts)
        return cli_wrong_option(e, "--idle-counts: it says what counts for --idle=TIME");
    if (!idle)
        return ERR_OK;
    if (config_parse_time_ms(idle, &ms) < 0 || ms == 0)
        return cli_wrong_option(e, "--idle: \"%s\" is not a time such as 30s, 5m or 2h", idle);
    if (counts && strcmp(counts, "both") != 0 && traffic && processes)
        return cli_wrong_option(e, "--idle-counts: \"%s\" is none of traffic, processes, both",
                                counts);
    json_object_set_new(body, "idle",
                        json_pack("{s:I, s:b, s:b}", "timeout", (json_int_t)((ms + 999) / 1000),
                                  "traffic", traffic, "processes", processes));
    return ERR_OK;
}

static enum err_code create_request(const struct cli *c, const char *template_name, json_t *body,
                                    struct err *e)
{
    json_t *env = json_object(), *metadata = json_object();
    const char *ttl = cli_value(c, "ttl"), *given = cli_value(c, "policy");
    json_t *policy = NULL;
    uint64_t ttl_ms;

    json_object_set_new(body, "templateID", json_string(template_name));
    json_object_set_new(body, "envVars", env);
    json_object_set_new(body, "metadata", metadata);
    if (cli_each(c, "env", add_pair, env) != 0)
        return cli_wrong_option(e, "--env: not NAME=VALUE");
    if (cli_each(c, "metadata", add_pair, metadata) != 0)
        return cli_wrong_option(e, "--metadata: not NAME=VALUE");
    if (given && policy_from(given, &policy, e) != ERR_OK)
        return e->code;
    if (policy)
        json_object_set_new(body, "policy", policy);
    if (cli_value(c, "level"))
        json_object_set_new(body, "level", json_string(cli_value(c, "level")));
    if (cli_flag(c, "no-token"))
        json_object_set_new(body, "secure", json_false());
    if (cli_flag(c, "seccomp-filters"))
        json_object_set_new(body, "seccompFilters", json_true());
    if (add_mounts(c, body, e) != ERR_OK || add_idle(c, body, e) != ERR_OK)
        return e->code;
    if (!ttl)
        return ERR_OK;
    if (config_parse_time_ms(ttl, &ttl_ms) < 0 || ttl_ms == 0)
        return cli_wrong_option(e, "--ttl: \"%s\" is not a time such as 30s, 5m or 2h", ttl);
    json_object_set_new(body, "timeout", json_integer((json_int_t)((ttl_ms + 999) / 1000)));
    return ERR_OK;
}

/* The server gives `host` to a caller that asks for `base` before it is built, and says why. */
static void say_note(const struct cli *c, struct api *a, const char *id)
{
    json_t *detail = NULL;
    const char *note;
    char path[128];

    snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s", id);
    if (api_call(a, "GET", path, NULL, &detail, NULL) != ERR_OK)
        return;
    note = json_string_value(json_object_get(detail, "note"));
    if (note && note[0])
        cli_note(c, "cay: %s", note);
    json_decref(detail);
}

/* The server speaks of the field that the option was sent as. That error has no hint, so none is
 * lost. */
static void name_option(const struct cli *c, struct err *e)
{
    static const struct {
        const char *option, *field, *unit;
    } sent[] = {{"ttl", "\"timeout\"", ""},
                {"idle", "\"idle\": \"timeout\"", " (seconds)"},
                {"idle", "\"idle\":", ""}};
    const struct err said = *e;

    for (size_t i = 0; i < ARRAY_SIZE(sent); i++) {
        const char *value = cli_value(c, sent[i].option);
        size_t n = strlen(sent[i].field);

        if (!value || strncmp(said.text, sent[i].field, n) != 0)
            continue;
        cli_wrong_option(e, "--%s=%.32s%s:%s", sent[i].option, value, sent[i].unit, said.text + n);
        return;
    }
}

static enum err_code create(const struct cli *c, struct api *a, const char *template_name,
                            json_t **out, struct err *e)
{
    json_t *body = json_object();
    enum err_code code = create_request(c, template_name, body, e);

    if (code == ERR_OK)
        code = api_call(a, "POST", "/cay/v1/sandboxes", body, out, e);
    if (code != ERR_OK)
        name_option(c, e);
    json_decref(body);
    return code;
}

enum err_code sandbox_create(const struct cli *c, struct api *a, const char *template_name,
                             char *id, size_t size, struct err *e)
{
    json_t *answer = NULL;
    const char *given;
    enum err_code code = create(c, a, template_name, &answer, e);

    if (code != ERR_OK)
        return code;
    given = json_string_value(json_object_get(answer, "sandboxID"));
    if (given)
        snprintf(id, size, "%s", given);
    else
        code = err_set(e, ERR_INTERNAL, "the server's answer has no sandboxID");
    policy_say_warnings(c, answer);
    json_decref(answer);
    if (code == ERR_OK && !cli_flag(c, "quiet") && !c->json)
        say_note(c, a, id);
    return code;
}

int cmd_create(struct cli *c)
{
    const char *template_name = c->operand_count > 0 ? c->operands[0] : "base";
    json_t *answer = NULL;
    struct api a;
    struct err e = {.code = ERR_OK};
    char id[64];

    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (c->json) {
        if (create(c, &a, template_name, &answer, &e) == ERR_OK)
            cli_print_json(answer);
    } else if (sandbox_create(c, &a, template_name, id, sizeof(id), &e) == ERR_OK) {
        puts(id);
    }
    api_close(&a);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}
