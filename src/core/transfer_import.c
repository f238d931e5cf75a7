/* An import in its steps. Its row and its number are there from the first
 * (core_snapshot_import_begin), so it counts, and its file lies by that number. The bytes come, or
 * it is dropped: by its client's end, or when its time is over. Then its header says on which
 * template it lies (core_snapshot_import_end), which goes into the row, and it waits for its turn
 * with privd. privd's answer ends it: the snapshot is ready, or there is none. A failure before
 * that removes row and file here; what another end leaves, the next start removes: the row as of
 * any snapshot that was not confirmed, the file with all that is left there (image_spool.h). */
#include "core/transfer_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "contract/exchange.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/image_spool.h"
#include "core/keep.h"
#include "core/snapshot_internal.h"
#include "core/store_snapshot.h"
#include "core/template_tenant.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define WHAT "the snapshot was not imported"

static enum err_code request(struct transfer *x, struct err *e);
static void fail(struct transfer *x, const struct err *why);

static const struct transfer_kind kind = {.name = "import",
                                          .hint = "wait until it has ended",
                                          .most = CORE_IMPORTS_MAX,
                                          .request = request,
                                          .fail = fail};

static void remove_file(const struct transfer *x)
{
    const struct snapshot_obj *o = snapshot_get(x->core, x->snapshot);

    if (o)
        image_spool_remove(x->core, EXCHANGE_SPOOL_FIRST + o->s.number);
}

/* Nothing is kept by its number. */
static void fail(struct transfer *x, const struct err *why)
{
    struct snapshot_obj *o = snapshot_get(x->core, x->snapshot);
    core_snapshot_cb done = x->imported;
    void *arg = x->arg;

    remove_file(x);
    transfer_remove(x);
    if (o && !o->requested)
        snapshot_forget(o);
    if (done)
        done(arg, NULL, why);
}

/* -- the bytes --------------------------------------------------------------------------------- */

static void on_late(struct timer *t)
{
    struct transfer *x = CONTAINER_OF(t, struct transfer, timer);
    struct err why;

    err_set(&why, ERR_TIMEOUT, WHAT ": it took too long to send it");
    log_info("snapshot %s: %s", x->snapshot, why.text);
    fail(x, &why);
}

static enum err_code check(struct core *c, const char *name, struct err *e)
{
    if (core_check_ready(c, e) != ERR_OK || keep_check(c, e) != ERR_OK)
        return e->code;
    return snapshot_check_name(name, e);
}

/* The row, by which it counts from now on. */
static enum err_code make_snapshot(struct transfer *x, const char *name, struct snapshot_obj **out,
                                   struct err *e)
{
    struct core *c = x->core;
    struct snapshot s = {.tenant = x->tenant,
                         .state = SNAPSHOT_MAKING,
                         .kind = SNAPSHOT_PLAIN,
                         .limits = c->config.limits,
                         .made_real_ms = clock_real_ms()};

    if (snapshot_check_quota(c, x->tenant, e) != ERR_OK ||
        keep_choose_number(c, x->tenant, &s.number, e) != ERR_OK)
        return e->code;
    ids_sandbox(s.id);
    s.id[0] = 's';
    (void)snprintf(s.name, sizeof(s.name), "%s", name);
    if (store_snapshot_insert(c->store, &s, e) != ERR_OK)
        return e->code;
    *out = snapshot_enter(c, &s);
    if (!*out) {
        store_snapshot_delete(c->store, s.id, NULL);
        return err_set(e, ERR_UNAVAILABLE, "memory is out");
    }
    (*out)->imports = true;
    memcpy(x->snapshot, s.id, sizeof(x->snapshot));
    return ERR_OK;
}

static enum err_code make_file(const struct transfer *x, uint32_t number,
                               struct core_build_upload *out, struct err *e)
{
    if (image_spool_make(x->core, number, e) != ERR_OK)
        return e->code;
    out->fd = image_spool_open(x->core, number, 0, 0, e);
    out->number = x->number;
    out->most_bytes = EXCHANGE_FILE_MAX;
    return out->fd < 0 ? e->code : ERR_OK;
}

enum err_code core_snapshot_import_begin(struct core *c, const char *tenant, const char *name,
                                         struct core_build_upload *out, struct err *e)
{
    struct snapshot_obj *o = NULL;
    struct transfer *x;

    if (check(c, name, e) != ERR_OK || !(x = transfer_new(c, tenant, &kind, e)))
        return e->code;
    x->state = TRANSFER_RECEIVING;
    if (make_snapshot(x, name, &o, e) != ERR_OK ||
        make_file(x, EXCHANGE_SPOOL_FIRST + o->s.number, out, e) != ERR_OK) {
        enum err_code code = e->code;

        fail(x, e);
        return code;
    }
    x->timer.fire = on_late;
    timers_set(&c->timers, &x->timer, clock_mono_ms() + CORE_IMPORT_MS);
    return ERR_OK;
}

void core_snapshot_import_drop(struct core *c, uint64_t number)
{
    struct transfer *x = transfer_get(c, number);

    if (x && x->state == TRANSFER_RECEIVING)
        fail(x, NULL);
}

/* -- what it says of itself -------------------------------------------------------------------- */

static bool is_usable(const struct template_info *t, const char *digest)
{
    return t && t->id && t->ready && strcmp(t->digest, digest) == 0;
}

/* Of an image: by its digest, the tenant's own or the server's, whatever its name is here. Else by
 * its name. */
static const struct template_info *find_template(struct core *c, const char *tenant,
                                                 const struct exchange_header *h)
{
    const struct template_info *all, *t;

    if (!h->template_digest[0]) {
        t = core_template_by_id(c, h->template_name);
        return is_usable(t, "") && !t->tenant[0] ? t : NULL;
    }
    t = template_tenant_find(c, tenant, h->template_digest);
    if (t)
        return t;
    for (size_t n = core_templates(c, false, &all), i = 0; i < n; i++)
        if (is_usable(&all[i], h->template_digest))
            return core_template_by_id(c, all[i].id);
    return NULL;
}

static enum err_code refuse_template(const struct exchange_header *h, struct err *e)
{
    if (!h->template_digest[0]) {
        err_set(e, ERR_CONFLICT,
                WHAT ": it lies on the template '%s', which is not ready on this server",
                h->template_name);
        err_hint(e, "the operator makes it with `cay template build %s`", h->template_name);
        return e->code;
    }
    err_set(e, ERR_CONFLICT,
            WHAT ": it lies on a template of the image %s ('%s' where it was exported), of which "
                 "this server has none",
            h->template_digest, h->template_name);
    err_hint(e, "make a template of that image first: `cay template import`, or a build FROM it");
    return e->code;
}

static enum err_code read_header(const struct transfer *x, const struct snapshot_obj *o,
                                 struct exchange_header *h, struct err *e)
{
    CLEANUP_CLOSE int fd = image_spool_read(x->core, EXCHANGE_SPOOL_FIRST + o->s.number, 0);
    int rc = fd < 0 ? fd : exchange_read(fd, h);

    if (rc == 0)
        return ERR_OK;
    if (rc == -EPROTO)
        return err_set(e, ERR_INVALID, WHAT ": the file is of another version of cay");
    if (rc == -EBADMSG)
        return err_set(e, ERR_INVALID,
                       WHAT ": it is no exported snapshot, or a part of it is missing");
    return err_set_sys(e, ERR_INTERNAL, rc, "reading the file that was sent");
}

/* They are what its creates would ask for. Of any file that a server of ours has made it is so. */
static enum err_code check_sizes(const struct exchange_header *h, struct err *e)
{
    if (privsep_are_sizes(h->memory_bytes, h->disk_bytes, h->cpu_milli))
        return ERR_OK;
    return err_set(e, ERR_INVALID,
                   WHAT ": it says that its sandboxes have %" PRIu64 " bytes of memory, %" PRIu64
                        " of disk and %" PRIu32 " thousandths of a core, which none can have",
                   h->memory_bytes, h->disk_bytes, h->cpu_milli);
}

/* The row has the template from before privd is asked, so that it stays (snapshots_lie_on). */
static enum err_code take_header(const struct transfer *x, struct snapshot_obj *o, struct err *e)
{
    const struct template_info *t;
    struct exchange_header h;
    struct snapshot s = o->s;

    if (read_header(x, o, &h, e) != ERR_OK || check_sizes(&h, e) != ERR_OK)
        return e->code;
    t = find_template(x->core, x->tenant, &h);
    if (!t)
        return refuse_template(&h, e);
    (void)snprintf(s.template_id, sizeof(s.template_id), "%s", t->id);
    s.level = h.level;
    s.limits.memory_bytes = h.memory_bytes;
    s.limits.disk_bytes = h.disk_bytes;
    s.limits.cpu_milli = h.cpu_milli;
    if (store_snapshot_delete(x->core->store, s.id, e) != ERR_OK ||
        store_snapshot_insert(x->core->store, &s, e) != ERR_OK)
        return e->code;
    o->s = s;
    return ERR_OK;
}

/* -- with privd -------------------------------------------------------------------------------- */

static void on_imported(struct core *c, const char *id, int status, const struct privsep_msg *m,
                        int *fds, size_t n_fds, void *arg)
{
    struct transfer *x = transfer_get(c, strtoull(id, NULL, 10));
    struct snapshot_obj *o = x ? snapshot_get(c, x->snapshot) : NULL;
    struct err why;

    if (!o)
        return;
    o->requested = o->imports = false;
    o->made = x->imported;
    o->arg = x->arg;
    x->imported = NULL;
    remove_file(x);
    transfer_remove(x);
    if (status < 0)
        transfer_refusal(&why, status, m, WHAT);
    snapshot_was_made(o, status, &why);
    transfer_next(c);
}

static enum err_code request(struct transfer *x, struct err *e)
{
    struct snapshot_obj *o = snapshot_get(x->core, x->snapshot);
    struct privsep_msg m = {.op = PRIVSEP_IMPORT};
    const struct template_info *t = core_template_by_id(x->core, o->s.template_id);
    char number[24];
    int64_t rc;

    if (!t || !t->ready)
        return err_set(e, ERR_CONFLICT, WHAT ": its template was removed meanwhile");
    m.u.exchange.number = o->s.number;
    m.u.exchange.template_number = t->number;
    m.u.exchange.level = o->s.level;
    keep_owner(o->s.id, m.u.exchange.owner);
    (void)snprintf(number, sizeof(number), "%llu", (unsigned long long)x->number);
    rc = call_privd(x->core, number, &m, on_imported, NULL);
    o->requested = rc >= 0;
    return rc < 0 ? call_privd_err(e, rc, WHAT) : ERR_OK;
}

void core_snapshot_import_end(struct core *c, const char *tenant, uint64_t number,
                              core_snapshot_cb done, void *arg)
{
    struct transfer *x = transfer_get(c, number);
    struct snapshot_obj *o;
    struct err e;

    if (!x || x->state != TRANSFER_RECEIVING || strcmp(x->tenant, tenant) != 0) {
        err_set(&e, ERR_TIMEOUT, WHAT ": it took too long to send it");
        done(arg, NULL, &e);
        return;
    }
    timers_cancel(&c->timers, &x->timer);
    x->imported = done;
    x->arg = arg;
    x->state = TRANSFER_WAITING;
    o = snapshot_get(c, x->snapshot);
    if (take_header(x, o, &e) != ERR_OK)
        fail(x, &e);
    else
        transfer_next(c);
}
