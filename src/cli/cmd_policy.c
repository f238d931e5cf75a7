/* `policy show|set|check` and `denials`, and the reading of a policy for create and run
 * (policy_from). A policy is checked here first, by the same parser as the server's, so that a
 * mistake is reported with its location also without a server; warnings about rules without
 * effect come from the server's answer. `set` replaces the whole policy. */

#include "cli/commands.h"
#include "cli/terminal.h"
#include "policy/policy.h"

#include <errno.h>
#include <string.h>

/* -- reading ----------------------------------------------------------------------------------- */

static enum err_code load(const char *file, json_t **out, struct err *e)
{
    json_error_t why;
    bool standard = strcmp(file, "-") == 0;
    FILE *f = standard ? stdin : fopen(file, "re");
    json_t *json;

    if (!f)
        return err_set_sys(e, ERR_NOT_FOUND, errno, "the policy %s", file);
    json = json_loadf(f, JSON_REJECT_DUPLICATES, &why);
    if (!standard)
        fclose(f);
    if (!json)
        return err_set(e, ERR_INVALID, "%s:%d:%d: %s", file, why.line, why.column, why.text);
    *out = json;
    return ERR_OK;
}

/* Checked here too, so that a mistake is told with its place also without a server. */
static enum err_code check(const char *what, const json_t *json, struct err *e)
{
    struct policy *p = NULL;
    struct err inner = {0};

    if (policy_new(json, &p, &inner) != ERR_OK)
        return err_set(e, ERR_INVALID, "%s: %s", what, inner.text);
    policy_free(p);
    return ERR_OK;
}

enum err_code policy_from(const char *given, json_t **out, struct err *e)
{
    json_t *json = NULL;

    if (policy_preset(given)) {
        *out = json_pack("{s:s}", "default", given);
        return ERR_OK;
    }
    if (load(given, &json, e) != ERR_OK) {
        err_hint(e, "a policy is a JSON file (docs/policy.md), or one of public, deny and allow");
        return e->code;
    }
    if (check(given, json, e) != ERR_OK) {
        json_decref(json);
        return e->code;
    }
    *out = json;
    return ERR_OK;
}

static enum err_code fetch(struct api *a, const char *id, json_t **out, struct err *e)
{
    struct api_sandbox s;
    char path[128];

    if (api_sandbox_open(a, id, &s, e) != ERR_OK)
        return e->code;
    snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s/policy", s.id);
    return api_call(a, "GET", path, NULL, out, e);
}

void policy_say_warnings(const struct cli *c, const json_t *answer)
{
    const json_t *warnings = json_object_get(answer, "warnings"), *item;
    size_t i;

    json_array_foreach (warnings, i, item)
        cli_note(c, "cay: warning: the policy's %s", json_string_value(item));
}

/* -- show, set --------------------------------------------------------------------------------- */

int cmd_policy_show(struct cli *c)
{
    struct err e = {.code = ERR_OK};
    json_t *policy = NULL;
    struct api a;

    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (fetch(&a, c->operands[0], &policy, &e) == ERR_OK) {
        if (c->json) {
            cli_print_json(json_incref(policy));
        } else {
            json_dumpf(policy, stdout, JSON_INDENT(2) | terminal_json_flags(stdout));
            putchar('\n');
        }
    }
    json_decref(policy);
    api_close(&a);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}

int cmd_policy_set(struct cli *c)
{
    struct err e = {.code = ERR_OK};
    struct api_sandbox s;
    json_t *policy = NULL, *answer = NULL;
    char path[128];
    struct api a;

    if (policy_from(c->operands[1], &policy, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (api_open(&a, c, &e) == ERR_OK) {
        if (api_sandbox_open(&a, c->operands[0], &s, &e) == ERR_OK) {
            snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s/policy", s.id);
            if (api_call(&a, "PUT", path, policy, &answer, &e) == ERR_OK && c->json)
                cli_print_json(json_pack("{s:s, s:O*}", "sandboxID", s.id, "warnings",
                                         json_object_get(answer, "warnings")));
            else
                policy_say_warnings(c, answer);
        }
        api_close(&a);
    }
    json_decref(policy);
    json_decref(answer);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}

/* -- check ------------------------------------------------------------------------------------- */

int cmd_policy_check(struct cli *c)
{
    json_t *policy = NULL, *answer = NULL;
    struct err e = {.code = ERR_OK};
    struct api a;
    size_t n;

    if (policy_from(c->operands[0], &policy, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (api_open(&a, c, &e) == ERR_OK) {
        (void)api_call(&a, "POST", "/cay/v1/policies/check", policy, &answer, &e);
        api_close(&a);
    }
    json_decref(policy);
    if (e.code != ERR_OK)
        return cli_fail(c, &e);
    n = json_array_size(json_object_get(answer, "warnings"));
    if (c->json)
        cli_print_json(json_incref(answer));
    else
        policy_say_warnings(c, answer);
    json_decref(answer);
    return n == 0 ? CLI_OK : CLI_FAILED;
}

/* -- denials ----------------------------------------------------------------------------------- */

static void number_cell(struct table *t, const json_t *d, const char *key, const char *without)
{
    json_int_t n = json_integer_value(json_object_get(d, key));

    if (n > 0)
        table_cell(t, "%lld", (long long)n);
    else
        table_cell(t, "%s", without);
}

static void print_denials(const json_t *list)
{
    static const char *const heads[] = {"TIME",  "WHERE", "REQUEST", "COMMAND",
                                        "TIMES", "RULE",  "WHY"};
    struct table *t = table_new(heads, ARRAY_SIZE(heads));
    json_t *d;
    size_t i;

    json_array_foreach (list, i, d) {
        table_cell(t, "%.19s", cli_text(d, "time"));
        table_cell(t, "%s:%d", cli_text(d, "name"),
                   (int)json_integer_value(json_object_get(d, "port")));
        table_cell(t, "%s %s", cli_text(d, "method"), cli_text(d, "path"));
        number_cell(t, d, "command", "");
        number_cell(t, d, "count", "1");
        table_cell(t, "%s", cli_text(d, "rule"));
        table_cell(t, "%s", cli_text(d, "reason"));
    }
    table_print(t, stdout);
    table_free(t);
}

int cmd_denials(struct cli *c)
{
    struct err e = {.code = ERR_OK};
    struct api_sandbox s;
    json_t *answer = NULL;
    char path[128];
    struct api a;

    if (api_open(&a, c, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (api_sandbox_open(&a, c->operands[0], &s, &e) == ERR_OK) {
        snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s/denials", s.id);
        if (api_call(&a, "GET", path, NULL, &answer, &e) == ERR_OK) {
            if (c->json)
                cli_print_json(json_incref(json_object_get(answer, "denials")));
            else
                print_denials(json_object_get(answer, "denials"));
        }
    }
    json_decref(answer);
    api_close(&a);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}
