/* `snapshot create|ls|rm`, `fork` and `rollback`. Each is one request about the sandbox or
 * snapshot that the operands name; a sandbox may be given by the beginning of its id
 * (api_open.c). A fork may be made in part: those made are printed, the others are said with their
 * reasons, and the exit status is 1. */

#include "base/plain_name.h"
#include "cli/commands.h"

#include <string.h>

/* -- snapshot create --------------------------------------------------------------------------- */

/* POSTs body, of which it takes the reference, to what below the sandbox that the first operand
 * names. *out is a new reference. */
static enum err_code post(struct cli *c, const char *what, json_t *body, json_t **out,
                          struct err *e)
{
    struct api_sandbox s;
    char path[128];
    struct api a;

    if (api_open(&a, c, e) == ERR_OK) {
        if (api_sandbox_open(&a, c->operands[0], &s, e) == ERR_OK) {
            (void)snprintf(path, sizeof(path), "/sandboxes/%s/%s", s.id, what);
            api_call(&a, "POST", path, body, out, e);
        }
        api_close(&a);
    }
    json_decref(body);
    return e->code;
}

int cmd_snapshot_create(struct cli *c)
{
    json_t *body = json_object(), *made = NULL;
    struct err e = {.code = ERR_OK};

    if (c->operand_count > 1 &&
        json_object_set_new(body, "name", json_string(c->operands[1])) < 0) {
        json_decref(body);
        return cli_usage(c, "the name \"%s\" is not UTF-8", c->operands[1]);
    }
    if (post(c, "snapshots", body, &made, &e) != ERR_OK)
        return cli_fail(c, &e);
    show_made(c, made, "snapshotID");
    json_decref(made);
    return CLI_OK;
}

/* -- snapshot ls ------------------------------------------------------------------------------- */

/* "mine:default" as it was given. */
static void name_cell(struct table *t, const json_t *item)
{
    const char *name = json_string_value(json_array_get(json_object_get(item, "names"), 0));
    const char *tag = name ? strchr(name, ':') : NULL;

    table_cell(t, "%.*s", tag ? (int)(tag - name) : 1, tag ? name : "-");
}

static void print_list(const json_t *all)
{
    static const char *const heads[] = {"SNAPSHOT", "NAME", "SANDBOX", "TEMPLATE", "MADE"};
    struct table *t = table_new(heads, ARRAY_SIZE(heads));
    json_t *item;
    size_t i;

    json_array_foreach (all, i, item) {
        table_cell(t, "%s", cli_text(item, "snapshotID"));
        name_cell(t, item);
        table_cell(t, "%s", *cli_text(item, "sandboxID") ? cli_text(item, "sandboxID") : "-");
        table_cell(t, "%s", cli_text(item, "templateID"));
        table_cell(t, "%.16s", cli_text(item, "createdAt"));
    }
    table_print(t, stdout);
    table_free(t);
}

int cmd_snapshot_ls(struct cli *c)
{
    return show_list(c, "/snapshots", true, "snapshotID", print_list);
}

/* -- snapshot rm ------------------------------------------------------------------------------- */

static enum err_code remove_one(struct api *a, const char *name, struct err *e)
{
    char path[160];

    if (!plain_name_is_segment(name, 100))
        return err_set(e, ERR_INVALID, "\"%.100s\" is no name of a snapshot", name);
    (void)snprintf(path, sizeof(path), "/templates/%s", name);
    if (api_call(a, "DELETE", path, NULL, NULL, e) == ERR_NOT_FOUND) {
        err_set(e, ERR_NOT_FOUND, "there is no snapshot '%s'", name);
        err_hint(e, "`cay snapshot ls` lists those that there are");
    }
    return e->code;
}

int cmd_snapshot_rm(struct cli *c)
{
    json_t *removed = json_array();
    struct err e = {.code = ERR_OK};
    int status = CLI_OK;
    struct api a;

    if (api_open(&a, c, &e) != ERR_OK) {
        json_decref(removed);
        return cli_fail(c, &e);
    }
    for (int i = 0; i < c->operand_count; i++) {
        e.code = ERR_OK;
        if (remove_one(&a, c->operands[i], &e) == ERR_OK) {
            json_array_append_new(removed, json_string(c->operands[i]));
            if (!c->json && !cli_flag(c, "quiet"))
                puts(c->operands[i]);
            continue;
        }
        status = CLI_FAILED;
        cli_print_error(&e);
    }
    if (c->json)
        cli_print_json(json_pack("{s:O}", "removed", removed));
    json_decref(removed);
    api_close(&a);
    return status;
}

/* -- rollback ---------------------------------------------------------------------------------- */

int cmd_rollback(struct cli *c)
{
    json_t *body = json_pack("{s:s}", "snapshotID", c->operands[1]), *now = NULL;
    struct err e = {.code = ERR_OK};
    struct api_sandbox s;
    struct api a;
    char path[128];

    if (api_open(&a, c, &e) != ERR_OK) {
        json_decref(body);
        return cli_fail(c, &e);
    }
    if (api_sandbox_open(&a, c->operands[0], &s, &e) == ERR_OK) {
        (void)snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s/rollback", s.id);
        api_call(&a, "POST", path, body, &now, &e);
    }
    if (e.code == ERR_OK)
        show_made(c, now, "sandboxID");
    json_decref(now);
    json_decref(body);
    api_close(&a);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}

/* -- fork -------------------------------------------------------------------------------------- */

static enum err_code fork_request(const struct cli *c, json_t *body, struct err *e)
{
    const char *count = cli_value(c, "count"), *ttl = cli_value(c, "ttl");
    uint64_t ttl_ms = 0;
    char *end = NULL;
    long n = count ? strtol(count, &end, 10) : 1;

    if (count && (*end || end == count || n < 1 || n > 100))
        return cli_wrong_option(e, "--count: \"%.20s\" is none of 1 to 100", count);
    if (ttl && (config_parse_time_ms(ttl, &ttl_ms) < 0 || ttl_ms == 0))
        return cli_wrong_option(e, "--ttl: \"%s\" is not a time such as 30s, 5m or 2h", ttl);
    json_object_set_new(body, "count", json_integer(n));
    if (cli_flag(c, "memory"))
        json_object_set_new(body, "memory", json_true());
    json_object_set_new(body, "timeout",
                        json_integer(ttl ? (json_int_t)((ttl_ms + 999) / 1000) : 300));
    return ERR_OK;
}

/* Prints the snapshots that were made, and an error for each that was not; false: there is one. */
static bool print_forks(const json_t *forks)
{
    bool all = true;
    json_t *one;
    size_t i;

    json_array_foreach (forks, i, one) {
        const json_t *made = json_object_get(one, "sandbox");
        struct err e;

        if (made) {
            puts(cli_text(made, "sandboxID"));
            continue;
        }
        all = false;
        err_set(&e, ERR_UNAVAILABLE, "a fork was not made: %s",
                cli_text(json_object_get(one, "error"), "message"));
        cli_print_error(&e);
    }
    return all;
}

/* Each of them says it. */
static void print_source_error(const json_t *forks)
{
    const char *why = cli_text(json_array_get(forks, 0), "sourceError");
    struct err e;

    if (!*why)
        return;
    err_set(&e, ERR_UNAVAILABLE, "%s", why);
    err_hint(&e, "try `cay resume`; `cay resume --files` starts it on its files alone");
    cli_print_error(&e);
}

int cmd_fork(struct cli *c)
{
    json_t *body = json_object(), *forks = NULL;
    struct err e = {.code = ERR_OK};
    bool all = true;

    if (fork_request(c, body, &e) != ERR_OK) {
        json_decref(body);
        return cli_fail(c, &e);
    }
    if (post(c, "fork", body, &forks, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (c->json)
        cli_print_json(json_incref(forks));
    else
        all = print_forks(forks);
    if (!c->json)
        print_source_error(forks);
    json_decref(forks);
    return all ? CLI_OK : CLI_FAILED;
}
