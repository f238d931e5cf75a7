/* `webhook create|ls|rm|deliveries|retry|ping`. Each command is one request to /cay/v1/webhooks,
 * and prints its answer. The secret by which deliveries are signed is in the answer of `create`
 * alone: it is printed once and cannot be shown again. */

#include "cli/commands.h"
#include "cli/terminal.h"

#include <string.h>

#define PATH_SIZE 160

/* NULL: they are not given. */
static json_t *types_of(const char *text)
{
    json_t *list = text ? json_array() : NULL;

    for (const char *p = text; p && *p; p += strspn(p, ",")) {
        size_t n = strcspn(p, ",");

        json_array_append_new(list, json_stringn(p, n));
        p += n;
    }
    return list;
}

static void print_secret(const struct cli *c, const json_t *answer)
{
    printf("%s\n", cli_text(answer, "secret"));
    cli_note(c, "webhook %s: that is its signing secret, shown this once", cli_text(answer, "id"));
}

int cmd_webhook_create(struct cli *c)
{
    json_t *body = json_pack("{s:s, s:o*}", "url", c->operands[0], "types",
                             types_of(cli_value(c, "type")));

    if (!body)
        return cli_usage(c, "the address is not text that JSON can hold");
    return show_posted(c, "/cay/v1/webhooks", body, print_secret);
}

/* -- lists ------------------------------------------------------------------------------------- */

static void types_cell(struct table *t, const json_t *list)
{
    char text[256] = "";
    size_t i, used = 0;
    const json_t *item;

    json_array_foreach (list, i, item)
        if (used < sizeof(text))
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", i ? "," : "",
                                     json_string_value(item));
    table_cell(t, "%s", text);
}

static void print_webhooks(const json_t *all)
{
    static const char *const heads[] = {"WEBHOOK", "WAITING", "DEAD",      "DELIVERED",
                                        "URL",     "TYPES",   "LAST ERROR"};
    struct table *t = table_new(heads, ARRAY_SIZE(heads));
    const json_t *item;
    size_t i;

    json_array_foreach (all, i, item) {
        static const char *const counts[] = {"waiting", "dead", "delivered"};

        table_cell(t, "%s", cli_text(item, "id"));
        for (size_t k = 0; k < ARRAY_SIZE(counts); k++)
            table_cell(t, "%lld", (long long)json_integer_value(json_object_get(item, counts[k])));
        table_cell(t, "%s", cli_text(item, "url"));
        types_cell(t, json_object_get(item, "types"));
        table_cell(t, "%s", cli_text(item, "lastError"));
    }
    table_print(t, stdout);
    table_free(t);
}

int cmd_webhook_ls(struct cli *c)
{
    return show_answer(c, "/cay/v1/webhooks", print_webhooks);
}

static void print_deliveries(const json_t *all)
{
    static const char *const heads[] = {"DELIVERY", "TYPE", "STATE",     "ATTEMPTS",
                                        "MADE",     "DUE",  "LAST ERROR"};
    struct table *t = table_new(heads, ARRAY_SIZE(heads));
    const json_t *item;
    size_t i;

    json_array_foreach (all, i, item) {
        table_cell(t, "%lld", (long long)json_integer_value(json_object_get(item, "id")));
        table_cell(t, "%s", cli_text(item, "type"));
        table_cell(t, "%s", cli_text(item, "state"));
        table_cell(t, "%d", (int)json_integer_value(json_object_get(item, "attempts")));
        table_cell(t, "%.19s", cli_text(item, "madeAt"));
        table_cell(t, "%.19s", cli_text(item, "dueAt"));
        table_cell(t, "%s", cli_text(item, "lastError"));
    }
    table_print(t, stdout);
    table_free(t);
}

/* The path of a call about the webhook that the operand names. False: a usage error was said. */
static bool path_of(struct cli *c, const char *tail, char out[static PATH_SIZE])
{
    if (!cli_is_plain_name(c->operands[0])) {
        cli_usage(c, "\"%s\" is not the id of a webhook; `cay webhook ls` shows them",
                  c->operands[0]);
        return false;
    }
    (void)snprintf(out, PATH_SIZE, "/cay/v1/webhooks/%s%s", c->operands[0], tail);
    return true;
}

int cmd_webhook_deliveries(struct cli *c)
{
    char path[PATH_SIZE];

    return path_of(c, "/deliveries", path) ? show_answer(c, path, print_deliveries) : CLI_USAGE;
}

/* -- changes ----------------------------------------------------------------------------------- */

static int call(struct cli *c, const char *method, const char *tail, json_t **answer)
{
    struct err e = {.code = ERR_OK};
    char path[PATH_SIZE];
    struct api a;

    if (!path_of(c, tail, path))
        return CLI_USAGE;
    if (api_open(&a, c, &e) == ERR_OK) {
        (void)api_call(&a, method, path, NULL, answer, &e);
        api_close(&a);
    }
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}

/* Nothing is removed where one of them is no id. */
static bool are_ids(struct cli *c)
{
    for (int i = 0; i < c->operand_count; i++)
        if (!cli_is_plain_name(c->operands[i])) {
            cli_usage(c, "\"%s\" is not the id of a webhook; `cay webhook ls` shows them",
                      c->operands[i]);
            return false;
        }
    return true;
}

/* Of one it is the text that it was before there could be several. */
static void print_removed(const struct cli *c, const json_t *removed)
{
    if (c->operand_count > 1)
        cli_print_json(json_pack("{s:O}", "removed", removed));
    else if (json_array_size(removed) == 1)
        cli_print_json(json_pack("{s:O}", "removed", json_array_get(removed, 0)));
}

int cmd_webhook_rm(struct cli *c)
{
    struct err e = {.code = ERR_OK};
    json_t *removed = json_array();
    int status = CLI_OK;
    char path[PATH_SIZE];
    struct api a;

    if (!are_ids(c)) {
        json_decref(removed);
        return CLI_USAGE;
    }
    if (api_open(&a, c, &e) != ERR_OK) {
        json_decref(removed);
        return cli_fail(c, &e);
    }
    for (int i = 0; i < c->operand_count; i++) {
        e.code = ERR_OK;
        (void)snprintf(path, sizeof(path), "/cay/v1/webhooks/%s", c->operands[i]);
        if (api_call(&a, "DELETE", path, NULL, NULL, &e) == ERR_OK) {
            json_array_append_new(removed, json_string(c->operands[i]));
            continue;
        }
        status = CLI_FAILED;
        cli_print_error(&e);
    }
    api_close(&a);
    if (c->json)
        print_removed(c, removed);
    json_decref(removed);
    return status;
}

int cmd_webhook_ping(struct cli *c)
{
    int status = call(c, "POST", "/ping", NULL);

    if (status == CLI_OK)
        cli_note(c, "it is sent; `cay webhook ls` shows what came of it");
    return status;
}

int cmd_webhook_retry(struct cli *c)
{
    json_t *answer = NULL;
    int status = call(c, "POST", "/retry", &answer);

    if (status == CLI_OK && c->json)
        cli_print_json(json_incref(answer));
    else if (status == CLI_OK)
        printf("%lld\n", (long long)json_integer_value(json_object_get(answer, "deliveries")));
    json_decref(answer);
    return status;
}
