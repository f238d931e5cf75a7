#include "core/pause_waiters.h"

#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/reserve.h"
#include "core/sandbox.h"

#include <stdlib.h>

struct pause_waiter {
    struct pause_waiter *next;
    core_sandbox_cb done;
    void *arg;
    /* of the first, when all are told later */
    struct deferred later;
    struct err why;
};

void pause_waiters_add(struct core *c, struct pause_waiter **list, core_sandbox_cb done, void *arg)
{
    struct pause_waiter *w = RESERVE_NEW(&c->reserve, struct pause_waiter);

    while (*list)
        list = &(*list)->next;
    *w = (struct pause_waiter){.done = done, .arg = arg};
    *list = w;
}

void pause_waiters_notify(struct sandbox_obj *o, struct pause_waiter **list, const struct err *why)
{
    struct pause_waiter *next;

    for (struct pause_waiter *w = TAKE_PTR(*list); w; w = next) {
        next = w->next;
        w->done(w->arg, why ? NULL : &o->s, why);
        free(w);
    }
}

static void notify_deferred(void *arg)
{
    struct pause_waiter *list = arg;
    const struct err why = list->why;

    pause_waiters_notify(NULL, &list, &why);
}

void pause_waiters_fail_later(struct sandbox_obj *o, struct pause_waiter **list,
                              const struct err *why)
{
    struct pause_waiter *first = TAKE_PTR(*list);

    if (!first)
        return;
    first->why = *why;
    core_defer(o->core, &first->later, notify_deferred, first);
}

/* -- wishes ------------------------------------------------------------------------------------ */

void pause_forget_reboot(struct sandbox_obj *o)
{
    o->reboot = false;
    o->rollback_to[0] = '\0';
    timers_cancel(&o->core->timers, &o->copies_wait);
}

void pause_forget_wishes(struct sandbox_obj *o)
{
    pause_forget_reboot(o);
    o->resume_ttl_ms = 0;
}

void pause_fail(struct sandbox_obj *o, const struct err *why)
{
    trace_sandbox_end(o, why->code);
    pause_forget_wishes(o);
    pause_waiters_fail_later(o, &o->pausers, why);
    pause_waiters_fail_later(o, &o->resumers, why);
    pause_waiters_fail_later(o, &o->archivers, why);
}
