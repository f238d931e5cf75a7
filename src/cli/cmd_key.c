/* key create|ls|revoke. */
#include "cli/commands.h"

#include <string.h>

static void print_key(const struct cli *c, const json_t *answer)
{
    puts(cli_text(answer, "key"));
}

int cmd_key_create(struct cli *c)
{
    const char *tenant = cli_value(c, "tenant"), *label = cli_value(c, "label"),
               *role = cli_value(c, "role");
    json_t *body = json_object();

    if (tenant)
        json_object_set_new(body, "tenant", json_string(tenant));
    if (role)
        json_object_set_new(body, "role", json_string(role));
    json_object_set_new(body, "label", json_string(label ? label : ""));
    return show_posted(c, "/cay/v1/keys", body, print_key);
}

static void print_keys(const json_t *all)
{
    static const char *const heads[] = {"KEY", "TENANT", "ROLE", "MADE", "LABEL"};
    struct table *t = table_new(heads, ARRAY_SIZE(heads));
    json_t *item;
    size_t i;

    json_array_foreach (all, i, item) {
        const bool current = json_is_true(json_object_get(item, "current"));

        table_cell(t, "%s", cli_text(item, "id"));
        table_cell(t, "%s", cli_text(item, "tenant"));
        table_cell(t, "%s", cli_text(item, "role"));
        table_cell(t, "%.16s", cli_text(item, "madeAt"));
        table_cell(t, "%s%s", cli_text(item, "label"), current ? " (this one)" : "");
    }
    table_print(t, stdout);
    table_free(t);
}

int cmd_key_ls(struct cli *c)
{
    const char *tenant = cli_value(c, "tenant");
    char path[128];

    if (tenant && !cli_is_plain_name(tenant))
        return cli_usage(c, "\"%s\" is not the name of a tenant", tenant);
    snprintf(path, sizeof(path), "/cay/v1/keys%s%s", tenant ? "?tenant=" : "",
             tenant ? tenant : "");
    return show_answer(c, path, print_keys);
}

int cmd_key_revoke(struct cli *c)
{
    struct err e = {.code = ERR_OK};
    char path[128];
    struct api a;

    for (int i = 0; i < c->operand_count; i++)
        if (!cli_is_plain_name(c->operands[i]))
            return cli_usage(c, "\"%s\" is not the id of a key; `cay key ls` shows them",
                             c->operands[i]);
    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    for (int i = 0; i < c->operand_count && e.code == ERR_OK; i++) {
        snprintf(path, sizeof(path), "/cay/v1/keys/%s", c->operands[i]);
        if (api_call(&a, "DELETE", path, NULL, NULL, &e) == ERR_OK && c->json)
            cli_print_json(json_pack("{s:s}", "revoked", c->operands[i]));
    }
    api_close(&a);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}
