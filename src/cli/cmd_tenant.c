/* tenant ls|ceiling. */
#include "cli/commands.h"
#include "cli/terminal.h"

/* In one line of a table: a preset's name, or how many rules. */
static void add_ceiling(struct table *t, const json_t *ceiling)
{
    size_t rules = json_array_size(json_object_get(ceiling, "rules"));
    const char *fallback = json_string_value(json_object_get(ceiling, "default"));

    if (!json_is_object(ceiling))
        table_cell(t, "-");
    else if (rules == 0)
        table_cell(t, "%s", fallback ? fallback : "deny");
    else
        table_cell(t, "%zu rule%s, then %s", rules, rules == 1 ? "" : "s",
                   fallback ? fallback : "deny");
}

static void print_tenants(const json_t *all)
{
    static const char *const heads[] = {"TENANT", "KEYS", "MADE", "CEILING"};
    struct table *t = table_new(heads, ARRAY_SIZE(heads));
    const json_t *item;
    size_t i;

    json_array_foreach (all, i, item) {
        const char *name = json_string_value(json_object_get(item, "name")),
                   *made = json_string_value(json_object_get(item, "madeAt"));

        table_cell(t, "%s", name ? name : "");
        table_cell(t, "%lld", (long long)json_integer_value(json_object_get(item, "keys")));
        table_cell(t, "%.16s", made ? made : "");
        add_ceiling(t, json_object_get(item, "ceiling"));
    }
    table_print(t, stdout);
    table_free(t);
}

int cmd_tenant_ls(struct cli *c)
{
    return show_answer(c, "/cay/v1/tenants", print_tenants);
}

static enum err_code show(struct cli *c, struct api *a, const char *path, struct err *e)
{
    json_t *ceiling = NULL;

    if (api_call(a, "GET", path, NULL, &ceiling, e) != ERR_OK)
        return e->code;
    if (c->json) {
        cli_print_json(json_incref(ceiling));
    } else {
        json_dumpf(ceiling, stdout, JSON_INDENT(2) | terminal_json_flags(stdout));
        putchar('\n');
    }
    json_decref(ceiling);
    return ERR_OK;
}

int cmd_tenant_ceiling(struct cli *c)
{
    const char *tenant = c->operands[0], *given = c->operand_count > 1 ? c->operands[1] : NULL;
    const bool remove = cli_flag(c, "remove");
    struct err e = {.code = ERR_OK};
    json_t *policy = NULL;
    char path[128];
    struct api a;

    if (!cli_is_plain_name(tenant))
        return cli_usage(c, "\"%s\" is not the name of a tenant", tenant);
    if (given && remove)
        return cli_usage(c, "give a policy, or --remove");
    if (given && policy_from(given, &policy, &e) != ERR_OK)
        return cli_fail(c, &e);
    snprintf(path, sizeof(path), "/cay/v1/tenants/%s/ceiling", tenant);
    if (api_open(&a, c, &e) == ERR_OK) {
        if (!given && !remove)
            show(c, &a, path, &e);
        else if (api_call(&a, remove ? "DELETE" : "PUT", path, policy, NULL, &e) == ERR_OK &&
                 c->json)
            cli_print_json(json_pack("{s:s}", "tenant", tenant));
        api_close(&a);
    }
    json_decref(policy);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}
