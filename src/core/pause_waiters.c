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
};

void pause_waiters_add(struct core *c, struct pause_waiter **list, core_sandbox_cb done, void *arg)
{
    struct pause_waiter *w = RESERVE_NEW(&c->reserve, struct pause_waiter);

    while (*list)
        list = &(*list)->next;
    *w = (struct pause_waiter){NULL, done, arg};
    *list = w;
}

void pause_waiters_tell(struct sandbox_obj *o, struct pause_waiter **list, const struct err *why)
{
    struct pause_waiter *next;

    for (struct pause_waiter *w = TAKE_PTR(*list); w; w = next) {
        next = w->next;
        w->done(w->arg, why ? NULL : &o->s, why);
        free(w);
    }
}

struct told_later {
    struct core *core;
    struct pause_waiter *list;
    struct err why;
};

static void tell_deferred(void *arg)
{
    CLEANUP_FREE struct told_later *t = arg;

    pause_waiters_tell(NULL, &t->list, &t->why);
}

void pause_waiters_fail_later(struct sandbox_obj *o, struct pause_waiter **list,
                              const struct err *why)
{
    struct told_later *t;

    if (!*list)
        return;
    t = RESERVE_NEW(&o->core->reserve, struct told_later);
    *t = (struct told_later){o->core, TAKE_PTR(*list), *why};
    core_defer(o->core, tell_deferred, t);
}
