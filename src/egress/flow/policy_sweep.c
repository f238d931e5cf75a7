#include "egress/flow/policy_sweep.h"

#include "base/util.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/oauth.h"
#include "egress/flow/registry.h"
#include "egress/flow/registry_internal.h"
#include "egress/flow/sandbox.h"
#include "egress/tls/turns.h"

#include <errno.h>
#include <uv.h>

struct policy_sweep {
    struct sandbox *sandbox;
    struct policy_sweep *next;
    struct policy_waiter *waiters;
    unsigned turns; /* that it has had */
};

struct policy_sweeps {
    struct egress *egress;
    struct policy_sweep *first, *last; /* those under way, the first in the next turn */
    uv_prepare_t slice;
    uv_idle_t awake;          /* while there are any: the loop does not sleep */
    struct sandbox *awaiting; /* where a request waits for a credential */
    uv_timer_t due;           /* while there are any */
    unsigned handles;
};

static struct policy_sweeps *all_of(const struct sandbox *s)
{
    return s->egress->registry->sweeps;
}

/* -- asking ------------------------------------------------------------------------------------ */

/* The sandbox, or command sandbox, of which there is something left. */
static struct sandbox *find_unsettled(struct sandbox *whole)
{
    struct sandbox *s = whole->unsettled ? whole : whole->command_sandboxes;

    while (s && !s->unsettled)
        s = s->next_command_sandbox;
    return s;
}

/* Asks one question. An end moves s->unsettled on by itself, whichever flow ends
 * (registry_remove_flow). False: there is nothing left. */
static bool settle_next(struct sandbox *whole)
{
    struct sandbox *s = find_unsettled(whole);
    struct flow *f;
    uint64_t id;

    if (!s)
        return false;
    f = s->unsettled;
    id = f->id;
    s->unsettled = f->next;
    switch (flow_settle(f)) {
    case FLOW_UNSETTLED: s->unsettled = f; break;
    case FLOW_SETTLED:
        if (oauth_go_on(f, whole->sweep_number) && flow_find(whole->egress, id) == f)
            s->unsettled = f;
        break;
    case FLOW_ENDED: break;
    }
    return find_unsettled(whole) != NULL;
}

/* True: there is more. */
static bool settle_some(struct policy_sweep *w)
{
    struct sandbox *s = w->sandbox;
    struct turns *turns = s->egress->turns;
    uint32_t round = UINT32_MAX; /* it is no flow, and has a part in every round */
    bool entered = turns_enter(turns, registry_owner(s), &round), more = true;
    unsigned least = w->turns++ < POLICY_SWEEP_LATE_TURNS ? 1 : POLICY_SWEEP_LATE;

    for (unsigned n = 0; more && (n < least || (entered && !turns_is_over(turns))); n++)
        more = settle_next(s);
    if (entered)
        turns_exit(turns);
    return more;
}

/* -- those under way --------------------------------------------------------------------------- */

static void link_last(struct policy_sweeps *all, struct policy_sweep *w)
{
    w->next = NULL;
    *(all->last ? &all->last->next : &all->first) = w;
    all->last = w;
}

static void unlink_sweep(struct policy_sweeps *all, struct policy_sweep *w)
{
    struct policy_sweep **at = &all->first, *before = NULL;

    for (; *at != w; at = &(*at)->next)
        before = *at;
    *at = w->next;
    if (all->last == w)
        all->last = before;
}

static void finish(struct policy_sweep *w, bool ended)
{
    struct policy_waiter *waiters = w->waiters;

    w->sandbox->sweep = NULL;
    free(w);
    for (struct policy_waiter *next; waiters; waiters = next) {
        next = waiters->next;
        waiters->done(waiters, ended);
    }
}

static void on_slice(uv_prepare_t *h)
{
    struct policy_sweeps *all = h->data;
    struct policy_sweep *w = all->first;

    if (!w) {
        uv_prepare_stop(&all->slice);
        uv_idle_stop(&all->awake);
        return;
    }
    unlink_sweep(all, w);
    if (settle_some(w))
        link_last(all, w);
    else
        finish(w, false);
}

static void on_awake(uv_idle_t *h)
{
}

static void reset(struct sandbox *s)
{
    s->sweep_number++;
    s->unsettled = s->flows;
    for (struct sandbox *r = s->command_sandboxes; r; r = r->next_command_sandbox)
        r->unsettled = r->flows;
}

static struct policy_sweep *sweep_new(struct sandbox *s)
{
    struct policy_sweep *w = calloc(1, sizeof(*w));

    if (w)
        w->sandbox = s;
    s->sweep = w;
    return w;
}

static void go_on_later(struct policy_sweeps *all, struct policy_sweep *w)
{
    link_last(all, w);
    uv_prepare_start(&all->slice, on_slice);
    uv_idle_start(&all->awake, on_awake);
}

static void start(struct sandbox *s)
{
    struct policy_sweep *w = sweep_new(s);

    if (!w) { /* at once, rather than not at all */
        while (settle_next(s))
            ;
        return;
    }
    if (settle_some(w))
        go_on_later(all_of(s), w);
    else
        finish(w, false);
}

void policy_sweep_start(struct sandbox *s)
{
    s->rules_serial++;
    reset(s);
    if (!s->sweep && find_unsettled(s))
        start(s);
}

/* -- requests that wait for a credential ------------------------------------------------------- */

/* A sweep that is under way may have passed them already. */
static void sweep_waiting(struct policy_sweeps *all, struct sandbox *s)
{
    struct policy_sweep *w = s->sweep ? NULL : sweep_new(s);

    if (!w) {
        policy_sweep_schedule(s);
        return;
    }
    reset(s);
    go_on_later(all, w);
}

static void on_due(uv_timer_t *t)
{
    struct policy_sweeps *all = t->data;
    struct sandbox *s = TAKE_PTR(all->awaiting);

    for (struct sandbox *next; s; s = next) {
        next = s->next_awaiting;
        s->awaits = false;
        sweep_waiting(all, s);
    }
}

void policy_sweep_schedule(struct sandbox *s)
{
    struct policy_sweeps *all = all_of(s);

    s = s->parent ? s->parent : s;
    if (s->awaits || s->over)
        return;
    s->awaits = true;
    s->next_awaiting = all->awaiting;
    all->awaiting = s;
    if (!uv_is_active((uv_handle_t *)&all->due))
        uv_timer_start(&all->due, on_due, POLICY_SWEEP_DELAY_MS, 0);
}

static void leave_awaiting(struct sandbox *s)
{
    struct sandbox **at = &all_of(s)->awaiting;

    if (!s->awaits)
        return;
    while (*at != s)
        at = &(*at)->next_awaiting;
    *at = s->next_awaiting;
    s->awaits = false;
}

/* -- who waits --------------------------------------------------------------------------------- */

bool policy_sweep_await(struct sandbox *s, struct policy_waiter *w)
{
    if (!s->sweep)
        return false;
    w->next = s->sweep->waiters;
    s->sweep->waiters = w;
    return true;
}

void policy_sweep_leave(struct sandbox *s, struct policy_waiter *w)
{
    struct policy_waiter **at = s->sweep ? &s->sweep->waiters : NULL;

    while (at && *at && *at != w)
        at = &(*at)->next;
    if (at && *at)
        *at = w->next;
}

void policy_sweep_end(struct sandbox *s)
{
    struct policy_sweep *w = s->sweep;

    leave_awaiting(s);
    if (!w)
        return;
    unlink_sweep(all_of(s), w);
    finish(w, true);
}

/* -- life -------------------------------------------------------------------------------------- */

int policy_sweeps_new(struct egress *eg, struct policy_sweeps **out)
{
    struct policy_sweeps *all = calloc(1, sizeof(*all));

    if (!all)
        return -ENOMEM;
    all->egress = eg;
    uv_prepare_init(eg->loop, &all->slice);
    uv_idle_init(eg->loop, &all->awake);
    uv_timer_init(eg->loop, &all->due);
    all->slice.data = all->awake.data = all->due.data = all;
    all->handles = 3;
    *out = all;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    struct policy_sweeps *all = h->data;

    if (--all->handles == 0)
        free(all);
}

void policy_sweeps_free(struct policy_sweeps *all)
{
    uv_close((uv_handle_t *)&all->slice, on_closed);
    uv_close((uv_handle_t *)&all->awake, on_closed);
    uv_close((uv_handle_t *)&all->due, on_closed);
}
