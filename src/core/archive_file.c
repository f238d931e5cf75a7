/* Requests to privd (ARCHIVE, ARCHIVE_STOP), and the results for the sandbox. Nothing is
 * written before ARCHIVE is answered: privd's record and disk alone say whether the number has an
 * archive, and the row has only what clients are shown. A cayd that ends meanwhile asks again when
 * it is due. */

#include "core/archive_file.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/keep.h"
#include "core/life.h"
#include "core/logs.h"
#include "core/pause_internal.h"
#include "core/pause_waiters.h"
#include "core/sandbox.h"

#include <errno.h>
#include <string.h>

static void on_archived(struct core *c, const char *id, int status, const struct privsep_msg *m,
                        int *fds, size_t n_fds, void *arg);

static int64_t ask(struct sandbox_obj *o, uint16_t op, call_privd_cb cb)
{
    struct privsep_msg m = {.op = op};

    m.u.kept.number = o->s.kept;
    keep_owner(o->s.id, m.u.kept.owner);
    return call_privd(o->core, o->s.id, &m, cb, NULL);
}

/* -- the answer -------------------------------------------------------------------------------- */

static void refusal(struct err *e, int status, const struct privsep_msg *m)
{
    const char *why = m ? m->u.refused.why : "";
    int n = (int)strnlen(why, PRIVSEP_WHY_SIZE);
    enum err_code code = status == -EOPNOTSUPP || status == -EALREADY ? ERR_CONFLICT
                         : status == -ENOSPC || status == -EDQUOT     ? ERR_NO_SPACE
                                                                      : ERR_UNAVAILABLE;

    if (!m)
        (void)call_privd_err(e, status, "archiving the sandbox");
    else
        err_set(e, code, "the sandbox was not archived, its files are kept as they are: %.*s",
                n > 0 ? n : (int)strlen(strerror(-status)), n > 0 ? why : strerror(-status));
}

static void start_that_waits(struct sandbox_obj *o)
{
    struct err e;

    if (o->resumers && life_is_at_rest(o->s.state) && pause_begin_resume(o, &e) != ERR_OK)
        pause_not_resumed(o, SANDBOX_KEPT, &e);
}

static void on_archived(struct core *c, const char *id, int status, const struct privsep_msg *m,
                        int *fds, size_t n_fds, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);
    struct err why;

    if (o && o->archiving && life_is_at_rest(o->s.state) && !c->stopping) {
        o->archiving = false;
        o->archive_tried = m && status != -ECANCELED;
        refusal(&why, status, m);
        if (status == 0) {
            o->s.in_archive = true;
            pause_write_row(o);
            log_info("sandbox %s: its files are archived", id);
            logs_add(o, "info", "its files are archived");
        } else if (status != -ECANCELED) {
            log_info("sandbox %s: %s", id, why.text);
        }
        pause_waiters_notify(o, &o->archivers, status == 0 ? NULL : &why);
        start_that_waits(o);
    }
    archive_file_arm(c);
}

/* -- asking ------------------------------------------------------------------------------------ */

static enum err_code begin(struct sandbox_obj *o, struct err *e)
{
    enum err_code code = core_check_ready(o->core, e);
    int64_t rc;

    if (code == ERR_OK && !core_sandbox_is_stopped(&o->s))
        code = err_set(e, ERR_CONFLICT,
                       "the sandbox was not archived: its files alone have to be kept, and it is "
                       "%s: `cay pause --files` first",
                       sandbox_life(o)->name);
    if (code != ERR_OK || o->archiving)
        return code;
    rc = ask(o, PRIVSEP_ARCHIVE, on_archived);
    if (rc < 0)
        return call_privd_err(e, rc, "archiving the sandbox");
    o->archiving = true;
    return ERR_OK;
}

void core_sandbox_archive_files(struct core *c, const char *tenant, const char *id,
                                core_sandbox_cb done, void *arg)
{
    struct sandbox_obj *o = NULL;
    struct err e;
    enum err_code code = sandbox_visible(c, tenant, id, &o, &e);

    if (code == ERR_OK && !o->s.in_archive)
        code = begin(o, &e);
    if (code != ERR_OK) {
        core_defer_error(c, done, arg, &e);
        return;
    }
    if (o->s.in_archive)
        done(arg, &o->s, NULL);
    else
        pause_waiters_add(c, &o->archivers, done, arg);
}

void archive_file_try(struct sandbox_obj *o)
{
    struct err e;

    if (!o->s.in_archive && begin(o, &e) != ERR_OK)
        log_debug("sandbox %s: %s", o->s.id, e.text);
}

/* -- what comes first -------------------------------------------------------------------------- */

bool archive_file_is_under_way(const struct sandbox_obj *o)
{
    return o->archiving;
}

/* The answer to ARCHIVE comes, whatever this one's is. */
static void on_stopped(struct core *c, const char *id, int status, const struct privsep_msg *m,
                       int *fds, size_t n_fds, void *arg)
{
}

enum err_code archive_file_stop(struct sandbox_obj *o, struct err *e)
{
    int64_t rc = ask(o, PRIVSEP_ARCHIVE_STOP, on_stopped);

    if (rc < 0)
        return call_privd_err(e, rc, "resuming the sandbox");
    timers_cancel(&o->core->timers, &o->end); /* it is being started */
    return ERR_OK;
}

void archive_file_forget(struct sandbox_obj *o)
{
    o->s.in_archive = o->archive_tried = false;
}

/* -- by age ------------------------------------------------------------------------------------ */

static bool may_be_archived(const struct sandbox_obj *o)
{
    return core_sandbox_is_stopped(&o->s) && !o->s.in_archive && !o->archive_tried &&
           !o->resumers && o->s.kept_real_ms > 0;
}

/* The one that was stopped first; NULL: there is none, or one is being archived. */
static struct sandbox_obj *next_of(struct core *c)
{
    struct sandbox_obj *found = NULL;

    for (size_t i = 0; i < c->registry.n; i++) {
        struct sandbox_obj *o = c->registry.order[i];

        if (o->archiving)
            return NULL;
        if (may_be_archived(o) && (!found || o->s.kept_real_ms < found->s.kept_real_ms))
            found = o;
    }
    return found;
}

static int64_t left_ms(const struct core *c, const struct sandbox_obj *o)
{
    int64_t after = (int64_t)c->config.archive_after_ms;

    return MIN(MAX(o->s.kept_real_ms + after - clock_real_ms(), 0), after);
}

static void on_due(struct timer *t)
{
    struct core *c = CONTAINER_OF(t, struct core, archive_due);
    struct sandbox_obj *o = next_of(c);
    struct err e;

    if (!o || !c->ready)
        return; /* the end of another, or the next connection, arms it */
    if (left_ms(c, o) == 0 && begin(o, &e) != ERR_OK) {
        log_warn("sandbox %s: %s", o->s.id, e.text);
        o->archive_tried = true;
    }
    archive_file_arm(c);
}

void archive_file_arm(struct core *c)
{
    struct sandbox_obj *o = c->config.archive_after_ms && c->ready && !c->stopping ? next_of(c)
                                                                                   : NULL;

    c->archive_due.fire = on_due;
    if (o)
        timers_set(&c->timers, &c->archive_due, clock_mono_ms() + (uint64_t)left_ms(c, o));
    else
        timers_cancel(&c->timers, &c->archive_due);
}
