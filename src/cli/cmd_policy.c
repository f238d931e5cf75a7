/* policy show|set|explain, denials; and reading a policy for create and run. */
#include "cli/commands.h"
#include "cli/terminal.h"
#include "policy/policy.h"

#include <errno.h>
#include <string.h>

#define MATCHES_MAX 64

/* -- reading ------------------------------------------------------------------------------------ */

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
        err_hint(e, "a policy is a file, or one of public, deny and allow");
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

/* -- show, set ---------------------------------------------------------------------------------- */

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
    json_t *policy = NULL;
    char path[128];
    struct api a;

    if (policy_from(c->operands[1], &policy, &e) != ERR_OK)
        return cli_fail(c, &e);
    if (api_open(&a, c, &e) == ERR_OK) {
        if (api_sandbox_open(&a, c->operands[0], &s, &e) == ERR_OK) {
            snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s/policy", s.id);
            if (api_call(&a, "PUT", path, policy, NULL, &e) == ERR_OK && c->json)
                cli_print_json(json_pack("{s:s}", "sandboxID", s.id));
        }
        api_close(&a);
    }
    json_decref(policy);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}

/* -- explain ------------------------------------------------------------------------------------ */

/* HOST, HOST:PORT, ADDRESS, [ADDRESS]:PORT */
struct subject {
    char name[POLICY_NAME_MAX + 1];
    struct policy_address address;
    bool by_address;
    uint16_t port;
    const char *method, *path;
};

static int split(const char *text, struct subject *s)
{
    const char *colon = strrchr(text, ':'), *bracket = strchr(text, ']');
    char host[POLICY_NAME_MAX + 4], *end = NULL;
    size_t n = strlen(text);
    long port = 443;

    if (colon && (bracket ? colon > bracket : strchr(text, ':') == colon)) {
        port = strtol(colon + 1, &end, 10);
        if (*end || port < 1 || port > 65535)
            return -EINVAL;
        n = (size_t)(colon - text);
    }
    if (n == 0 || n >= sizeof(host))
        return -EINVAL;
    memcpy(host, text, n);
    host[n] = '\0';
    s->port = (uint16_t)port;
    s->by_address = policy_address_parse(host, &s->address) == 0;
    return s->by_address ? 0 : policy_name_normalize(host, s->name);
}

static struct policy_verdict ask(const struct policy *p, const struct subject *s)
{
    const char *name = s->by_address ? NULL : s->name;
    const struct policy_address *a = s->by_address ? &s->address : NULL;

    if (s->method)
        return policy_request(p, name, a, s->port, s->method, s->path);
    return a ? policy_address(p, NULL, a, s->port) : policy_name(p, name, s->port);
}

static const char *const verdicts[] = {
    [POLICY_DENY] = "deny", [POLICY_ALLOW] = "allow", [POLICY_INSPECT] = "depends"};

static void describe(const struct policy_verdict *v, char *out, size_t size)
{
    static const char *const sources[] = {
        [POLICY_BY_NEVER] = "never reached", [POLICY_BY_CEILING] = "ceiling",
        [POLICY_BY_RULE] = "rule",           [POLICY_BY_PRESET] = "preset",
        [POLICY_BY_DEFAULT] = "default",     [POLICY_BY_SANDBOX] = "sandbox",
        [POLICY_BY_OWNER] = "owner"};

    if (v->source == POLICY_BY_RULE)
        snprintf(out, size, "rule %d \"%s\"", v->rule, v->name);
    else if (v->source == POLICY_BY_NEVER)
        snprintf(out, size, "%s", sources[v->source]);
    else
        snprintf(out, size, "%s \"%s\"", sources[v->source], v->name);
}

static bool decides(const struct policy_verdict *v, const struct policy_verdict *match)
{
    return v->source == match->source && v->rule == match->rule;
}

static void print_explained(const struct policy_verdict *v, const char *sentence,
                            const struct policy_verdict *matches, size_t n, bool by_name)
{
    bool conflict = false, depends = false;
    char what[128];

    puts(sentence);
    if (v->credential)
        printf("with the credential %s\n", v->credential);
    for (size_t i = 0; i < n; i++) {
        describe(&matches[i], what, sizeof(what));
        printf("%s %-7s %s\n", decides(v, &matches[i]) ? "=>" : "  ", verdicts[matches[i].action],
               what);
        conflict |= matches[i].source == POLICY_BY_RULE && matches[i].action != POLICY_INSPECT &&
                    v->action != POLICY_INSPECT && matches[i].action != v->action;
        depends |= matches[i].action == POLICY_INSPECT;
    }
    if (conflict)
        puts("Rules are in conflict: the first one that matches decides.");
    if (by_name && v->action != POLICY_DENY)
        puts("Its addresses are asked about when it is dialled: a private one needs a rule with "
             "it, or the "
             "default \"allow\".");
    if (depends)
        puts("Rules that depend need the address, or the request: name a METHOD and a PATH.");
}

static json_t *explained_json(const struct policy_verdict *v, const char *sentence,
                              const struct policy_verdict *matches, size_t n)
{
    json_t *list = json_array();
    char what[128];

    for (size_t i = 0; i < n; i++) {
        describe(&matches[i], what, sizeof(what));
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:b}", "verdict", verdicts[matches[i].action],
                                        "by", what, "decides", decides(v, &matches[i])));
    }
    return json_pack("{s:s, s:s, s:s?, s:o}", "verdict", verdicts[v->action], "text", sentence,
                     "credential", v->credential, "matches", list);
}

static void explain(const struct cli *c, const struct policy *p, const struct subject *s)
{
    struct policy_verdict matches[MATCHES_MAX], v = ask(p, s);
    size_t n = policy_matches(p, s->by_address ? NULL : s->name, s->by_address ? &s->address : NULL,
                              s->port, s->method, s->path, matches, MATCHES_MAX);
    char sentence[POLICY_REASON_SIZE];

    policy_explain(p, &v, s->by_address ? NULL : s->name, s->by_address ? &s->address : NULL,
                   s->port, s->method, s->path, sentence);
    n = MIN(n, (size_t)MATCHES_MAX);
    if (c->json)
        cli_print_json(explained_json(&v, sentence, matches, n));
    else
        print_explained(&v, sentence, matches, n, !s->by_address);
}

static enum err_code policy_of(struct cli *c, json_t **out, struct err *e)
{
    const char *given = cli_value(c, "policy");
    struct api a;
    enum err_code code;

    if (given)
        return policy_from(given, out, e);
    if (api_open(&a, c, e) != ERR_OK)
        return e->code;
    code = fetch(&a, c->operands[0], out, e);
    api_close(&a);
    return code;
}

int cmd_policy_explain(struct cli *c)
{
    int at = cli_value(c, "policy") ? 0 : 1, left = c->operand_count - at;
    struct subject s = {.port = 0};
    struct err e = {.code = ERR_OK};
    struct policy *p = NULL;
    json_t *json = NULL;

    if (left != 1 && left != 3)
        return cli_usage(c, "policy explain takes a sandbox or --policy, then HOST[:PORT] and "
                            "perhaps METHOD PATH");
    if (split(c->operands[at], &s) < 0)
        return cli_usage(c, "\"%s\" is not a host name or address, with :PORT or without",
                         c->operands[at]);
    s.method = left == 3 ? c->operands[at + 1] : NULL;
    s.path = left == 3 ? c->operands[at + 2] : NULL;
    if (s.path && s.path[0] != '/')
        return cli_usage(c, "a path begins with /");
    if (policy_of(c, &json, &e) == ERR_OK && policy_new(json, &p, &e) == ERR_OK)
        explain(c, p, &s);
    policy_free(p);
    json_decref(json);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}

/* -- denials ------------------------------------------------------------------------------------ */

static void print_denials(const json_t *list)
{
    static const char *const heads[] = {"TIME", "WHERE", "REQUEST", "RULE", "WHY"};
    struct table *t = table_new(heads, ARRAY_SIZE(heads));
    json_t *d;
    size_t i;

    json_array_foreach (list, i, d) {
        table_cell(t, "%.19s", cli_text(d, "time"));
        table_cell(t, "%s:%d", cli_text(d, "name"),
                   (int)json_integer_value(json_object_get(d, "port")));
        table_cell(t, "%s %s", cli_text(d, "method"), cli_text(d, "path"));
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
