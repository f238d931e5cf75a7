/* Routes of /cay/v1 for the way out of a sandbox: its policy, what was refused, connections that
 * wait for their owner, explanations, the log. See cay_v1.h for the forms. Policies are checked
 * and stored by core (policy_check.c, sandbox_network.c) and answered when cay-egress has them;
 * the other answers come from cay-egress as text (core/egress_query.h) and are relayed unread.
 * Roles were checked before a handler is called (api.c). */

#include "api/cay_v1.h"

#include "api/e2b.h"
#include "base/clock.h"
#include "core/egress_query.h"
#include "core/policy_check.h"
#include "http/json.h"

#include <string.h>

#define AUDIT_DEFAULT 100

/* -- a sandbox's policy ------------------------------------------------------------------------ */

void cay_v1_policy_get(struct api_call *call)
{
    const struct sandbox *s = core_sandbox_find(call->core, call->who.tenant, call->params[0]);

    if (!s)
        cay_v1_no_sandbox(call);
    else
        api_reply_json(call, 200,
                       s->policy ? json_incref(s->policy) : json_pack("{s:s}", "default", "deny"));
}

json_t *cay_v1_policy_warnings(struct api_call *call, const struct sandbox *s)
{
    json_t *warnings = NULL;
    struct err e;

    if (!s || !s->policy ||
        core_policy_check(call->core, s->tenant, s->policy, s->credentials, &warnings, &e) !=
            ERR_OK ||
        json_array_size(warnings) > 0)
        return warnings;
    json_decref(warnings);
    return NULL;
}

static void policy_set(void *arg, const struct sandbox *s, const struct err *why)
{
    struct api_call *call = arg;
    json_t *warnings;

    if (why)
        api_fail_err(call, why);
    else if ((warnings = cay_v1_policy_warnings(call, s)))
        api_reply_json(call, 200, json_pack("{s:o}", "warnings", warnings));
    else
        api_reply_empty(call, 204);
}

void cay_v1_policy_check(struct api_call *call)
{
    json_t *warnings = NULL;
    struct err e;

    if (!api_call_body(call))
        return;
    if (core_policy_check(call->core, call->who.tenant, call->body, NULL, &warnings, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_json(call, 200, json_pack("{s:o}", "warnings", warnings));
}

/* Of a sandbox's own credentials those that the policy still names. */
static json_t *still_named(const json_t *credentials, const json_t *policy)
{
    json_t *out = NULL, *item, *injection;
    size_t i, k;

    json_array_foreach (credentials, i, item)
        json_array_foreach (json_object_get(policy, "inject"), k, injection)
            if (json_equal(json_object_get(item, "name"),
                           json_object_get(injection, "credential"))) {
                out = out ? out : json_array();
                json_array_append(out, item);
                break;
            }
    return out;
}

/* The egress part of E2B's network object is replaced; the ingress part stays. */
void cay_v1_policy_put(struct api_call *call)
{
    const struct sandbox *s = core_sandbox_find(call->core, call->who.tenant, call->params[0]);
    struct core_network n = {.network = NULL};
    json_t *network = NULL;
    struct err e;

    if (!s) {
        cay_v1_no_sandbox(call);
        return;
    }
    if (call->request->body_len == 0) {
        api_fail(call, 400, "the body must be a policy: {} lets nothing out");
        return;
    }
    if (!api_call_body(call))
        return;
    if (e2b_network_ingress(network_shown(s->network), &network, &e) != ERR_OK ||
        e2b_network_setting(network, &n.network, &e) != ERR_OK) {
        api_fail_err(call, &e);
    } else {
        n.policy = call->body;
        n.allow_internet = s->allow_internet;
        n.credentials = still_named(s->credentials, call->body);
        core_sandbox_set_network(call->core, call->who.tenant, call->params[0], &n, policy_set,
                                 call);
    }
    json_decref(network);
    network_unref(n.network);
    json_decref(n.credentials);
}

/* -- refusals and the log ---------------------------------------------------------------------- */

static void relay(void *arg, const char *json, size_t len, const struct err *why)
{
    struct api_call *call = arg;

    if (why)
        api_fail_err(call, why);
    else
        api_reply_text(call, 200, json, len);
}

void cay_v1_denials(struct api_call *call)
{
    core_denials(call->core, call->who.tenant, call->params[0], relay, call);
}

/* The keys that a question may have, all but "policy" texts. False: the call was answered. */
static bool is_question(struct api_call *call)
{
    const char *to = NULL, *address = NULL, *said = NULL, *method = NULL, *path = NULL;
    json_t *policy = NULL;

    if (json_unpack(call->body, "{s:s, s?s, s?s, s?s, s?s, s?o !}", "to", &to, "address", &address,
                    "said", &said, "method", &method, "path", &path, "policy", &policy) == 0)
        return true;
    api_fail(call, 400,
             "the body must be {\"to\": \"https://HOST:PORT\"}, and may have \"method\", \"path\", "
             "\"address\", \"said\" and \"policy\"");
    return false;
}

void cay_v1_policy_explain(struct api_call *call)
{
    if (api_call_body(call) && is_question(call))
        core_explain(call->core, call->who.tenant, call->params[0], call->body, relay, call);
}

void cay_v1_asks(struct api_call *call)
{
    core_asks(call->core, call->who.tenant, call->params[0], relay, call);
}

static void answered(void *arg, const char *json, size_t len, const struct err *why)
{
    struct api_call *call = arg;

    if (why)
        api_fail_err(call, why);
    else
        api_reply_empty(call, 204);
}

/* {"answer": "yes" | "no", "for": "once" | "always"} */
void cay_v1_ask_answer(struct api_call *call)
{
    struct core_ask_answer a = {.ask = call->params[1]};
    const char *said = NULL, *how_long = "once";

    if (!api_call_body(call))
        return;
    if (json_unpack(call->body, "{s:s, s?s !}", "answer", &said, "for", &how_long) < 0 ||
        (strcmp(said, "yes") != 0 && strcmp(said, "no") != 0) ||
        (strcmp(how_long, "once") != 0 && strcmp(how_long, "always") != 0)) {
        api_fail(
            call, 400,
            "the body must be {\"answer\": \"yes\" or \"no\", \"for\": \"once\" or \"always\"}");
        return;
    }
    a.yes = strcmp(said, "yes") == 0;
    a.always = strcmp(how_long, "always") == 0;
    core_ask_answer(call->core, call->who.tenant, call->params[0], &a, answered, call);
}

/* True: it is one; false: the call was answered. */
static bool read_filter(struct api_call *call, struct core_audit_filter *f, char sandbox[static 64],
                        char verdict[static 64])
{
    char since[64];
    int64_t limit = AUDIT_DEFAULT;

    if (!api_call_query(call, "sandbox", sandbox, 64) ||
        !api_call_query(call, "verdict", verdict, 64) ||
        !api_call_query(call, "since", since, sizeof(since)) ||
        !api_call_query_int(call, "limit", 1, CORE_AUDIT_MAX, &limit))
        return false;
    if (*sandbox && !ids_is_sandbox(sandbox))
        api_fail(call, 400, "the query parameter \"sandbox\" is no id of a sandbox");
    else if (*verdict && strcmp(verdict, "allow") != 0 && strcmp(verdict, "deny") != 0)
        api_fail(call, 400, "the query parameter \"verdict\" must be allow or deny");
    else if (*since && clock_parse_rfc3339(since, &f->since_ms) < 0)
        api_fail(call, 400, "the query parameter \"since\" is not an RFC 3339 time");
    else {
        f->sandbox = *sandbox ? sandbox : NULL;
        f->verdict = *verdict ? verdict : NULL;
        f->limit = (unsigned)limit;
        return true;
    }
    return false;
}

void cay_v1_audit(struct api_call *call)
{
    struct core_audit_filter f = {.since_ms = 0};
    char sandbox[64], verdict[64];

    if (read_filter(call, &f, sandbox, verdict))
        core_audit(call->core, call->who.tenant, &f, call->request->gone, relay, call);
}

void cay_v1_audit_verify(struct api_call *call)
{
    core_audit_verify(call->core, call->request->gone, relay, call);
}
