/* policy explain: what will happen to a connection or a request. Of a sandbox cay-egress says it,
 * with all that counts; of a file alone the same evaluation (policy/explanation.h) is made here. */
#include "cli/commands.h"
#include "cli/terminal.h"
#include "policy/explanation.h"

#include <string.h>

/* -- shown ------------------------------------------------------------------------------------- */

/* Names and paths in it are others'. */
static void put_line(const char *before, const char *text)
{
    terminal_put(stdout, before, text);
    putchar('\n');
}

static void put_verdict(const char *before, const json_t *o)
{
    char verdict[16];

    snprintf(verdict, sizeof(verdict), "%-7s ", cli_text(o, "verdict"));
    terminal_put(stdout, before, verdict);
    put_line("", cli_text(o, "by"));
}

static void print_explained(const json_t *o)
{
    const json_t *item;
    bool shown = false;
    size_t i;

    put_line("", cli_text(o, "text"));
    json_array_foreach (json_object_get(o, "notes"), i, item)
        put_line("", json_string_value(item) ? json_string_value(item) : "");
    json_array_foreach (json_object_get(o, "matches"), i, item) {
        bool this = json_is_true(json_object_get(item, "decides"));

        put_verdict(this ? "=> " : "   ", item);
        shown |= this;
    }
    if (!shown) /* another policy's word, or that of its way */
        put_verdict("=> ", o);
    if (json_is_true(json_object_get(o, "conflict")))
        puts("Rules are in conflict: the first one that matches decides.");
}

/* -- of a sandbox ------------------------------------------------------------------------------ */

/* The arguments of the command line. */
struct requested {
    const char *sandbox, *to, *method, *path, *address, *said;
    json_t *policy; /* of --policy, or NULL */
};

static enum err_code query_server(struct cli *c, const struct requested *a, json_t **out,
                                  struct err *e)
{
    json_t *body = json_pack("{s:s, s:s*, s:s*, s:s*, s:s*, s:O*}", "to", a->to, "method",
                             a->method, "path", a->path, "address", a->address, "said", a->said,
                             "policy", a->policy);
    struct api_sandbox s;
    char path[128];
    struct api api;

    if (api_open(&api, c, e) == ERR_OK) {
        if (api_sandbox_open(&api, a->sandbox, &s, e) == ERR_OK) {
            snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s/policy/explain", s.id);
            (void)api_call(&api, "POST", path, body, out, e);
        }
        api_close(&api);
    }
    json_decref(body);
    return e->code;
}

/* -- of a file --------------------------------------------------------------------------------- */

static enum err_code query_file(const struct requested *a, struct policy_query *q, json_t **out,
                                struct err *e)
{
    struct policy_stack stack = {.own = NULL};
    struct policy_explanation explanation;
    struct policy *own = NULL;

    if (policy_new(a->policy, &own, e) != ERR_OK)
        return e->code;
    stack.own = own;
    policy_explanation_make(&stack, NULL, q, &explanation);
    *out = policy_explanation_json(&stack, q, &explanation);
    policy_free(own);
    return ERR_OK;
}

/* -- the command ------------------------------------------------------------------------------- */

/* 0, or the usage was said. */
static int take_query(struct cli *c, struct requested *a, struct policy_query *q)
{
    if (policy_query_parse(a->to, q) < 0)
        return cli_usage(c,
                         "\"%s\" is not a host name or address, with :PORT or without; a path and "
                         "its method are arguments of their own",
                         a->to);
    if (a->method && strpbrk(a->method, ".:/"))
        return cli_usage(c, "\"%s\" is no method: the host comes first, then METHOD and PATH",
                         a->method);
    if (a->address && (!q->target.name || policy_address_parse(a->address, &q->target.address) < 0))
        return cli_usage(c, "--address is the IP address that a host's name leads to");
    if (a->said && (q->target.name || policy_name_normalize(a->said, q->said) < 0))
        return cli_usage(c, "--said is the name that a client says to an address (SNI, Host)");
    if (a->path && (a->path[0] != '/' || strchr(a->path, '?')))
        return cli_usage(c,
                         "a path begins with / and ends before its '?': no rule looks at a query");
    q->target.said = a->said ? q->said : NULL;
    q->method = a->method;
    q->path = a->path;
    return CLI_OK;
}

int cmd_policy_explain(struct cli *c)
{
    bool of_sandbox = c->operand_count % 2 == 0;
    int at = of_sandbox ? 1 : 0, left = c->operand_count - at, rc;
    const char *file = cli_value(c, "policy");
    struct requested a = {.address = cli_value(c, "address"), .said = cli_value(c, "said")};
    struct err e = {.code = ERR_OK};
    struct policy_query q;
    json_t *out = NULL;

    if ((left != 1 && left != 3) || (!of_sandbox && !file) ||
        (of_sandbox && strpbrk(c->operands[0], ".:/")))
        return cli_usage(
            c, "policy explain takes a sandbox or --policy, or both, then HOST[:PORT] and "
               "perhaps METHOD PATH");
    a.sandbox = of_sandbox ? c->operands[0] : NULL;
    a.to = c->operands[at];
    a.method = left == 3 ? c->operands[at + 1] : NULL;
    a.path = left == 3 ? c->operands[at + 2] : NULL;
    rc = take_query(c, &a, &q);
    if (rc != CLI_OK)
        return rc;
    if (!file || policy_from(file, &a.policy, &e) == ERR_OK)
        (void)(of_sandbox ? query_server(c, &a, &out, &e) : query_file(&a, &q, &out, &e));
    json_decref(a.policy);
    if (e.code != ERR_OK)
        return cli_fail(c, &e);
    if (c->json)
        cli_print_json(out); /* takes it over */
    else
        print_explained(out);
    if (!c->json)
        json_decref(out);
    return CLI_OK;
}
