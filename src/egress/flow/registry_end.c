/* A sandbox's end. Its connections may be thousands, and each takes the kernel 0.1 ms to close:
 * they are closed in slices of a turn of the loop, in the sandbox's share of the time (turns.h),
 * and at least one in a turn. Meanwhile it is in no table, has no listeners, and none of its
 * connections goes on (flow_settle). Sandboxes end in the order in which they came, so that a
 * command sandbox goes before its sandbox. */

#include "egress/flow/registry_internal.h"

#include "base/util.h"
#include "egress/credential/credential.h"
#include "egress/flow/audit.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/names.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/upstream.h"
#include "egress/tls/turns.h"
#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

void registry_free_rules(struct sandbox *s)
{
    policy_free(s->policy);
    for (size_t i = 0; i < EGRESS_CEILINGS_MAX; i++)
        policy_free(s->ceilings[i]);
    memset(s->ceilings, 0, sizeof(s->ceilings));
    upstream_free(s->upstream);
    credentials_unref(s->credentials);
    free(s->allows);
    s->allows = NULL;
    s->policy = NULL;
    s->upstream = NULL;
    s->credentials = NULL;
}

static void free_sandbox(struct sandbox *s)
{
    for (struct sandbox *r = s->command_sandboxes, *next; r; r = next) {
        next = r->next_command_sandbox;
        free_sandbox(r);
    }
    audit_summary(s->egress->audit, s);
    registry_free_rules(s);
    free(s->answers);
    free(s->h2);
    names_free(s->names);
    free(s->denials);
    free(s);
}

/* -- slices ------------------------------------------------------------------------------------ */

static struct flow *find_open(const struct sandbox *s)
{
    const struct sandbox *r = s->command_sandboxes;

    if (s->flows)
        return s->flows;
    while (r && !r->flows)
        r = r->next_command_sandbox;
    return r ? r->flows : NULL;
}

/* Of the sandbox that is first. True: all of it is closed, and it is gone. */
static bool close_some(struct registry *r)
{
    struct sandbox *s = r->first_ending;
    struct turns *turns = s->egress->turns;
    uint32_t round = UINT32_MAX; /* it is no flow, and has a part in every round */
    bool entered = turns_enter(turns, registry_owner(s), &round);
    struct flow *f;

    do {
        f = find_open(s);
        if (f)
            flow_reset(f);
    } while (f && entered && !turns_is_over(turns));
    if (entered)
        turns_exit(turns);
    if (f)
        return false;
    r->first_ending = s->next_ending;
    if (!r->first_ending)
        r->last_ending = NULL;
    free_sandbox(s);
    return true;
}

static void on_slice(uv_prepare_t *h)
{
    struct registry *r = h->data;

    if (r->first_ending)
        (void)close_some(r);
    if (r->first_ending)
        return;
    uv_prepare_stop(&r->slice);
    uv_idle_stop(&r->awake);
}

static void on_awake(uv_idle_t *h)
{
}

void registry_end(struct sandbox *s)
{
    struct registry *r = s->egress->registry;
    bool first = !r->first_ending;

    s->over = true;
    s->next_ending = NULL;
    *(r->last_ending ? &r->last_ending->next_ending : &r->first_ending) = s;
    r->last_ending = s;
    if (first && close_some(r))
        return;
    uv_prepare_start(&r->slice, on_slice);
    uv_idle_start(&r->awake, on_awake);
}

/* -- life -------------------------------------------------------------------------------------- */

void registry_ends_init(struct registry *r, struct egress *eg)
{
    uv_prepare_init(eg->loop, &r->slice);
    uv_idle_init(eg->loop, &r->awake);
    r->slice.data = r->awake.data = r;
    r->handles = 2;
}

static void on_closed(uv_handle_t *h)
{
    struct registry *r = h->data;

    if (--r->handles == 0)
        free(r);
}

void registry_end_all(struct registry *r)
{
    while (r->first_ending)
        (void)close_some(r);
}

void registry_ends_free(struct registry *r)
{
    uv_close((uv_handle_t *)&r->slice, on_closed);
    uv_close((uv_handle_t *)&r->awake, on_closed);
}
