/* privd sends two descriptors of one file, opened apart. The client's has a shared lock,
 * which goes with its last copy, wherever that is closed; the one that is held here is tried for an
 * exclusive lock now and then, and closed once that succeeds. */

#include "core/transfer_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/util.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/keep.h"
#include "core/snapshot_internal.h"
#include "core/template.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>

#define WHAT          "the snapshot was not exported"
#define CHECK_EACH_MS 1000u

static void fail(struct transfer *x, const struct err *why)
{
    core_export_cb done = x->exported;
    void *arg = x->arg;

    transfer_remove(x);
    if (done)
        done(arg, -1, 0, why);
}

/* -- while it is read -------------------------------------------------------------------------- */

static void check_reader(struct transfer *x)
{
    if (flock(x->held_fd, LOCK_EX | LOCK_NB) == 0)
        transfer_remove(x);
    else
        timers_set(&x->core->timers, &x->timer, clock_mono_ms() + CHECK_EACH_MS);
}

static void on_check(struct timer *t)
{
    check_reader(CONTAINER_OF(t, struct transfer, timer));
}

static void check_all(struct core *c)
{
    struct transfer *next;

    for (struct transfer *x = c->transfers; x; x = next) {
        next = x->next;
        if (x->state == TRANSFER_READ)
            check_reader(x);
    }
}

/* 0, or -errno: none of the descriptors is taken. */
static int take(struct transfer *x, const int *fds, size_t n, uint64_t *bytes)
{
    struct stat st;

    if (n != PRIVSEP_EXPORT_FDS)
        return -EPROTO;
    if (flock(fds[0], LOCK_SH | LOCK_NB) < 0 || fstat(fds[0], &st) < 0)
        return -errno;
    *bytes = (uint64_t)st.st_size;
    x->held_fd = fds[1];
    x->state = TRANSFER_READ;
    x->timer.fire = on_check;
    timers_set(&x->core->timers, &x->timer, clock_mono_ms() + CHECK_EACH_MS);
    return 0;
}

/* -- with privd -------------------------------------------------------------------------------- */

static void on_exported(struct core *c, const char *id, int status, const struct privsep_msg *m,
                        int *fds, size_t n_fds, void *arg)
{
    struct transfer *x = transfer_get(c, strtoull(id, NULL, 10));
    uint64_t bytes = 0;
    int rc = status == 0 && x ? take(x, fds, n_fds, &bytes) : status;
    struct err why;

    if (!x || rc < 0) {
        for (size_t i = 0; i < n_fds; i++)
            close(fds[i]);
    }
    if (x && rc == 0) {
        core_export_cb done = x->exported;

        log_info("snapshot %s: exported", x->snapshot);
        x->exported = NULL;
        done(x->arg, fds[0], bytes, NULL);
    } else if (x) {
        transfer_refusal(&why, rc, rc == status ? m : NULL, WHAT);
        if (why.code == ERR_CONFLICT && !why.hint[0])
            err_hint(&why, "`cay template export` writes all that a sandbox of it begins with as a "
                           "container image; a file that it began with can be imported again");
        log_info("snapshot %s: %s", x->snapshot, why.text);
        fail(x, &why);
    }
    transfer_next(c);
}

static enum err_code fill(const struct transfer *x, const struct snapshot_obj *o,
                          struct privsep_msg *m, struct err *e)
{
    const struct template_info *t = core_template_by_id(x->core, o->s.template_id);

    if (!t || !t->id || strlen(t->id) >= sizeof(m->u.exchange.template_name) ||
        strlen(t->digest) >= sizeof(m->u.exchange.template_digest))
        return err_set(e, ERR_CONFLICT, WHAT ": its template '%.100s' is not there",
                       o->s.template_id);
    m->u.exchange.number = o->s.number;
    keep_owner(o->s.id, m->u.exchange.owner);
    m->u.exchange.template_number = t->number;
    (void)snprintf(m->u.exchange.template_name, sizeof(m->u.exchange.template_name), "%s", t->id);
    (void)snprintf(m->u.exchange.template_digest, sizeof(m->u.exchange.template_digest), "%s",
                   t->digest);
    m->u.exchange.cpu_milli = o->s.limits.cpu_milli;
    m->u.exchange.memory_bytes = o->s.limits.memory_bytes;
    m->u.exchange.disk_bytes = o->s.limits.disk_bytes;
    m->u.exchange.made_real_ms = o->s.made_real_ms;
    return ERR_OK;
}

static enum err_code request(struct transfer *x, struct err *e)
{
    const struct snapshot_obj *o = snapshot_get(x->core, x->snapshot);
    struct privsep_msg m = {.op = PRIVSEP_EXPORT};
    char number[24];
    int64_t rc;

    if (!o || o->s.state != SNAPSHOT_READY)
        return err_set(e, ERR_NOT_FOUND, WHAT ": it was removed meanwhile");
    if (fill(x, o, &m, e) != ERR_OK)
        return e->code;
    (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)x->number);
    rc = call_privd(x->core, number, &m, on_exported, NULL);
    return rc < 0 ? call_privd_err(e, rc, WHAT) : ERR_OK;
}

static const struct transfer_kind kind = {.name = "export",
                                          .hint = "wait until it has ended and its file was read",
                                          .most = CORE_EXPORTS_MAX,
                                          .request = request,
                                          .fail = fail};

void core_snapshot_export(struct core *c, const char *tenant, const char *name, core_export_cb done,
                          void *arg)
{
    const struct snapshot *s = core_snapshot_find(c, tenant, name);
    struct transfer *x = NULL;
    struct err e;
    enum err_code code = core_check_ready(c, &e);

    if (code == ERR_OK && !s)
        code = snapshot_missing(name, &e);
    if (code == ERR_OK)
        code = keep_check(c, &e);
    check_all(c);
    if (code == ERR_OK)
        x = transfer_new(c, tenant, &kind, &e);
    if (!x) {
        done(arg, -1, 0, &e);
        return;
    }
    x->state = TRANSFER_WAITING;
    memcpy(x->snapshot, s->id, sizeof(x->snapshot));
    x->exported = done;
    x->arg = arg;
    transfer_next(c);
}
