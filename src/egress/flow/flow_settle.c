/* Rules that have changed are asked about what is open: each connection, and each request of HTTP/2
 * in it, once. The serial of the rules tells whether that was done. A flow is settled before it is
 * worked on, so that new rules count at once for what moves, in its owner's share of the time; an
 * idle one is settled by policy_sweep.c. */
#include "egress/flow/flow.h"

#include "egress/flow/accept.h"
#include "egress/flow/asks.h"
#include "egress/flow/deny.h"
#include "egress/flow/forward.h"
#include "egress/flow/h2_flow.h"
#include "egress/flow/names.h"
#include "egress/flow/registry.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "egress/flow/verdict.h"
#include "policy/policy.h"

#include <string.h>

/* Nothing of it depends on the rules: it is refused already, is not known yet, or goes nowhere. */
static bool is_exempt(const struct flow *f)
{
    return f->refused || f->state == FLOW_NEGOTIATING || f->state == FLOW_ANSWERING ||
           (f->target.name && strcmp(f->target.name, NAMES_INTERNAL_NAME) == 0) ||
           (!f->target.name && f->target.port == 0);
}

/* About the connection, and its request of HTTP/1.1. */
static void ask(struct flow *f)
{
    char why[POLICY_REASON_SIZE];
    struct policy_verdict v = verdict_flow(f);

    if (v.action != POLICY_DENY && f->dialed)
        v = verdict_target(f->sandbox, &f->target);
    /* A flow that has to be read from now on, and passes unread, is cut too. */
    if ((v.action == POLICY_ALLOW || (v.action == POLICY_INSPECT && f->state != FLOW_TUNNELED)) &&
        (f->state != FLOW_FORWARDED || forward_recheck(f, &v))) {
        f->must_inspect |= v.action == POLICY_INSPECT;
        if (f->state == FLOW_STREAMS)
            h2_flow_recheck_all(f);
        return;
    }
    deny_explain(v.by ? v.by : f->sandbox->policy, &v, &f->target, NULL, NULL, why);
    flow_cut(f, &v, "policy", "cut, for the policy has changed: %.220s", why);
    flow_reset(f);
}

static void recheck(struct flow *f)
{
    if (f->state == FLOW_WAITING)
        accept_go_on(f);
    else if (is_exempt(f))
        return;
    else if (f->state == FLOW_ASKING)
        asks_recheck(f);
    else
        ask(f);
}

enum flow_standing flow_settle(struct flow *f)
{
    uint64_t serial = registry_rules_serial(f->sandbox), id = f->id;
    struct egress *eg = f->egress;

    if (f->rules_serial == serial)
        return f->state == FLOW_STREAMS && h2_flow_recheck(f) ? FLOW_UNSETTLED : FLOW_SETTLED;
    if (serial == UINT64_MAX) {
        flow_reset(f);
        return FLOW_ENDED;
    }
    /* Which address it will have is not known yet: on_dialed asks again. */
    f->rules_serial = f->state == FLOW_DIALING && f->dial_id ? 0 : serial;
    recheck(f);
    if (flow_find(eg, id) != f)
        return FLOW_ENDED;
    return f->state == FLOW_STREAMS ? FLOW_UNSETTLED : FLOW_SETTLED;
}
