#include "core/busy_wait.h"

#include "base/clock.h"
#include "base/util.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/sandbox.h"

#include <errno.h>

static struct sandbox_obj *reachable(struct core *c, const char *id)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);

    return o && o->known_to_privd && sandbox_life(o)->reachable ? o : NULL;
}

static void on_again(struct timer *t)
{
    struct busy_wait *w = CONTAINER_OF(t, struct busy_wait, again);
    struct sandbox_obj *o = reachable(w->call.core, w->call.id);

    call_unlink(&w->call);
    w->go_on(w, o, o ? 0 : -EBUSY);
}

static void cancel(struct call *call)
{
    struct busy_wait *w = CONTAINER_OF(call, struct busy_wait, call);

    timers_cancel(&call->core->timers, &w->again);
    call_unlink(call);
    w->go_on(w, NULL, -ECANCELED);
}

void busy_wait_begin(struct busy_wait *w,
                     void (*go_on)(struct busy_wait *w, struct sandbox_obj *o, int status))
{
    w->go_on = go_on;
    w->until_ms = clock_mono_ms() + BUSY_WAIT_MS;
}

bool busy_wait_again(struct busy_wait *w, struct core *c, const char *id, int status)
{
    if (status != -EBUSY || c->stopping || clock_mono_ms() >= w->until_ms || !reachable(c, id))
        return false;
    w->call.cancel = cancel;
    w->again.fire = on_again;
    call_link(c, &w->call, id);
    timers_set(&c->timers, &w->again, clock_mono_ms() + BUSY_AGAIN_MS);
    return true;
}
