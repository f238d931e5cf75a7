/* Requests to privd (ARCHIVE, ARCHIVE_STOP), and the results for the sandbox. Nothing is
 * written before ARCHIVE is answered: privd's record and disk alone say whether the number has an
 * archive, and the row has only what clients are shown. A cayd that ends meanwhile asks again when
 * it is due.
 *
 * privd makes one archive at a time. Sandboxes whose archive was asked for, and those that are due
 * by age, wait for their turn: archive_due fires when none is being made and one is due, and
 * next_of takes the tenant that had its turn longest ago. So a tenant with many does not keep the
 * others from theirs. */

#include "core/archive_file.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/auto_delete.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/keep.h"
#include "core/life.h"
#include "core/logs.h"
#include "core/pause_internal.h"
#include "core/pause_waiters.h"
#include "core/sandbox.h"
#include "core/tenant.h"
#include "core/tier.h"

#include <errno.h>
#include <string.h>

#define BUSY_AGAIN_MS         60000u  /* privd had no place for the job */
#define ARCHIVE_SEND_AGAIN_MS 600000u /* the bucket did not take the archive */

static void on_archived(struct core *c, const char *id, int status, const struct privsep_msg *m,
                        int *fds, size_t n_fds, void *arg);

static int64_t send_request(struct sandbox_obj *o, uint16_t op, call_privd_cb cb)
{
    struct privsep_msg m = {.op = op};

    m.u.kept.number = o->s.kept;
    keep_owner(o->s.id, m.u.kept.owner);
    if (op == PRIVSEP_FETCH)
        m.u.kept.account = tenant_privd_account(o->s.tenant);
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

/* Its owner has allowed that its files alone are kept: to be archived it may lose its memory. */
static bool may_lose_memory(const struct sandbox_obj *o)
{
    return life_is_at_rest(o->s.state) && tier_number(&o->s) == SANDBOX_TIER_MEMORY_OR_FILES;
}

static void give_up_memory(struct sandbox_obj *o)
{
    err_set(&o->fell, ERR_CONFLICT, "its memory was given up when its files were archived");
    log_warn("sandbox %s: %s", o->s.id, o->fell.text);
    logs_add(o, "warn", "%s", o->fell.text);
    o->s.kept_memory = false;
}

/* Where the bucket did not take it, it lies on the state disk until it does. */
static void is_archived(struct sandbox_obj *o, const char *stays)
{
    if (!o->s.in_archive) {
        log_info("sandbox %s: its files are archived", o->s.id);
        logs_add(o, "info", "its files are archived");
    }
    o->archive_here = false;
    o->archive_sent = !stays[0];
    if (stays[0]) {
        log_warn("sandbox %s: its archive is not in the bucket: %.*s", o->s.id, PRIVSEP_WHY_SIZE,
                 stays);
        o->archive_not_before_ms = clock_mono_ms() + ARCHIVE_SEND_AGAIN_MS;
    }
    if (!o->s.in_archive) {
        const bool had_memory = o->s.kept_memory;

        if (had_memory) /* it is stopped from now on */
            give_up_memory(o);
        o->s.in_archive = true;
        if (had_memory) {
            o->s.kept_real_ms = clock_real_ms();
            auto_delete_arm(o);
            pause_notify_owner(o);
        }
        sandbox_write_row(o);
    }
}

static void on_archived(struct core *c, const char *id, int status, const struct privsep_msg *m,
                        int *fds, size_t n_fds, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);
    struct err why;

    if (o && o->archiving && life_is_at_rest(o->s.state) && !c->stopping) {
        bool busy = status == -EAGAIN || status == -EBUSY;

        o->archiving = false;
        o->archive_requested = busy && !o->archivers; /* a caller is told, and may ask again */
        o->archive_tried = m && status != -ECANCELED && !busy;
        o->archive_sent = o->archive_tried;
        o->archive_not_before_ms = busy ? clock_mono_ms() + BUSY_AGAIN_MS : 0;
        refusal(&why, status, m);
        if (status == 0) {
            is_archived(o, m->u.refused.why);
        } else if (status != -ECANCELED) {
            log_info("sandbox %s: %s", id, why.text);
        }
        pause_waiters_notify(o, &o->archivers, status == 0 ? NULL : &why);
        start_that_waits(o);
    }
    archive_file_arm(c);
}

/* -- asking ------------------------------------------------------------------------------------ */

static enum err_code check(const struct sandbox_obj *o, struct err *e)
{
    enum err_code code = keep_check(o->core, e); /* else the advice below would be refused */
    bool wakes = life_of(o->s.state)->wakes;

    if (code != ERR_OK)
        return code;
    if (core_sandbox_is_stopped(&o->s) || may_lose_memory(o))
        return core_check_ready(o->core, e);
    err_set(e, ERR_CONFLICT,
            "the sandbox was not archived: its files alone have to be kept, and it is %s%s",
            sandbox_state_text(o), wakes ? " with its memory" : "");
    err_hint(e, wakes ? "`cay resume` it, then `cay pause --files`, then archive it"
                      : "`cay pause --files` first");
    return ERR_CONFLICT;
}

static enum err_code begin(struct sandbox_obj *o, struct err *e)
{
    enum err_code code = check(o, e);
    int64_t rc;

    if (code != ERR_OK)
        return code;
    rc = send_request(o, PRIVSEP_ARCHIVE, on_archived);
    if (rc < 0)
        return call_privd_err(e, rc, "archiving the sandbox");
    o->archiving = true;
    o->tenant->archive_turn = ++o->core->archive_turns;
    return ERR_OK;
}

static void want(struct sandbox_obj *o)
{
    o->archive_requested = true;
    o->archive_not_before_ms = 0;
    archive_file_arm(o->core);
}

void core_sandbox_archive_files(struct core *c, const char *tenant, const char *id,
                                core_sandbox_cb done, void *arg)
{
    struct sandbox_obj *o = NULL;
    struct err e;
    enum err_code code = sandbox_visible(c, tenant, id, &o, &e);

    if (code == ERR_OK && !o->s.in_archive)
        code = check(o, &e);
    if (code != ERR_OK) {
        core_defer_error(c, done, arg, &e);
        return;
    }
    if (o->s.in_archive) {
        o->archive_not_before_ms = 0;
        archive_file_arm(c);
        done(arg, &o->s, NULL);
        return;
    }
    pause_waiters_add(c, &o->archivers, done, arg);
    want(o);
}

void archive_file_try(struct sandbox_obj *o)
{
    if (!o->s.in_archive && core_sandbox_is_stopped(&o->s))
        want(o);
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
    int64_t rc = send_request(o, PRIVSEP_ARCHIVE_STOP, on_stopped);

    if (rc < 0)
        return call_privd_err(e, rc, "resuming the sandbox");
    timers_cancel(&o->core->timers, &o->end); /* it is being started */
    return ERR_OK;
}

/* -- from the bucket --------------------------------------------------------------------------- */

/* Also where no answer to ARCHIVE came: privd knows, and answers at once where nothing is away. */
bool archive_file_may_be_away(const struct sandbox_obj *o)
{
    return core_sandbox_is_stopped(&o->s) && !o->archive_here && !o->rollback_to[0] &&
           (o->s.in_archive || o->core->config.archive_bucket);
}

/* Its files are as they were: here or there. */
static void not_fetched(struct sandbox_obj *o, int status, const struct privsep_msg *m)
{
    struct err why;

    if (!m)
        (void)call_privd_err(&why, status, "fetching the sandbox's archive");
    else
        err_set(&why, status == -ENOSPC ? ERR_NO_SPACE : ERR_UNAVAILABLE,
                "the sandbox is paused still: %.*s", PRIVSEP_WHY_SIZE, m->u.refused.why);
    if (status == -ENODATA || status == -EBADMSG)
        err_hint(&why, "the operator puts the object back from a backup of the bucket, and then it "
                       "resumes; its files are nowhere else (`cay kill` ends it)");
    logs_add(o, "warn", "%s", why.text);
    pause_not_resumed(o, SANDBOX_KEPT, &why);
}

static void on_fetched(struct core *c, const char *id, int status, const struct privsep_msg *m,
                       int *fds, size_t n_fds, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);

    if (!o || !o->fetching)
        return;
    o->fetching = false;
    if (!core_sandbox_is_stopped(&o->s) || c->stopping)
        return; /* it was rolled back meanwhile */
    if (status != 0) {
        not_fetched(o, status, m);
        return;
    }
    o->archive_here = true;
    o->archive_sent = false;
    o->archive_not_before_ms = clock_mono_ms() + ARCHIVE_SEND_AGAIN_MS;
    start_that_waits(o);
}

enum err_code archive_file_fetch(struct sandbox_obj *o, struct err *e)
{
    int64_t rc;

    if (o->fetching)
        return ERR_OK;
    rc = send_request(o, PRIVSEP_FETCH, on_fetched);
    if (rc < 0)
        return call_privd_err(e, rc, "fetching the sandbox's archive");
    o->fetching = true;
    timers_cancel(&o->core->timers, &o->end); /* it is being started */
    return ERR_OK;
}

/* -- turns ------------------------------------------------------------------------------------- */

static bool may_be_archived(const struct sandbox_obj *o)
{
    const struct core_config *config = &o->core->config;

    if ((!core_sandbox_is_stopped(&o->s) && !may_lose_memory(o)) || o->resumers || o->fetching)
        return false;
    if (o->s.in_archive)
        return config->archive_bucket && !o->archive_sent;
    return o->archive_requested ||
           (config->archive_after_ms && !o->archive_tried && o->s.kept_real_ms > 0);
}

static uint64_t left_ms(const struct sandbox_obj *o)
{
    int64_t after = (int64_t)o->core->config.archive_after_ms;
    int64_t age = MIN(MAX(o->s.kept_real_ms + after - clock_real_ms(), 0), after);
    uint64_t now = clock_mono_ms();
    uint64_t again = o->archive_not_before_ms > now ? o->archive_not_before_ms - now : 0;

    return MAX(o->archive_requested || o->s.in_archive ? 0 : (uint64_t)age, again);
}

static bool comes_before(const struct sandbox_obj *a, const struct sandbox_obj *b)
{
    uint64_t left_a = left_ms(a), left_b = left_ms(b);

    if (left_a != left_b)
        return left_a < left_b;
    if (a->tenant->archive_turn != b->tenant->archive_turn)
        return a->tenant->archive_turn < b->tenant->archive_turn;
    return a->s.kept_real_ms < b->s.kept_real_ms;
}

/* NULL: there is none, or one is being archived. */
static struct sandbox_obj *next_of(struct core *c)
{
    struct sandbox_obj *found = NULL;

    for (size_t i = 0; i < c->registry.n; i++) {
        struct sandbox_obj *o = c->registry.order[i];

        if (o->archiving)
            return NULL;
        if (may_be_archived(o) && (!found || comes_before(o, found)))
            found = o;
    }
    return found;
}

static void on_due(struct timer *t)
{
    struct core *c = CONTAINER_OF(t, struct core, archive_due);
    struct sandbox_obj *o = next_of(c);
    struct err e;

    if (!o || !c->ready)
        return; /* the end of another, or the next connection, arms it */
    if (left_ms(o) == 0 && begin(o, &e) != ERR_OK) {
        log_warn("sandbox %s: %s", o->s.id, e.text);
        o->archive_requested = false;
        o->archive_tried = true;
        pause_waiters_notify(o, &o->archivers, &e);
    }
    archive_file_arm(c);
}

void archive_file_arm(struct core *c)
{
    struct sandbox_obj *o = c->ready && !c->stopping ? next_of(c) : NULL;

    c->archive_due.fire = on_due;
    if (o)
        timers_set(&c->timers, &c->archive_due, clock_mono_ms() + left_ms(o));
    else
        timers_cancel(&c->timers, &c->archive_due);
}
