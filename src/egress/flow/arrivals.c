#include "egress/flow/arrivals.h"

#include "contract/proto.h"
#include "egress/flow/deny.h"
#include "egress/flow/rate.h"
#include "egress/flow/sandbox.h"
#include "policy/policy.h"

#include <stdio.h>

#define LOGGED_PER_SECOND 1u

void arrivals_note(struct sandbox *s)
{
    uint32_t per_second = s->parent ? EGRESS_COMMAND_SANDBOX_NEW_PER_SECOND : EGRESS_NEW_PER_SECOND,
             burst = s->parent ? EGRESS_COMMAND_SANDBOX_NEW_BURST : EGRESS_NEW_BURST;
    char reason[POLICY_REASON_SIZE];

    if (rate_take_burst(&s->arrivals, per_second * ARRIVALS_TENTHS / 10,
                        burst * ARRIVALS_TENTHS / 10) ||
        !rate_take(&s->crowded, LOGGED_PER_SECOND))
        return;
    snprintf(
        reason, sizeof(reason),
        "%s is at its limit of %u new connections and DNS questions a second (%u at once): its "
        "kernel drops what is beyond, so that look-ups fail (EAI_AGAIN) and connections take "
        "seconds; use connections again, or begin fewer at a time",
        s->parent ? "this command" : "this sandbox", per_second, burst);
    deny_note_sandbox(s, "limit", reason);
}
