/* The state of a sandbox whose pause or restart had no answer, as after an end of a program: LIST
 * has those that run, KEPTS the files that are kept, and the two decide (life.h). Called by core.c
 * after both, and at the deadline of an answer. */

#include "core/keep.h"

#include "base/clock.h"
#include "core/auto_delete.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/dump.h"
#include "core/keep_internal.h"
#include "core/life.h"
#include "core/lifecycle.h"
#include "core/pause_internal.h"
#include "core/sandbox.h"
#include "core/timers.h"

void keep_on_listed_running(struct sandbox_obj *o)
{
    struct err why;

    if (o->change_requested)
        return; /* the answer is still to come */
    if (dump_again(o))
        return;
    err_set(&why, ERR_UNAVAILABLE, "the pause was interrupted by a restart: the sandbox runs");
    pause_not_done(o, &why);
}

void keep_on_listed_again(struct sandbox_obj *o)
{
    if (o->change_requested)
        return;
    if (sandbox_life(o)->change == LIFE_CHANGE_NONE) {
        sandbox_move(o, SANDBOX_RESTARTING);
        sandbox_write_row(o);
    }
}

/* KEPTS was answered, and LIST has it. Where its own files are whole beside it, it was made of a
 * snapshot's, and it was never told to have been rolled back. A sandbox that was kept
 * with its memory goes on: no answer of its agent's is owed. */
static void settle_listed(struct sandbox_obj *o)
{
    if (o->change_requested || sandbox_life(o)->listed != LIFE_LISTED_AGAIN)
        return;
    o->rolled_back = keep_seen(o->core, o->s.kept, o->s.id) == KEPT_SEEN_WHOLE;
    if (o->s.kept_memory && !o->rolled_back) {
        o->restoring = true;
        o->begun_us = o->made_us = clock_mono_us();
        dump_restored(o);
        return;
    }
    keep_files_again(o);
}

bool keep_on_ended(struct sandbox_obj *o, const char *cause)
{
    struct err why;

    if (!o->rolled_back)
        return false;
    err_set(&why, ERR_UNAVAILABLE,
            "it ended as it booted from the snapshot (%s): the sandbox is paused, with its own "
            "files",
            cause);
    keep_mark_kept(o);
    pause_not_resumed(o, SANDBOX_KEPT, &why);
    return true;
}

/* From then on it is stopped, where it is not just being paused or resumed. */
static void has_lost_memory(struct sandbox_obj *o)
{
    dump_was_lost(o);
    if (sandbox_life(o)->change != LIFE_CHANGE_NONE)
        return;
    o->s.kept_real_ms = clock_real_ms();
    auto_delete_arm(o);
    sandbox_write_row(o);
}

static void is_kept(struct sandbox_obj *o)
{
    enum life_change change = sandbox_life(o)->change;

    if (o->s.kept_memory && o->core->kepts.listed[o->s.kept].without_memory)
        has_lost_memory(o);
    if (change == LIFE_CHANGE_PAUSE) {
        keep_mark_kept(o);
        pause_done(o, SANDBOX_KEPT);
    } else if (change == LIFE_CHANGE_RESUME) {
        keep_stays_kept(o);
    }
}

void keep_on_missing(struct sandbox_obj *o, enum kept_seen seen)
{
    if (o->change_requested)
        return;
    o->known_to_privd = false;
    switch (seen) {
    case KEPT_SEEN_WHOLE: is_kept(o); break;
    case KEPT_SEEN_BUSY:
        if (o->keep_late) /* a caller may have come since */
            keep_waits(o);
        else if (sandbox_life(o)->change != LIFE_CHANGE_NONE)
            timers_set(&o->core->timers, &o->end, clock_mono_ms() + KEPTS_AGAIN_MS);
        break;
    case KEPT_SEEN_NONE:
        if (o->restart_refused) { /* the refusal says so */
            keep_stays_kept(o);
            break;
        }
        o->end_reason = "error";
        lifecycle_ended(o, "its files, which were kept, are not there any more");
        break;
    }
}

static void on_kepts_answered(struct core *c, int status)
{
    if (status == 0)
        keep_settle_all(c);
}

int keep_request_settle(struct core *c)
{
    return keep_send_kepts(c, on_kepts_answered);
}

bool keep_on_timer(struct sandbox_obj *o)
{
    struct err why;

    if (dump_on_timer(o))
        return true;
    if (o->change_requested && !o->keep_requested && o->known_to_privd &&
        sandbox_life(o)->change == LIFE_CHANGE_RESUME) {
        err_set(&why, ERR_TIMEOUT, "the sandbox was not ready in time: it is paused still");
        keep_restart_failed(o, &why);
        return true;
    }
    if (o->change_requested)
        return false;
    (void)keep_request_settle(o->core);
    return true;
}

/* Backwards: to end one, or to have it run, moves only what comes after it. */
void keep_settle_all(struct core *c)
{
    for (size_t i = c->registry.n; i > 0; i--) {
        struct sandbox_obj *o = i <= c->registry.n ? c->registry.order[i - 1] : NULL;

        if (o && !o->known_to_privd && sandbox_life(o)->missing == LIFE_MISSING_FILES)
            keep_on_missing(o, keep_seen(c, o->s.kept, o->s.id));
    }
    keep_settle_listed(c);
}

void keep_settle_listed(struct core *c)
{
    for (size_t i = c->registry.n; i > 0; i--)
        if (c->registry.order[i - 1]->known_to_privd)
            settle_listed(c->registry.order[i - 1]);
}
