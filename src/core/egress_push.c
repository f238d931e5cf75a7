/* From a changed policy to one that is in force. Sandboxes whose policy changed stand in a queue of
 * their process of cay-egress, once each, and go out IN_FLIGHT_MAX at a time while it is up and the
 * core is ready; one that changes while it is sent is sent once more. Callers who wait for a policy
 * to be in force are told in a later turn, also that it is not reached: then it is tried on without
 * them. Whether the process is there is egress.c's matter. */

#include "core/egress_internal.h"

#include "base/clock.h"
#include "base/ids.h"
#include "base/log.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/logs.h"
#include "core/reserve.h"
#include "core/sandbox.h"

#include <stdio.h>
#include <string.h>

#define IN_FLIGHT_MAX   32u    /* policies sent at a time to one process */
#define PUSH_TURN_BYTES 65536u /* of policies, in a turn of the loop; the last may exceed it */
#define PUSH_TIMEOUT_MS 5000u
#define ANSWER_MAX      4096u

/* A caller that waits for a policy to be in force. */
struct egress_waiter {
    struct egress_waiter *next;
    core_sandbox_cb done;
    void *arg;
    /* of the first, when all are told */
    struct deferred later;
    struct core *core;
    char id[IDS_SANDBOX_SIZE];
    struct err why; /* code ERR_OK: it is in force */
};

/* -- the queue --------------------------------------------------------------------------------- */

static void enqueue(struct egress_link *l, struct sandbox_obj *o)
{
    if (o->egress_queued)
        return;
    o->egress_queued = true;
    o->egress_next = NULL;
    o->egress_prev = l->last;
    *(l->last ? &l->last->egress_next : &l->first) = o;
    l->last = o;
}

static void dequeue(struct egress_link *l, struct sandbox_obj *o)
{
    if (!o->egress_queued)
        return;
    o->egress_queued = false;
    *(o->egress_prev ? &o->egress_prev->egress_next : &l->first) = o->egress_next;
    *(o->egress_next ? &o->egress_next->egress_prev : &l->last) = o->egress_prev;
}

/* -- those who wait ---------------------------------------------------------------------------- */

static void notify_deferred(void *arg)
{
    struct egress_waiter *first = arg;
    struct sandbox_obj *o = sandbox_get(first->core, NULL, first->id);
    struct err why = first->why;

    if (!o && why.code == ERR_OK)
        err_set(&why, ERR_NOT_FOUND, "sandbox %s has ended", first->id);
    for (struct egress_waiter *w = first, *next; w; w = next) {
        next = w->next;
        w->done(w->arg, why.code == ERR_OK ? &o->s : NULL, why.code == ERR_OK ? NULL : &why);
        free(w);
    }
}

/* In the next turn: callers may be inside a loop over sandboxes. why NULL: it is in force. */
static void answer(struct sandbox_obj *o, const struct err *why)
{
    struct egress_waiter *first = TAKE_PTR(o->egress_waiters);

    if (!first)
        return;
    first->core = o->core;
    memcpy(first->id, o->s.id, sizeof(first->id));
    if (why)
        first->why = *why;
    core_defer(o->core, &first->later, notify_deferred, first);
}

/* -- sending one ------------------------------------------------------------------------------- */

static void refused(struct sandbox_obj *o, int status, const char *body, size_t len)
{
    struct err e;

    err_set(&e, ERR_INVALID, "cay-egress refused the policy (%d): %.*s", status,
            (int)MIN(len, 256u), body ? body : "");
    log_error("sandbox %s: %s", o->s.id, e.text);
    logs_add(o, "error", "%s; nothing leaves this sandbox", e.text);
    answer(o, &e);
}

/* cay-egress knows already that what ran of it has ended, and cayd is about to be told. */
static void is_late(struct sandbox_obj *o)
{
    struct err e;

    log_info("sandbox %s: its policy is late: generation %u has ended", o->s.id, o->s.gen);
    if (sandbox_life(o)->files) { /* it is sent when it runs */
        answer(o, NULL);
        return;
    }
    err_set(&e, ERR_UNAVAILABLE,
            "the network policy is not in force: what ran of sandbox %s has ended", o->s.id);
    err_hint(&e, "it is written, and sent if the sandbox is begun again");
    answer(o, &e);
}

static void not_reached(struct egress_link *l, struct sandbox_obj *o, const struct err *why)
{
    struct err e;

    err_set(&e, ERR_UNAVAILABLE, "the network policy is not in force yet: cay-egress: %s",
            why->text);
    err_hint(&e, "it is sent again as soon as cay-egress answers; until then the sandbox has the "
                 "policy that it had, or no network");
    answer(o, &e);
    enqueue(l, o);
    if (!l->core->stopping)
        timers_set(&l->core->timers, &l->again, clock_mono_ms() + EGRESS_AGAIN_MS);
}

/* It has no memory for it, or no place: the policy of before is in force, and this one is sent
 * again. */
static void too_busy(struct egress_link *l, struct sandbox_obj *o, const char *body, size_t len)
{
    struct err e;

    err_set(&e, ERR_UNAVAILABLE, "%.*s", (int)MIN(len, 256u), body ? body : "");
    not_reached(l, o, &e);
}

static void on_pushed(struct core *c, const char *id, const struct err *why, int status,
                      const char *body, size_t len, void *arg)
{
    struct egress_link *l = arg;
    struct sandbox_obj *o = sandbox_get(c, NULL, id);

    l->in_flight--;
    if (o && o->egress_sending) {
        o->egress_sending = false;
        if (why)
            not_reached(l, o, why);
        else if (o->egress_changed)
            enqueue(egress_link_of(o),
                    o); /* another process's, perhaps: its slot may have changed */
        else if (status == 503)
            too_busy(l, o, body, len);
        else if (status == 409)
            is_late(o);
        else if (status / 100 != 2)
            refused(o, status, body, len);
        else
            answer(o, NULL);
    }
    if (!c->stopping)
        egress_push_queue(l);
}

/* Bytes of it. */
static size_t push(struct egress_link *l, struct sandbox_obj *o)
{
    struct call_agent_request r = {
        .method = "PUT", .max_response_bytes = ANSWER_MAX, .timeout_ms = PUSH_TIMEOUT_MS};
    char target[192];
    struct err e;
    size_t n;

    (void)snprintf(target, sizeof(target), "/v1/sandboxes/%u/%u?tenant=%s", o->s.slot, o->s.gen,
                   o->s.tenant);
    r.target = target;
    r.body = l->core->egress->uses.body(o, &e);
    if (!r.body) {
        not_reached(l, o, &e);
        return 0;
    }
    n = strlen(r.body);
    o->egress_sending = true;
    o->egress_changed = false;
    l->in_flight++;
    call_unix(l->core, o->s.id, l->path, &r, on_pushed, l);
    return n;
}

static bool wants_policy(const struct sandbox_obj *o)
{
    return o->known_to_privd && sandbox_life(o)->policy;
}

/* Its place in the queue goes by: its waiters are told so. */
static void not_wanted(struct sandbox_obj *o)
{
    struct err e;

    if (sandbox_life(o)->files) { /* it is sent when it runs */
        answer(o, NULL);
        return;
    }
    if (!sandbox_life(o)->policy) {
        err_set(&e, ERR_NOT_FOUND, "sandbox %s has ended", o->s.id);
    } else {
        err_set(&e, ERR_UNAVAILABLE,
                "the network policy is not in force yet: cay-privd does not know sandbox %s",
                o->s.id);
        err_hint(&e, "it is written, and sent as soon as the sandbox is there");
    }
    answer(o, &e);
}

static bool may_push(const struct egress_link *l)
{
    return l->up && l->core->ready && l->first && l->in_flight < IN_FLIGHT_MAX &&
           !l->push_deferred && !timer_armed(&l->again);
}

static void push_rest(void *arg)
{
    struct egress_link *l = arg;

    l->push_deferred = false;
    if (!l->core->stopping)
        egress_push_queue(l);
}

/* Long policies take milliseconds each to be written: the rest follows in the next turn. */
static void push_later(struct egress_link *l)
{
    if (l->core->stopping)
        return;
    l->push_deferred = true;
    core_defer(l->core, &l->later, push_rest, l);
}

void egress_push_queue(struct egress_link *l)
{
    size_t bytes = 0;

    while (may_push(l) && bytes < PUSH_TURN_BYTES) {
        struct sandbox_obj *o = l->first;

        dequeue(l, o);
        if (wants_policy(o))
            bytes += push(l, o);
        else
            not_wanted(o);
    }
    if (may_push(l))
        push_later(l);
}

void egress_ready(struct core *c)
{
    for (unsigned i = 0; c->egress && i < c->egress->n; i++)
        egress_push_queue(&c->egress->links[i]);
}

/* Nothing of it runs, and its policy is sent when something does. */
static bool has_only_files(const struct sandbox_obj *o)
{
    return sandbox_life(o)->files && !o->known_to_privd;
}

static void change(struct egress_link *l, struct sandbox_obj *o)
{
    o->egress_changed = true;
    if (!o->egress_sending)
        enqueue(l, o);
}

void egress_touch(struct sandbox_obj *o)
{
    struct egress_link *l = egress_link_of(o);

    if (!l || has_only_files(o))
        return;
    change(l, o);
    egress_push_queue(l);
}

void egress_touch_and_notify(struct sandbox_obj *o, core_sandbox_cb done, void *arg)
{
    struct egress_link *l = has_only_files(o) ? NULL : egress_link_of(o);
    struct egress_waiter *w = RESERVE_NEW(&o->core->reserve, struct egress_waiter);

    *w = (struct egress_waiter){.next = o->egress_waiters, .done = done, .arg = arg};
    o->egress_waiters = w;
    if (!l) {
        answer(o, NULL); /* there is nothing that lets anything out */
        return;
    }
    if (!l->up) {
        struct err e;

        err_set(&e, ERR_UNAVAILABLE, "it does not answer");
        egress_touch(o);
        not_reached(l, o, &e);
        return;
    }
    change(l, o);
    if (may_push(l)) /* not in the event that has read it, which took as long */
        push_later(l);
}

void egress_leave(struct sandbox_obj *o)
{
    struct egress_link *l = egress_link_of(o);

    if (l)
        dequeue(l, o);
    if (sandbox_life(o)->files)
        answer(o, NULL); /* the stored policy is sent when it runs */
}

void egress_forget(struct sandbox_obj *o)
{
    struct egress_link *l = egress_link_of(o);
    struct err e;

    if (l)
        dequeue(l, o);
    err_set(&e, ERR_NOT_FOUND, "sandbox %s has ended", o->s.id);
    answer(o, &e);
}

void egress_push_again(struct egress_link *l)
{
    struct core *c = l->core;

    for (size_t i = 0; i < c->registry.n; i++) {
        struct sandbox_obj *o = c->registry.order[i];

        if (egress_link_of(o) != l)
            continue;
        o->egress_changed = true;
        if (!o->egress_sending)
            enqueue(l, o);
    }
    egress_push_queue(l);
}
