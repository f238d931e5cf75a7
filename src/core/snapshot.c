/* Deleting snapshots: rows of the store, objects in a list, newest first, and the requests to privd
 * (DROP). They are made in snapshot_make.c, and found in snapshot_find.c. Called by api and fork.c,
 * and by core.c after KEPTS. */

#include "core/snapshot_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/events.h"
#include "core/keep.h"
#include "core/published.h"
#include "core/snapshot_memory.h"
#include "core/store_snapshot.h"
#include "core/template.h"
#include "core/tenant.h"
#include "core/timers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DROP_AGAIN_MS 50u   /* a create is just copying it */
#define DROP_LATER_MS 5000u /* privd failed */

/* -- entering and leaving ---------------------------------------------------------------------- */

static void on_again(struct timer *t);

struct snapshot_obj *snapshot_enter(struct core *c, const struct snapshot *s)
{
    struct snapshot_obj *o = calloc(1, sizeof(*o)), **at = &c->snapshots;

    if (!o)
        return NULL;
    o->tenant = tenant_get(c, s->tenant);
    if (!o->tenant) {
        free(o);
        return NULL;
    }
    o->core = c;
    o->s = *s;
    o->s.tenant = o->tenant->name;
    o->again.fire = on_again;
    tenant_charge(o->tenant, TENANT_KEPT, 1, &o->charge);
    tenant_charge(o->tenant, TENANT_SNAPSHOTS, s->kind == SNAPSHOT_OF_FORK ? 0 : 1, &o->counted);
    snapshot_memory_charge(o);
    while (*at && (*at)->s.made_real_ms > s->made_real_ms)
        at = &(*at)->next;
    o->next = *at;
    *at = o;
    return o;
}

static void leave(struct snapshot_obj *o)
{
    struct snapshot_obj **at = &o->core->snapshots;

    while (*at != o)
        at = &(*at)->next;
    *at = o->next;
    template_images_poke(o->core);
    timers_cancel(&o->core->timers, &o->again);
    tenant_refund(&o->charge);
    tenant_refund(&o->counted);
    tenant_refund(&o->memory_charge);
    tenant_refund(&o->memory_counted);
    tenant_unref(o->tenant);
    free(o);
}

enum err_code snapshots_adopt(void *core, const struct snapshot *s, struct err *e)
{
    return snapshot_enter(core, s) ? ERR_OK : err_set(e, ERR_EXHAUSTED, "memory is out");
}

/* Each is told once. */
void snapshot_notify(struct snapshot_obj *o, const struct err *why)
{
    core_snapshot_cb made = o->made;
    core_done_cb deleted = o->deleted;
    const struct trace_about about = {
        .tenant = o->s.tenant, .sandbox = o->s.sandbox, .snapshot = o->s.id};

    trace_end(o->core, &o->trace, &about, why ? why->code : ERR_OK);
    o->made = NULL;
    o->deleted = NULL;
    if (made)
        made(o->arg, why ? NULL : &o->s, why);
    if (deleted)
        deleted(o->arg, why);
}

void snapshots_free(struct core *c, const struct err *why)
{
    for (struct snapshot_obj *o = c->snapshots; o; o = o->next)
        snapshot_notify(o, why);
    while (c->snapshots)
        leave(c->snapshots);
}

void snapshot_forget(struct snapshot_obj *o)
{
    struct err e;

    if (store_snapshot_delete(o->core->store, o->s.id, &e) != ERR_OK)
        log_error("snapshot %s: %s", o->s.id, e.text);
    leave(o);
}

enum err_code snapshot_set_state(struct snapshot_obj *o, enum snapshot_state state, struct err *e)
{
    struct snapshot changed = o->s;
    enum err_code code;

    changed.state = state;
    code = store_snapshot_update(o->core->store, &changed, e);
    if (code == ERR_OK)
        o->s.state = state;
    return code;
}

/* A fork is one event, its source's; the snapshot that it is made by is none. */
void snapshot_add_event(struct snapshot_obj *o, enum event_type type)
{
    json_t *more = o->s.kind != SNAPSHOT_PLAIN || o->quiet
                       ? NULL
                       : json_pack("{s:s}", "snapshot", o->s.id);

    if (more && o->s.name[0])
        json_object_set_new(more, "name", json_string(o->s.name));
    if (more)
        events_add(o->tenant, type, o->s.sandbox[0] ? o->s.sandbox : NULL, more);
}

/* -- deleting ---------------------------------------------------------------------------------- */

static void on_again(struct timer *t)
{
    snapshot_drop(CONTAINER_OF(t, struct snapshot_obj, again));
}

static void on_dropped(struct core *c, const char *id, int status, const struct privsep_msg *m,
                       int *fds, size_t n_fds, void *arg)
{
    struct snapshot_obj *o = snapshot_get(c, id);
    struct err why;

    if (!o)
        return;
    o->requested = false;
    if (keep_is_gone(status)) {
        snapshot_notify(o, NULL);
        snapshot_add_event(o, EVENT_SNAPSHOT_DELETED);
        snapshot_forget(o);
    } else if (status == -EBUSY) {
        timers_set(&c->timers, &o->again, clock_mono_ms() + DROP_AGAIN_MS);
    } else {
        call_privd_err(&why, status, "removing the snapshot");
        snapshot_notify(o, &why);
        if (!call_is_channel_error(status)) /* else the next KEPTS tells */
            timers_set(&c->timers, &o->again, clock_mono_ms() + DROP_LATER_MS);
    }
}

void snapshot_drop(struct snapshot_obj *o)
{
    struct privsep_msg m = {.op = PRIVSEP_DROP};
    struct err why;
    int64_t rc;

    m.u.kept.number = o->s.number;
    keep_owner(o->s.id, m.u.kept.owner);
    rc = call_privd(o->core, o->s.id, &m, on_dropped, NULL);
    o->requested = rc >= 0;
    if (rc >= 0)
        return;
    call_privd_err(&why, rc, "removing the snapshot");
    snapshot_notify(o, &why);
    if (!call_is_channel_error(rc))
        timers_set(&o->core->timers, &o->again, clock_mono_ms() + DROP_LATER_MS);
}

void core_snapshot_delete(struct core *c, const char *tenant, const char *name, core_done_cb done,
                          void *arg)
{
    struct snapshot_obj *o = snapshot_named(c, tenant, name);
    struct err e;
    enum err_code code = core_check_ready(c, &e);

    if (code == ERR_OK && !o)
        code = snapshot_missing(name, &e);
    if (code == ERR_OK)
        code = snapshot_set_state(o, SNAPSHOT_DELETING, &e);
    if (code != ERR_OK) {
        core_defer_refusal(c, done, arg, &e);
        return;
    }
    snapshot_memory_lose(o);
    published_forget(c, tenant, o->s.name);
    log_info("snapshot %s: being removed", o->s.id);
    o->deleted = done;
    o->arg = arg;
    snapshot_drop(o);
}

void snapshots_remove(struct core *c, const char *id)
{
    struct snapshot_obj *o = snapshot_get(c, id);
    struct err e;

    if (!o || o->s.state != SNAPSHOT_READY)
        return;
    if (snapshot_set_state(o, SNAPSHOT_DELETING, &e) != ERR_OK) {
        log_error("snapshot %s: %s", o->s.id, e.text);
        return;
    }
    snapshot_memory_lose(o);
    tenant_refund(&o->charge);
    tenant_refund(&o->counted);
    snapshot_drop(o);
}

void snapshots_sweep_builds(struct core *c, bool (*stays)(struct core *c, const char *id))
{
    struct snapshot_obj *next;

    for (struct snapshot_obj *o = c->snapshots; o; o = next) {
        next = o->next;
        if (o->s.kind == SNAPSHOT_OF_BUILD && !stays(c, o->s.id))
            snapshots_remove(c, o->s.id);
    }
}

void snapshots_drop_name(struct core *c, const char *tenant, const char *name)
{
    struct err e;

    for (struct snapshot_obj *o = c->snapshots; *name && o; o = o->next) {
        if (strcmp(o->s.tenant, tenant) != 0 || strcmp(o->s.name, name) != 0)
            continue;
        o->s.name[0] = '\0';
        if (store_snapshot_update(c->store, &o->s, &e) != ERR_OK)
            log_error("snapshot %s: %s", o->s.id, e.text);
    }
}

/* -- after a restart --------------------------------------------------------------------------- */

/* An unconfirmed snapshot is removed, and so is a fork's; one that privd does not have is
 * forgotten. */
static void reconcile(struct snapshot_obj *o)
{
    enum kept_seen seen = keep_seen(o->core, o->s.number, o->s.id);
    struct err e;

    snapshot_memory_reconcile(o);
    if (seen == KEPT_SEEN_NONE) {
        if (o->s.state == SNAPSHOT_READY)
            log_error("snapshot %s: its files are not there any more", o->s.id);
        snapshot_forget(o);
        return;
    }
    if (o->s.state == SNAPSHOT_READY && o->s.kind != SNAPSHOT_OF_FORK)
        return;
    o->quiet = o->s.state == SNAPSHOT_MAKING;
    if (o->s.state != SNAPSHOT_DELETING && snapshot_set_state(o, SNAPSHOT_DELETING, &e) != ERR_OK)
        log_error("snapshot %s: %s", o->s.id, e.text);
    snapshot_drop(o);
}

void snapshots_reconcile(struct core *c)
{
    struct snapshot_obj *next;

    for (struct snapshot_obj *o = c->snapshots; o; o = next) {
        next = o->next;
        if (!o->requested && !o->waits && !o->imports && !timer_armed(&o->again))
            reconcile(o);
    }
}
