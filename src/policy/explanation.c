/* The outcome of a connection or request, and its reason: see explanation.h. The steps of a
 * connection are asked in their order (name, address, reroute, request, credential), each of all
 * layers, until one refuses or all let it pass; of a layer above the tenant's own only the rule is
 * named. Pure: called by cay-egress for a sandbox and by the command line for a file. */
#include "policy/explanation.h"

#include "base/port.h"
#include "base/util.h"
#include "policy/near.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MATCHES_MAX 64

/* -- what is asked ----------------------------------------------------------------------------- */

/* The port behind the last colon, if it is not part of an IPv6 address; *n: where the host ends. 0
 * or -EINVAL. */
static int split_port(const char *text, size_t *n, uint16_t *port)
{
    const char *colon = strrchr(text, ':'), *bracket = strchr(text, ']');

    *n = strlen(text);
    if (!colon || !(bracket ? colon > bracket : strchr(text, ':') == colon))
        return 0;
    *port = port_from_text(colon + 1);
    *n = (size_t)(colon - text);
    return *port ? 0 : -EINVAL;
}

int policy_query_parse(const char *text, struct policy_query *q)
{
    bool plain = strncasecmp(text, "http://", 7) == 0, tls = strncasecmp(text, "https://", 8) == 0;
    char host[POLICY_NAME_MAX + 4];
    size_t n;

    *q = (struct policy_query){.target.port = plain ? 80 : 443};
    text += plain ? 7 : tls ? 8 : 0;
    if (split_port(text, &n, &q->target.port) < 0 || n == 0 || n >= sizeof(host))
        return -EINVAL;
    memcpy(host, text, n);
    host[n] = '\0';
    q->tls = tls || (!plain && q->target.port != 80);
    if (policy_address_parse(host, &q->target.address) == 0)
        return 0;
    q->target.name = q->name;
    return policy_name_normalize(host, q->name);
}

/* -- the outcome ------------------------------------------------------------------------------- */

static PRINTF(2, 0) void add_note(struct policy_explanation *e, const char *fmt, va_list ap)
{
    if (e->n_notes < POLICY_NOTES_MAX)
        vsnprintf(e->notes[e->n_notes++], POLICY_NOTE_SIZE, fmt, ap);
}

void policy_explanation_note(struct policy_explanation *e, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    add_note(e, fmt, ap);
    va_end(ap);
}

/* Replaces an outcome "allowed", whose notes do not apply any more. */
static void take_refusal(struct policy_explanation *e, const char *reason)
{
    char allowed[POLICY_REASON_SIZE];

    snprintf(allowed, sizeof(allowed), "%s", e->sentence + strlen(e->subject) + strlen(": "));
    snprintf(e->sentence, sizeof(e->sentence), "%s: denied, %s", e->subject, reason);
    e->outcome = POLICY_OUTCOME_DENY;
    e->n_notes = e->n_placeholders = 0;
    policy_explanation_note(e, "By policy alone: %s.", allowed);
}

void policy_explanation_refuse(struct policy_explanation *e, const char *by, const char *which,
                               const char *fmt, ...)
{
    char reason[POLICY_NOTE_SIZE];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(reason, sizeof(reason), fmt, ap);
    va_end(ap);
    if (e->refused_by[0]) {
        policy_explanation_note(e, "It is denied for this, too: %s.", reason);
        return;
    }
    take_refusal(e, reason);
    if (which)
        snprintf(e->refused_by, sizeof(e->refused_by), "%s \"%s\"", by, which);
    else
        snprintf(e->refused_by, sizeof(e->refused_by), "%s", by);
}

static const char *text_of(const json_t *o, const char *key)
{
    const char *text = json_string_value(json_object_get(o, key));

    return text ? text : "";
}

static const json_t *find_credential(const json_t *credentials, const char *name)
{
    const json_t *item;
    size_t i;

    json_array_foreach (credentials, i, item)
        if (strcmp(text_of(item, "name"), name) == 0)
            return item;
    return NULL;
}

static bool flag(const json_t *bind, const char *key)
{
    return json_is_true(json_object_get(bind, key));
}

/* A placeholder is the request's own to carry; any other credential is put on it, or the request is
 * refused. */
static void add_fit(struct policy_explanation *e, const char *name, const json_t *bind,
                    enum policy_fit fit)
{
    bool placeholder = strcmp(text_of(bind, "kind"), "placeholder") == 0,
         required = placeholder && flag(bind, "require");

    if (fit == POLICY_FITS && required)
        policy_explanation_note(
            e, "It has to carry cay-secret:%s, and no other key; else it is refused.", name);
    else if (fit == POLICY_FITS && placeholder)
        policy_explanation_note(e, "The credential %s is put in the place of cay-secret:%s.", name,
                                name);
    else if (fit == POLICY_FITS)
        policy_explanation_note(e, "It is sent with the credential %s.", name);
    else if (placeholder && !required)
        policy_explanation_note(e, "It is refused if it carries cay-secret:%s: the credential %s.",
                                name, policy_fit_text(fit));
    else
        policy_explanation_refuse(e, "credential", name, "the credential %s %s", name,
                                  policy_fit_text(fit));
}

static void add_credential(struct policy_explanation *e, const json_t *credentials,
                           const struct policy_query *q)
{
    const char *name = e->v.credential;
    const json_t *found = credentials ? find_credential(credentials, name) : NULL,
                 *bind = json_object_get(found, "bind");
    const struct policy_transport transport = {q->tls, q->detour || q->target.via_port != 0};
    struct policy *bound = NULL;
    struct err why;

    if (!credentials)
        policy_explanation_note(
            e,
            "It is sent with the credential %s where that is bound to this request, else it is "
            "refused; name a sandbox to see which.",
            name);
    else if (!found)
        policy_explanation_refuse(e, "credential", name,
                                  "the sandbox was not given the credential %s", name);
    else if (policy_binding_new(bind, flag(bind, "any_domain"), &bound, &why) != ERR_OK)
        policy_explanation_refuse(e, "credential", name,
                                  "the binding of the credential %s cannot be read: %s", name,
                                  why.text);
    else
        add_fit(e, name, bind,
                policy_binding_fits(bound, flag(bind, "insecure"), q->target.name, q->target.port,
                                    transport, q->method, q->path));
    policy_free(bound);
}

/* All that the request may carry: the verdict names the first alone. */
static void add_placeholders(struct policy_explanation *e, const struct policy_stack *stack,
                             const json_t *credentials, const struct policy_query *q)
{
    const struct policy_transport transport = {q->tls, q->detour || q->target.via_port != 0};
    const char *names[POLICY_INJECT_MAX];
    size_t n = MIN(json_array_size(credentials), (size_t)POLICY_INJECT_MAX);
    uint64_t named;

    for (size_t i = 0; i < n; i++)
        names[i] = text_of(json_array_get(credentials, i), "name");
    named = policy_stack_injects(stack, &q->target, true, q->method, q->path, names, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *bind = json_object_get(json_array_get(credentials, i), "bind");
        struct policy *bound = NULL;
        struct err why;

        if (!(named & UINT64_C(1) << i) || strcmp(text_of(bind, "kind"), "placeholder") != 0 ||
            policy_binding_new(bind, flag(bind, "any_domain"), &bound, &why) != ERR_OK)
            continue;
        if (policy_binding_fits(bound, flag(bind, "insecure"), q->target.name, q->target.port,
                                transport, q->method, q->path) == POLICY_FITS)
            e->placeholders[e->n_placeholders++] = names[i];
        policy_free(bound);
    }
}

/* Those that the verdict does not name, in one sentence. */
static void note_placeholders(struct policy_explanation *e)
{
    char text[POLICY_NOTE_SIZE - 64];
    size_t used = 0, others = 0;

    for (size_t i = 0; i < e->n_placeholders; i++) {
        const char *name = e->placeholders[i];

        if (e->v.credential && strcmp(name, e->v.credential) == 0)
            continue;
        if (used + strlen(name) + 3 > sizeof(text))
            others++;
        else
            used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", used ? ", " : "",
                                     name);
    }
    if (used > 0 && others > 0)
        policy_explanation_note(e, "It may carry placeholders of these, too: %s and %zu more.",
                                text, others);
    else if (used > 0)
        policy_explanation_note(e, "It may carry placeholders of these, too: %s.", text);
}

static bool is_unknown(const struct policy_address *a)
{
    return !policy_target_is_resolved(&(struct policy_target){.address = *a});
}

/* The name's address, if it was said, is then that of its way. */
static void take_way(struct policy_target *t, const struct policy_reroute *way,
                     struct policy_explanation *e)
{
    char text[INET6_ADDRSTRLEN];

    t->via = way->to_name ? t->address : way->to;
    t->via_name = way->to_name;
    t->via_unresolved = way->to_name && is_unknown(&t->address);
    t->via_port = way->port ? way->port : t->port;
    t->address = (struct policy_address){0};
    policy_address_format(&way->to, text);
    policy_explanation_note(e, "It goes to %s port %u instead.", way->to_name ? way->to_name : text,
                            t->via_port);
}

/* As a connection is: the name before anything is asked outside, then its way or its address, then
 * the request. */
static struct policy_verdict evaluate(const struct policy_stack *stack, struct policy_query *q,
                                      struct policy_explanation *e)
{
    struct policy_target *t = &q->target;
    const struct policy_reroute *way = policy_stack_reroute(stack, t->name);
    struct policy_verdict v = t->name ? policy_stack_name(stack, t) : policy_stack_dial(stack, t);

    if (v.action == POLICY_DENY)
        return v;
    if (way)
        take_way(t, way, e);
    if (way || (t->name && policy_target_is_resolved(t)))
        v = policy_stack_dial(stack, t);
    if (v.action == POLICY_DENY || !q->method)
        return v;
    v = policy_stack_request(stack, t, true, q->method, q->path);
    v.asks = false; /* connections are asked about, requests are not */
    return v;
}

static void add_notes(struct policy_explanation *e, const struct policy_stack *stack,
                      const json_t *credentials, const struct policy_query *q)
{
    const struct policy_target *t = &q->target;

    if (e->outcome == POLICY_OUTCOME_ASK) {
        snprintf(e->sentence, sizeof(e->sentence),
                 "%s: asked about, since nothing allows it and nothing denies it", e->subject);
        policy_explanation_note(e, "It waits for its owner's answer, and is refused without one.");
    }
    if (e->outcome == POLICY_OUTCOME_DENY)
        return;
    if (e->v.credential)
        add_credential(e, credentials, q);
    if (q->method && e->outcome == POLICY_OUTCOME_ALLOW) {
        add_placeholders(e, stack, credentials, q);
        note_placeholders(e);
    }
    if (t->via_unresolved || (t->name && !t->via_port && is_unknown(&t->address)))
        policy_explanation_note(
            e, "Its addresses are asked about when it is dialled (--address=ADDRESS): a private "
               "one needs a rule with it, or the default \"allow\", and a ceiling that opens it.");
    if (e->outcome == POLICY_OUTCOME_DEPENDS)
        policy_explanation_note(
            e, "It is decided by the request, so that only HTTP passes, and TLS where the client "
               "trusts the sandbox's certificate: name a METHOD and a PATH.");
}

/* Of an address that is known: a name's own, or the one that is dialled. */
static const struct policy_address *known_address(const struct policy_target *t)
{
    return (!t->name || policy_target_is_resolved(t)) && !t->via_port ? &t->address : NULL;
}

void policy_explanation_make(const struct policy_stack *stack, const json_t *credentials,
                             struct policy_query *q, struct policy_explanation *out)
{
    const struct policy_target *t = &q->target;
    const struct policy_address *known = known_address(t);
    const char *name = t->name ? t->name : t->said;
    struct policy_verdict *v = &out->v;

    *out = (struct policy_explanation){.v = {.rule = -1}};
    *v = evaluate(stack, q, out);
    out->outcome = v->action == POLICY_ALLOW     ? POLICY_OUTCOME_ALLOW
                   : v->action == POLICY_INSPECT ? POLICY_OUTCOME_DEPENDS
                   : v->asks                     ? POLICY_OUTCOME_ASK
                                                 : POLICY_OUTCOME_DENY;
    if (t->via_port)
        known = NULL;
    policy_explain_subject(name, known, t->port, q->method, q->path, out->subject);
    policy_explain(v->by ? v->by : stack->own, v, name, known, t->port, q->method, q->path,
                   out->sentence);
    add_notes(out, stack, credentials, q);
}

/* -- told -------------------------------------------------------------------------------------- */

static void describe(const struct policy_verdict *v, char *out, size_t size)
{
    static const char *const sources[] = {
        [POLICY_BY_NEVER] = "never reached", [POLICY_BY_CEILING] = "ceiling",
        [POLICY_BY_RULE] = "rule",           [POLICY_BY_PRESET] = "preset",
        [POLICY_BY_DEFAULT] = "default",     [POLICY_BY_SANDBOX] = "sandbox",
        [POLICY_BY_OWNER] = "owner"};
    char label[NEAR_LABEL_SIZE];

    if (v->source == POLICY_BY_RULE)
        snprintf(out, size, "%s", near_label(v->rule, v->name, label));
    else if (v->source == POLICY_BY_NEVER)
        snprintf(out, size, "%s", sources[v->source]);
    else
        snprintf(out, size, "%s \"%s\"", sources[v->source], v->name);
}

static bool decides(const struct policy_explanation *e, const struct policy_verdict *match)
{
    const struct policy_verdict *v = &e->v;

    return !e->refused_by[0] && v->source == match->source && v->rule == match->rule &&
           v->by == match->by;
}

static bool conflicts(const struct policy_verdict *v, const struct policy_verdict *match)
{
    return match->source == POLICY_BY_RULE && match->action != POLICY_INSPECT &&
           v->action != POLICY_INSPECT && match->action != v->action;
}

static const char *const outcomes[] = {[POLICY_OUTCOME_DENY] = "deny",
                                       [POLICY_OUTCOME_ALLOW] = "allow",
                                       [POLICY_OUTCOME_DEPENDS] = "depends",
                                       [POLICY_OUTCOME_ASK] = "ask"};

/* The entries of the sandbox's own policy that match. The deciding one is shown with the verdict of
 * the outcome, which differs from its own where the policy only warns, or asks. */
static json_t *list_matches(const struct policy_stack *stack, const struct policy_query *q,
                            const struct policy_explanation *e, bool *conflict)
{
    static const char *const verdicts[] = {
        [POLICY_DENY] = "deny", [POLICY_ALLOW] = "allow", [POLICY_INSPECT] = "depends"};
    const struct policy_target *t = &q->target;
    const struct policy_address *a = !t->name || policy_target_is_resolved(t) ? &t->address : NULL;
    struct policy_verdict matches[MATCHES_MAX];
    size_t n = policy_matches(stack->own, t->name, a, t->port, q->method, q->path, matches,
                              MATCHES_MAX);
    json_t *list = json_array();
    char what[POLICY_BY_SIZE];

    for (size_t i = 0; i < MIN(n, (size_t)MATCHES_MAX); i++) {
        bool this = decides(e, &matches[i]);

        describe(&matches[i], what, sizeof(what));
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:b}", "verdict",
                                        this ? outcomes[e->outcome] : verdicts[matches[i].action],
                                        "by", what, "decides", this));
        *conflict |= conflicts(&e->v, &matches[i]);
    }
    return list;
}

json_t *policy_explanation_json(const struct policy_stack *stack, const struct policy_query *q,
                                const struct policy_explanation *e)
{
    bool conflict = false;
    json_t *matches = list_matches(stack, q, e, &conflict), *notes = json_array(),
           *placeholders = json_array();
    char by[POLICY_BY_SIZE];

    for (size_t i = 0; i < e->n_notes; i++)
        json_array_append_new(notes, json_string(e->notes[i]));
    for (size_t i = 0; i < e->n_placeholders; i++)
        json_array_append_new(placeholders, json_string(e->placeholders[i]));
    if (e->refused_by[0])
        memcpy(by, e->refused_by, sizeof(by));
    else
        describe(&e->v, by, sizeof(by));
    return json_pack("{s:s, s:b, s:s, s:o, s:s?, s:o, s:s, s:o, s:b}", "verdict",
                     outcomes[e->outcome], "warned", e->v.warned, "text", e->sentence, "notes",
                     notes, "credential", e->v.credential, "placeholders", placeholders, "by", by,
                     "matches", matches, "conflict", conflict);
}
