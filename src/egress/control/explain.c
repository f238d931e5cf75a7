#include "egress/control/explain.h"

#include "base/err.h"
#include "base/util.h"
#include "egress/flow/accept.h"
#include "egress/flow/egress.h"
#include "egress/flow/names.h"
#include "egress/flow/ownproxy.h"
#include "egress/flow/registry.h"
#include "egress/flow/request.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "egress/flow/upstream.h"
#include "egress/flow/verdict.h"
#include "http/json.h"
#include "policy/explanation.h"
#include "policy/policy.h"
#include "policy/stack.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

/* -- the question ------------------------------------------------------------------------------ */

static enum err_code take_said(const char *said, struct policy_query *q, struct err *e)
{
    if (!said)
        return ERR_OK;
    if (q->target.name || policy_name_normalize(said, q->said) < 0)
        return err_set(e, ERR_INVALID, "said: the name that a client says to an address");
    q->target.said = q->said;
    return ERR_OK;
}

static enum err_code take_question(const json_t *o, struct policy_query *q, struct err *e)
{
    const char *to = NULL, *address = NULL, *said = NULL, *method = NULL, *path = NULL;

    json_memory_begin();
    if (json_unpack((json_t *)o, "{s:s, s?s, s?s, s?s, s?s}", "to", &to, "address", &address,
                    "said", &said, "method", &method, "path", &path) < 0)
        return json_memory_was_out()
                   ? err_set(e, ERR_EXHAUSTED, "memory is out")
                   : err_set(e, ERR_INVALID,
                             "to, address, said, method or path: missing, or no text");
    if (policy_query_parse(to, q) < 0)
        return err_set(e, ERR_INVALID, "to: not a host name or address, with :PORT or without");
    if (address && (!q->target.name || policy_address_parse(address, &q->target.address) < 0))
        return err_set(e, ERR_INVALID, "address: not the IP address that a host's name leads to");
    if (!method != !path || (path && (path[0] != '/' || strchr(path, '?'))))
        return err_set(e, ERR_INVALID,
                       "method and path: both or none; the path begins with / and ends before its "
                       "'?', for no rule looks at a query");
    q->method = method;
    q->path = path;
    return take_said(said, q, e);
}

/* -- what only cay-egress knows ---------------------------------------------------------------- */

static void add_proxy(const struct sandbox *s, struct policy_explanation *out)
{
    char text[INET6_ADDRSTRLEN];
    struct err why;

    if (!s->upstream)
        return;
    policy_address_format(upstream_address(s->upstream), text);
    if (ownproxy_may(s, s->upstream, &why))
        policy_explanation_note(out, "It goes through the sandbox's own proxy, %s port %u.", text,
                                upstream_port(s->upstream));
    else
        policy_explanation_refuse(out, "proxy", text, "%s", why.text);
}

static void add_limits(const struct sandbox *s, const struct policy_query *q,
                       struct policy_explanation *out)
{
    uint32_t max = accept_exceeded(s);

    if (registry_over_bytes(s))
        policy_explanation_refuse(out, "limit", "bytes", "the sandbox has used up its bytes");
    else if (registry_counts_bytes(s))
        policy_explanation_note(out, "The sandbox has %" PRIu64 " bytes left.",
                                registry_bytes_left(s));
    if (max)
        policy_explanation_refuse(out, "limit", "connections",
                                  "the sandbox has its %u connections open already", max);
    if (q->method && request_rate_left(s) == 0)
        policy_explanation_refuse(out, "limit", "requests",
                                  "the sandbox has sent its requests of this second (429)");
}

static bool is_internal(const struct policy_query *q)
{
    return q->target.name && strcmp(q->target.name, NAMES_INTERNAL_NAME) == 0;
}

/* Whatever the policy says, and whatever is used up: refusals are told at this name. */
static void answer_itself(struct policy_explanation *out)
{
    out->v = (struct policy_verdict){
        .action = POLICY_ALLOW, .source = POLICY_BY_SANDBOX, .rule = -1, .name = "cay"};
    out->outcome = POLICY_OUTCOME_ALLOW;
    out->n_notes = 0;
    out->refused_by[0] = '\0';
    snprintf(out->sentence, sizeof(out->sentence), "%s: cay answers it itself",
             NAMES_INTERNAL_NAME);
}

/* instead: another policy in the place of the sandbox's own, or NULL. */
static json_t *explain_with(const struct sandbox *s, const struct policy *instead,
                            const json_t *credentials, struct policy_query *q)
{
    struct verdict_question subject = {.s = s};
    struct policy_stack stack = verdict_stack(&subject);
    struct policy_explanation out;

    if (instead)
        stack.own = instead;
    q->detour = s->upstream != NULL;
    policy_explanation_make(&stack, credentials, q, &out);
    if (is_internal(q)) {
        answer_itself(&out);
        return policy_explanation_json(&stack, q, &out);
    }
    if (out.outcome != POLICY_OUTCOME_DENY && s->egress->config.offline)
        policy_explanation_refuse(&out, "server", NULL, "this server lets nothing out");
    if (out.outcome != POLICY_OUTCOME_DENY) {
        add_proxy(s, &out);
        add_limits(s, q, &out);
    }
    return policy_explanation_json(&stack, q, &out);
}

enum err_code explain_policy(const json_t *question, struct policy **out, struct err *e)
{
    const json_t *policy = json_object_get(question, "policy");

    *out = NULL;
    return policy ? policy_new(policy, out, e) : ERR_OK;
}

json_t *explain(const struct sandbox *s, const json_t *question, const struct policy *instead,
                struct err *e)
{
    struct policy_query q;
    json_t *answer;

    if (!s->has_policy) {
        err_set(e, ERR_CONFLICT, "the sandbox has no policy yet: try again in a moment");
        return NULL;
    }
    if (take_question(question, &q, e) != ERR_OK)
        return NULL;
    answer = explain_with(s, instead, json_object_get(question, "credentials"), &q);
    if (!answer)
        err_set(e, ERR_EXHAUSTED, "memory is out");
    return answer;
}
