/* policy explain: what will happen to a connection or a request, by the evaluation that cay-egress has (policy/stack.h), with
 * the sandbox's policy, the policy limits above it and the bindings of its credentials. */
#include "cli/commands.h"
#include "policy/stack.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define MATCHES_MAX 64
#define NOTES_MAX   6
#define NOTE_SIZE   320

/* Everything that has a say. */
struct given {
    json_t *whole; /* as GET .../policy/stack has it */
    struct policy *own;
    struct policy *limits[POLICY_STACK_LIMITS_MAX];
    const json_t *credentials; /* NULL: not known, there is only a file */
};

/* [http[s]://]HOST, HOST:PORT, ADDRESS, [ADDRESS]:PORT */
struct subject {
    char name[POLICY_NAME_MAX + 1];
    struct policy_target target;
    bool tls;
    const char *method, *path;
};

enum outcome { OUTCOME_DENY, OUTCOME_ALLOW, OUTCOME_DEPENDS, OUTCOME_ASK };

struct explained {
    enum outcome outcome;
    struct policy_verdict v;
    char sentence[POLICY_REASON_SIZE];
    char notes[NOTES_MAX][NOTE_SIZE];
    size_t n_notes;
};

static const char *const outcomes[] = {[OUTCOME_DENY] = "deny",
                                       [OUTCOME_ALLOW] = "allow",
                                       [OUTCOME_DEPENDS] = "depends",
                                       [OUTCOME_ASK] = "ask"};

/* -- what is asked ------------------------------------------------------------------------------ */

static int split(const char *text, struct subject *s)
{
    const char *colon, *bracket;
    char host[POLICY_NAME_MAX + 4], *end = NULL;
    bool plain = strncasecmp(text, "http://", 7) == 0, tls = strncasecmp(text, "https://", 8) == 0;
    long port = plain ? 80 : 443;
    size_t n;

    text += plain ? 7 : tls ? 8 : 0;
    colon = strrchr(text, ':');
    bracket = strchr(text, ']');
    n = strlen(text);
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
    s->target.port = (uint16_t)port;
    s->tls = tls || (!plain && port != 80);
    if (policy_address_parse(host, &s->target.address) == 0)
        return 0;
    s->target.name = s->name;
    return policy_name_normalize(host, s->name);
}

/* -- the outcome -------------------------------------------------------------------------------- */

PRINTF(2, 3) static void note(struct explained *e, const char *fmt, ...)
{
    va_list ap;

    if (e->n_notes == NOTES_MAX)
        return;
    va_start(ap, fmt);
    vsnprintf(e->notes[e->n_notes++], NOTE_SIZE, fmt, ap);
    va_end(ap);
}

static const json_t *find_credential(const struct given *g, const char *name)
{
    const json_t *item;
    size_t i;

    json_array_foreach (g->credentials, i, item)
        if (strcmp(cli_text(item, "name"), name) == 0)
            return item;
    return NULL;
}

static bool flag(const json_t *bind, const char *key)
{
    return json_is_true(json_object_get(bind, key));
}

/* A placeholder is the request's own to carry; any other credential is put on it, or the request is refused. */
static void add_fit(struct explained *e, const char *name, const json_t *bind, enum policy_fit fit)
{
    bool placeholder = strcmp(cli_text(bind, "kind"), "placeholder") == 0,
         required = placeholder && flag(bind, "require");

    if (fit == POLICY_FITS && required)
        note(e, "It has to carry cay-secret:%s, and no other key; else it is refused.", name);
    else if (fit == POLICY_FITS && placeholder)
        note(e, "The credential %s is put in the place of cay-secret:%s.", name, name);
    else if (fit == POLICY_FITS)
        note(e, "It is sent with the credential %s.", name);
    else if (placeholder && !required)
        note(e, "It is refused if it carries cay-secret:%s: the credential %s.", name,
             policy_fit_text(fit));
    else {
        e->outcome = OUTCOME_DENY;
        note(e, "It is refused: the credential %s %s.", name, policy_fit_text(fit));
    }
}

static void add_credential(struct explained *e, const struct given *g, const struct subject *s)
{
    const char *name = e->v.credential;
    const json_t *found = g->credentials ? find_credential(g, name) : NULL,
                 *bind = json_object_get(found, "bind");
    struct policy *bound = NULL;
    struct err why;

    if (!g->credentials) {
        note(e,
             "It is sent with the credential %s where that is bound to this request, else it is "
             "refused; name a sandbox to see which.",
             name);
    } else if (!found) {
        e->outcome = OUTCOME_DENY;
        note(e, "It is refused: the sandbox was not given the credential %s.", name);
    } else if (policy_binding_new(bind, flag(bind, "any_domain"), &bound, &why) != ERR_OK) {
        e->outcome = OUTCOME_DENY;
        note(e, "It is refused: the binding of the credential %s cannot be read: %s.", name,
             why.text);
    } else {
        add_fit(e, name, bind,
                policy_binding_fits(bound, flag(bind, "insecure"), s->target.name, s->target.port,
                                    (struct policy_passage){s->tls, s->target.via_port != 0},
                                    s->method, s->path));
    }
    policy_free(bound);
}

static bool is_unknown(const struct policy_address *a)
{
    return !policy_target_is_resolved(&(struct policy_target){.address = *a});
}

/* As a connection is: the name before anything is asked outside, then its way or its address, then the request. */
static struct policy_verdict evaluate(const struct policy_stack *stack, struct subject *s,
                                      struct explained *e)
{
    const struct policy_reroute *way = policy_stack_reroute(stack, s->target.name);
    struct policy_verdict v = s->target.name ? policy_stack_name(stack, &s->target)
                                             : policy_stack_dial(stack, &s->target);
    char text[INET6_ADDRSTRLEN];

    if (v.action == POLICY_DENY)
        return v;
    if (way) {
        s->target.via = way->to_name ? s->target.address : way->to;
        s->target.via_name = way->to_name;
        s->target.via_unresolved = way->to_name && is_unknown(&s->target.address);
        s->target.via_port = way->port ? way->port : s->target.port;
        s->target.address = (struct policy_address){0};
        policy_address_format(&way->to, text);
        note(e, "It goes to %s port %u instead.", way->to_name ? way->to_name : text,
             s->target.via_port);
    }
    if (way || (s->target.name && policy_target_is_resolved(&s->target)))
        v = policy_stack_dial(stack, &s->target);
    if (v.action == POLICY_DENY || !s->method)
        return v;
    v = policy_stack_request(stack, &s->target, true, s->method, s->path);
    v.asks = false; /* connections are asked about, requests are not */
    return v;
}

static void add_notes(struct explained *e, const struct given *g, const struct subject *s)
{
    const struct policy_target *t = &s->target;

    if (e->outcome == OUTCOME_ASK)
        note(e, "Nothing allows it, and nothing denies it: it waits for its owner's answer, and is "
                "refused "
                "without one.");
    if (e->outcome == OUTCOME_DENY)
        return;
    if (e->v.credential)
        add_credential(e, g, s);
    if (t->via_unresolved || (t->name && !t->via_port && is_unknown(&t->address)))
        note(e,
             "Its addresses are asked about when it is dialled (--address=ADDRESS): a private one "
             "needs a rule with it, or the default \"allow\".");
    if (e->outcome == OUTCOME_DEPENDS)
        note(e, "It is decided by the request, so that only HTTP passes, and TLS where the client "
                "trusts "
                "the sandbox's certificate: name a METHOD and a PATH.");
}

static void explain(const struct given *g, struct subject *s, struct explained *e)
{
    struct policy_stack stack = {.own = g->own};
    struct policy_verdict *v = &e->v;
    const struct policy_target *t = &s->target;
    bool known = !t->name || policy_target_is_resolved(t);

    for (size_t i = 0; i < POLICY_STACK_LIMITS_MAX; i++)
        stack.limits[i] = g->limits[i];
    *v = evaluate(&stack, s, e);
    e->outcome = v->action == POLICY_ALLOW     ? OUTCOME_ALLOW
                 : v->action == POLICY_INSPECT ? OUTCOME_DEPENDS
                 : v->asks                     ? OUTCOME_ASK
                                               : OUTCOME_DENY;
    policy_explain(v->by ? v->by : g->own, v, t->name, known && !t->via_port ? &t->address : NULL,
                   t->port, s->method, s->path, e->sentence);
    add_notes(e, g, s);
}

/* -- shown -------------------------------------------------------------------------------------- */

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
    return v->source == match->source && v->rule == match->rule && v->by == match->by;
}

static void print_explained(const struct explained *e, const struct policy_verdict *matches,
                            size_t n)
{
    bool conflict = false, shown = false;
    char what[128];

    puts(e->sentence);
    for (size_t i = 0; i < e->n_notes; i++)
        puts(e->notes[i]);
    for (size_t i = 0; i < n; i++) {
        bool this = decides(&e->v, &matches[i]);

        describe(&matches[i], what, sizeof(what));
        printf("%s %-7s %s\n", this ? "=>" : "  ", verdicts[matches[i].action], what);
        shown |= this;
        conflict |= matches[i].source == POLICY_BY_RULE && matches[i].action != POLICY_INSPECT &&
                    e->v.action != POLICY_INSPECT && matches[i].action != e->v.action;
    }
    if (!shown) { /* another policy's word, or that of its way */
        describe(&e->v, what, sizeof(what));
        printf("=> %-7s %s\n", outcomes[e->outcome], what);
    }
    if (conflict)
        puts("Rules are in conflict: the first one that matches decides.");
}

static json_t *explained_json(const struct explained *e, const struct policy_verdict *matches,
                              size_t n)
{
    json_t *list = json_array(), *notes = json_array();
    char what[128];

    for (size_t i = 0; i < n; i++) {
        describe(&matches[i], what, sizeof(what));
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:b}", "verdict", verdicts[matches[i].action],
                                        "by", what, "decides", decides(&e->v, &matches[i])));
    }
    for (size_t i = 0; i < e->n_notes; i++)
        json_array_append_new(notes, json_string(e->notes[i]));
    return json_pack("{s:s, s:b, s:s, s:o, s:s?, s:o}", "verdict", outcomes[e->outcome], "warned",
                     e->v.warned, "text", e->sentence, "notes", notes, "credential",
                     e->v.credential, "matches", list);
}

static void show(const struct cli *c, const struct given *g, struct subject *s)
{
    struct policy_verdict matches[MATCHES_MAX];
    struct explained e = {.outcome = OUTCOME_DENY};
    const struct policy_target *t = &s->target;
    size_t n;

    explain(g, s, &e);
    n = policy_matches(g->own, t->name,
                       !t->name || policy_target_is_resolved(t) ? &t->address : NULL, t->port,
                       s->method, s->path, matches, MATCHES_MAX);
    n = MIN(n, (size_t)MATCHES_MAX);
    if (c->json)
        cli_print_json(explained_json(&e, matches, n));
    else
        print_explained(&e, matches, n);
}

/* -- the command -------------------------------------------------------------------------------- */

static enum err_code fetch(struct cli *c, const char *id, json_t **out, struct err *e)
{
    struct api_sandbox s;
    char path[128];
    struct api a;

    if (api_open(&a, c, e) != ERR_OK)
        return e->code;
    if (api_sandbox_open(&a, id, &s, e) == ERR_OK) {
        snprintf(path, sizeof(path), "/cay/v1/sandboxes/%s/policy/stack", s.id);
        (void)api_call(&a, "GET", path, NULL, out, e);
    }
    api_close(&a);
    return e->code;
}

/* The sandbox's, and in its place the policy of the file. */
static enum err_code read_given(struct cli *c, const char *sandbox, struct given *g, struct err *e)
{
    const char *file = cli_value(c, "policy");
    const json_t *limits;
    json_t *own = NULL;

    if (sandbox && fetch(c, sandbox, &g->whole, e) != ERR_OK)
        return e->code;
    if (file && policy_from(file, &own, e) != ERR_OK)
        return e->code;
    if (policy_new(own ? own : json_object_get(g->whole, "policy"), &g->own, e) == ERR_OK) {
        g->credentials = json_object_get(g->whole, "credentials");
        limits = json_object_get(g->whole, "limits");
        for (size_t i = 0; i < json_array_size(limits) && e->code == ERR_OK; i++) {
            if (i == POLICY_STACK_LIMITS_MAX)
                err_set(e, ERR_INTERNAL, "the server has more policy limits than are known here");
            else
                (void)policy_new(json_array_get(limits, i), &g->limits[i], e);
        }
    }
    json_decref(own);
    return e->code;
}

static void clear_given(struct given *g)
{
    policy_free(g->own);
    for (size_t i = 0; i < POLICY_STACK_LIMITS_MAX; i++)
        policy_free(g->limits[i]);
    json_decref(g->whole);
}

int cmd_policy_explain(struct cli *c)
{
    bool of_sandbox = c->operand_count % 2 == 0;
    int at = of_sandbox ? 1 : 0, left = c->operand_count - at;
    const char *address = cli_value(c, "address");
    struct subject s = {.target = {.port = 0}};
    struct given g = {.whole = NULL};
    struct err e = {.code = ERR_OK};

    if ((left != 1 && left != 3) || (!of_sandbox && !cli_value(c, "policy")) ||
        (of_sandbox && strpbrk(c->operands[0], ".:/")))
        return cli_usage(
            c, "policy explain takes a sandbox or --policy, or both, then HOST[:PORT] and "
               "perhaps METHOD PATH");
    if (split(c->operands[at], &s) < 0)
        return cli_usage(c, "\"%s\" is not a host name or address, with :PORT or without",
                         c->operands[at]);
    if (address && (!s.target.name || policy_address_parse(address, &s.target.address) < 0))
        return cli_usage(c, "--address is the IP address that a host's name leads to");
    s.method = left == 3 ? c->operands[at + 1] : NULL;
    s.path = left == 3 ? c->operands[at + 2] : NULL;
    if (s.path && s.path[0] != '/')
        return cli_usage(c, "a path begins with /");
    if (read_given(c, of_sandbox ? c->operands[0] : NULL, &g, &e) == ERR_OK)
        show(c, &g, &s);
    clear_given(&g);
    return e.code == ERR_OK ? CLI_OK : cli_fail(c, &e);
}
