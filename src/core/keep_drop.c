/* The end of a sandbox whose files are kept: DROP, and again for as long as privd cannot. Called by
 * lifecycle.c when no process of it is left. */

#include "core/keep.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/keep_internal.h"
#include "core/life.h"
#include "core/lifecycle.h"
#include "core/sandbox.h"
#include "core/timers.h"

#include <errno.h>

#define DROP_AGAIN_MS 20u

static void on_dropped(struct core *c, const char *id, int status, const struct privsep_msg *m,
                       int *fds, size_t n_fds, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);
    struct err why;

    if (!o || sandbox_life(o)->kill != LIFE_CALL_UNDER_WAY || !o->s.kept)
        return;
    if (keep_is_gone(status)) {
        o->s.kept = 0;
        lifecycle_ended(o, "nothing of it is left");
    } else if (status == -EBUSY) { /* it is just being kept */
        timers_set(&c->timers, &o->end, clock_mono_ms() + DROP_AGAIN_MS);
    } else {
        call_privd_err(&why, status, "removing its files");
        lifecycle_kill_failed(o, &why);
        if (call_is_channel_error(status))
            return; /* the next LIST */
        log_warn("sandbox %s: %s; trying again", id, why.text);
        timers_set(&c->timers, &o->end, clock_mono_ms() + KEPTS_AGAIN_MS);
    }
}

void keep_drop(struct sandbox_obj *o)
{
    struct privsep_msg m = {.op = PRIVSEP_DROP};
    struct core *c = o->core;
    struct err why;
    int64_t rc;

    m.u.kept.number = o->s.kept;
    keep_owner(o->s.id, m.u.kept.owner);
    if (!o->dropping)
        o->drop_until_ms = clock_mono_ms() + c->config.privd_timeout_ms;
    o->dropping = true;
    rc = call_privd(c, o->s.id, &m, on_dropped, NULL);
    if (rc >= 0) {
        timers_set(&c->timers, &o->end, clock_mono_ms() + c->config.privd_timeout_ms);
        return;
    }
    call_privd_err(&why, rc, "removing its files");
    lifecycle_kill_failed(o, &why);
    if (call_is_channel_error(rc))
        timers_cancel(&c->timers, &o->end); /* the next LIST */
    else
        timers_set(&c->timers, &o->end, clock_mono_ms() + KEPTS_AGAIN_MS);
}

bool keep_drops_quietly(const struct sandbox_obj *o)
{
    return o->dropping && clock_mono_ms() < o->drop_until_ms;
}
