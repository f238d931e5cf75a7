/* Making, finding and deleting snapshots: rows of the store, objects in a list, newest first, and
 * what is asked of privd (COPY, DROP). One copy of a sandbox is made at a time, as it stands still
 * for it; the others wait in order. Called by api and fork.c, by create.c for what a create begins
 * with, and by core.c after KEPTS. */

#include "core/snapshot.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/events.h"
#include "core/keep.h"
#include "core/life.h"
#include "core/quota.h"
#include "core/reserve.h"
#include "core/sandbox.h"
#include "core/store.h"
#include "core/tenant.h"
#include "core/timers.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define DROP_AGAIN_MS 50u   /* a create is just copying it */
#define DROP_LATER_MS 5000u /* privd failed */
#define TAG           ":default"

struct snapshot_obj {
    struct snapshot s;
    struct snapshot_obj *next; /* older ones */
    struct core *core;
    struct tenant *tenant;
    struct tenant_charge charge, counted;
    struct timer again;
    bool waits; /* for an earlier one of the same sandbox */
    bool asked; /* privd owes the answer to COPY or DROP */
    bool quiet; /* it was never told to be there: nor is its end */
    core_snapshot_cb made;
    core_done_cb deleted;
    void *arg;
};

/* -- finding ----------------------------------------------------------------------------------- */

static struct snapshot_obj *get(struct core *c, const char *id)
{
    struct snapshot_obj *o = c->snapshots;

    while (o && strcmp(o->s.id, id) != 0)
        o = o->next;
    return o;
}

static bool has_name(const struct snapshot *s, const char *name)
{
    size_t n = strlen(s->name);

    if (strcmp(s->id, name) == 0)
        return true;
    return n > 0 && strncmp(s->name, name, n) == 0 && (!name[n] || strcmp(name + n, TAG) == 0);
}

static struct snapshot_obj *find(struct core *c, const char *tenant, const char *name)
{
    for (struct snapshot_obj *o = c->snapshots; o; o = o->next)
        if (o->s.state == SNAPSHOT_READY && strcmp(o->s.tenant, tenant) == 0 &&
            has_name(&o->s, name))
            return o;
    return NULL;
}

const struct snapshot *core_snapshot_find(struct core *c, const char *tenant, const char *name)
{
    const struct snapshot_obj *o = find(c, tenant, name);

    return o ? &o->s : NULL;
}

void core_snapshot_each(struct core *c, const char *tenant, const char *sandbox, const char *name,
                        bool (*fn)(void *arg, const struct snapshot *s), void *arg)
{
    for (struct snapshot_obj *o = c->snapshots; o; o = o->next) {
        if (o->s.state != SNAPSHOT_READY || o->s.of_fork || strcmp(o->s.tenant, tenant) != 0 ||
            (sandbox && *sandbox && strcmp(o->s.sandbox, sandbox) != 0) ||
            (name && *name && !has_name(&o->s, name)))
            continue;
        if (!fn(arg, &o->s))
            return;
    }
}

void snapshots_mark(const struct core *c, bool *named)
{
    for (const struct snapshot_obj *o = c->snapshots; o; o = o->next)
        named[o->s.number] = true;
}

/* -- entering and leaving ---------------------------------------------------------------------- */

static void on_again(struct timer *t);

/* NULL: memory is out. */
static struct snapshot_obj *enter(struct core *c, const struct snapshot *s)
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
    tenant_charge(o->tenant, TENANT_SNAPSHOTS, s->of_fork ? 0 : 1, &o->counted);
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
    timers_cancel(&o->core->timers, &o->again);
    tenant_refund(&o->charge);
    tenant_refund(&o->counted);
    tenant_unref(o->tenant);
    free(o);
}

enum err_code snapshots_adopt(void *core, const struct snapshot *s, struct err *e)
{
    return enter(core, s) ? ERR_OK : err_set(e, ERR_EXHAUSTED, "memory is out");
}

/* Each is told once. */
static void tell(struct snapshot_obj *o, const struct err *why)
{
    core_snapshot_cb made = o->made;
    core_done_cb deleted = o->deleted;

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
        tell(o, why);
    while (c->snapshots)
        leave(c->snapshots);
}

static void forget(struct snapshot_obj *o)
{
    struct err e;

    if (store_snapshot_delete(o->core->store, o->s.id, &e) != ERR_OK)
        log_error("snapshot %s: %s", o->s.id, e.text);
    leave(o);
}

static enum err_code set_state(struct snapshot_obj *o, enum snapshot_state state, struct err *e)
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
static void add_event(struct snapshot_obj *o, enum event_type type)
{
    json_t *more = o->s.of_fork || o->quiet ? NULL : json_pack("{s:s}", "snapshot", o->s.id);

    if (more && o->s.name[0])
        json_object_set_new(more, "name", json_string(o->s.name));
    if (more)
        events_add(o->tenant, type, o->s.sandbox, more);
}

/* -- deleting ---------------------------------------------------------------------------------- */

static void drop(struct snapshot_obj *o);

static void on_again(struct timer *t)
{
    drop(CONTAINER_OF(t, struct snapshot_obj, again));
}

static void on_dropped(struct core *c, const char *id, int status, const struct privsep_msg *m,
                       int *fds, size_t n_fds, void *arg)
{
    struct snapshot_obj *o = get(c, id);
    struct err why;

    if (!o)
        return;
    o->asked = false;
    if (keep_is_gone(status)) {
        tell(o, NULL);
        add_event(o, EVENT_SNAPSHOT_DELETED);
        forget(o);
    } else if (status == -EBUSY) {
        timers_set(&c->timers, &o->again, clock_mono_ms() + DROP_AGAIN_MS);
    } else {
        call_privd_err(&why, status, "removing the snapshot");
        tell(o, &why);
        if (!call_is_channel_error(status)) /* else the next KEPTS tells */
            timers_set(&c->timers, &o->again, clock_mono_ms() + DROP_LATER_MS);
    }
}

static void drop(struct snapshot_obj *o)
{
    struct privsep_msg m = {.op = PRIVSEP_DROP};
    struct err why;
    int64_t rc;

    m.u.kept.number = o->s.number;
    keep_owner(o->s.id, m.u.kept.owner);
    rc = call_privd(o->core, o->s.id, &m, on_dropped, NULL);
    o->asked = rc >= 0;
    if (rc >= 0)
        return;
    call_privd_err(&why, rc, "removing the snapshot");
    tell(o, &why);
    if (!call_is_channel_error(rc))
        timers_set(&o->core->timers, &o->again, clock_mono_ms() + DROP_LATER_MS);
}

struct told_later {
    core_done_cb done;
    void *arg;
    struct err why;
};

static void tell_deferred(void *arg)
{
    CLEANUP_FREE struct told_later *t = arg;

    t->done(t->arg, &t->why);
}

static void refuse_delete(struct core *c, core_done_cb done, void *arg, const struct err *why)
{
    struct told_later *t = RESERVE_NEW(&c->reserve, struct told_later);

    *t = (struct told_later){done, arg, *why};
    core_defer(c, tell_deferred, t);
}

void core_snapshot_delete(struct core *c, const char *tenant, const char *name, core_done_cb done,
                          void *arg)
{
    struct snapshot_obj *o = find(c, tenant, name);
    struct err e;
    enum err_code code = core_check_ready(c, &e);

    if (code == ERR_OK && !o)
        code = err_set(&e, ERR_NOT_FOUND, "there is no snapshot '%.100s'", name);
    if (code == ERR_OK)
        code = set_state(o, SNAPSHOT_DELETING, &e);
    if (code != ERR_OK) {
        refuse_delete(c, done, arg, &e);
        return;
    }
    log_info("snapshot %s: being removed", o->s.id);
    o->deleted = done;
    o->arg = arg;
    drop(o);
}

/* -- making ------------------------------------------------------------------------------------ */

static bool is_name(const char *name)
{
    size_t n = strlen(name);

    if (n >= CORE_SNAPSHOT_NAME_SIZE)
        return false;
    for (size_t i = 0; i < n; i++) {
        char ch = name[i];
        bool letter = (ch >= 'a' && ch <= 'z') || (ch >= 'A' && ch <= 'Z') ||
                      (ch >= '0' && ch <= '9');

        if (!letter && (i == 0 || !strchr("._-", ch)))
            return false;
    }
    return true;
}

/* The name is this one's from now on. */
static void take_name(struct snapshot_obj *o)
{
    struct err e;

    for (struct snapshot_obj *other = o->core->snapshots; *o->s.name && other;
         other = other->next) {
        if (other == o || other->tenant != o->tenant || strcmp(other->s.name, o->s.name) != 0)
            continue;
        other->s.name[0] = '\0';
        if (store_snapshot_update(o->core->store, &other->s, &e) != ERR_OK)
            log_error("snapshot %s: %s", other->s.id, e.text);
    }
}

static void copy_error(struct err *e, int status)
{
    if (status == -ETIMEDOUT)
        err_set(e, ERR_TIMEOUT,
                "no snapshot was made: a process of the sandbox cannot be stopped now, as it waits "
                "for the disk or in the kernel; everything in it goes on");
    else if (status == -ESTALE || status == -ENOENT || status == -ECANCELED)
        err_set(e, ERR_NOT_FOUND, "the sandbox ended while its snapshot was made");
    else
        call_privd_err(e, status, "making the snapshot");
}

static enum err_code send_copy(struct snapshot_obj *o, struct err *e);

/* The oldest that waits for this sandbox; what cannot be begun is told, and the next has its
 * turn. */
static void begin_next(struct core *c, const char *sandbox)
{
    struct snapshot_obj *found;
    struct err e;

    do {
        found = NULL;
        for (struct snapshot_obj *o = c->snapshots; o; o = o->next)
            if (o->waits && strcmp(o->s.sandbox, sandbox) == 0)
                found = o;
        if (!found || send_copy(found, &e) == ERR_OK)
            return;
        tell(found, &e);
        forget(found);
    } while (found);
}

static void copied(struct snapshot_obj *o, int status)
{
    struct err e;

    if (status == 0 && set_state(o, SNAPSHOT_READY, &e) == ERR_OK) {
        take_name(o); /* not before: one that is not written is dropped, and the other keeps it */
        log_info("snapshot %s of sandbox %s: made", o->s.id, o->s.sandbox);
        add_event(o, EVENT_SNAPSHOT_CREATED);
        tell(o, NULL);
        return;
    }
    if (status < 0)
        copy_error(&e, status);
    log_warn("snapshot of sandbox %s: %s", o->s.sandbox, e.text);
    tell(o, &e);
    if (call_is_channel_error(status))
        return; /* the next KEPTS tells what there is */
    o->quiet = true;
    if (status == 0)
        drop(o);
    else
        forget(o);
}

static void on_copied(struct core *c, const char *id, int status, const struct privsep_msg *m,
                      int *fds, size_t n_fds, void *arg)
{
    struct snapshot_obj *o = get(c, id);
    struct sandbox_obj *source = o ? sandbox_get(c, NULL, o->s.sandbox) : NULL;
    char sandbox[IDS_SANDBOX_SIZE];

    if (!o)
        return;
    memcpy(sandbox, o->s.sandbox, sizeof(sandbox));
    o->asked = false;
    if (source && source->copies > 0)
        source->copies--;
    copied(o, status);
    begin_next(c, sandbox);
}

static void fill(struct snapshot *s, const struct sandbox_obj *source, const char *name,
                 bool of_fork)
{
    *s = (struct snapshot){.tenant = source->s.tenant,
                           .state = SNAPSHOT_MAKING,
                           .of_fork = of_fork,
                           .level = source->s.level,
                           .limits = source->s.limits,
                           .made_real_ms = clock_real_ms()};
    ids_sandbox(s->id);
    s->id[0] = 's';
    (void)snprintf(s->name, sizeof(s->name), "%s", name ? name : "");
    (void)snprintf(s->sandbox, sizeof(s->sandbox), "%s", source->s.id);
    (void)snprintf(s->template_id, sizeof(s->template_id), "%s", source->s.template_id);
}

/* What stands still or runs, whole: not what is on its way. */
static enum err_code check(struct core *c, const char *tenant, const char *id, const char *name,
                           struct sandbox_obj **out, struct err *e)
{
    enum err_code code = core_check_ready(c, e);

    if (code == ERR_OK)
        code = sandbox_visible(c, tenant, id, out, e);
    if (code == ERR_OK && name && !is_name(name))
        code = err_set(e, ERR_INVALID,
                       "\"%.100s\" is no name of a snapshot: at most %d letters, digits, '.', '_' "
                       "and '-', the first of them a letter or digit",
                       name, CORE_SNAPSHOT_NAME_SIZE - 1);
    if (code == ERR_OK)
        code = keep_check(c, e);
    if (code == ERR_OK &&
        (sandbox_life(*out)->change != LIFE_CHANGE_NONE || !(*out)->known_to_privd))
        code = err_set(e, ERR_CONFLICT,
                       "sandbox %s is %s: a snapshot is made of one that runs, or is paused with "
                       "its memory",
                       id, sandbox_life(*out)->name);
    return code;
}

/* One of a sandbox at a time: it stands still meanwhile. */
static enum err_code send_copy(struct snapshot_obj *o, struct err *e)
{
    struct sandbox_obj *source = NULL;
    struct privsep_msg m = {.op = PRIVSEP_COPY};
    enum err_code code = check(o->core, o->s.tenant, o->s.sandbox, NULL, &source, e);
    int64_t rc;

    o->waits = false;
    if (code != ERR_OK)
        return code;
    m.slot = source->s.slot;
    m.gen = source->s.gen;
    m.u.kept.number = o->s.number;
    keep_owner(o->s.id, m.u.kept.owner);
    rc = call_privd(o->core, o->s.id, &m, on_copied, NULL);
    if (rc < 0)
        return call_privd_err(e, rc, "making the snapshot");
    o->asked = true;
    source->copies++;
    return ERR_OK;
}

static enum err_code begin(struct sandbox_obj *source, const struct snapshot *s,
                           core_snapshot_cb done, void *arg, struct err *e)
{
    struct core *c = source->core;
    struct snapshot_obj *o;
    enum err_code code = store_snapshot_insert(c->store, s, e);

    if (code != ERR_OK)
        return code;
    o = enter(c, s);
    if (!o) {
        store_snapshot_delete(c->store, s->id, NULL);
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    }
    o->waits = source->copies > 0;
    if (!o->waits && (code = send_copy(o, e)) != ERR_OK) {
        forget(o);
        return code;
    }
    o->made = done;
    o->arg = arg;
    return ERR_OK;
}

struct made_later {
    core_snapshot_cb done;
    void *arg;
    struct err why;
};

static void made_deferred(void *arg)
{
    CLEANUP_FREE struct made_later *t = arg;

    t->done(t->arg, NULL, &t->why);
}

void core_snapshot_create(struct core *c, const char *tenant, const char *sandbox, const char *name,
                          bool of_fork, core_snapshot_cb done, void *arg)
{
    struct sandbox_obj *source = NULL;
    struct made_later *t;
    struct snapshot s;
    struct err e;
    enum err_code code = check(c, tenant, sandbox, name, &source, &e);

    if (code == ERR_OK) {
        fill(&s, source, name, of_fork);
        code = of_fork ? ERR_OK : quota_check_snapshot(source->tenant, &e);
    }
    if (code == ERR_OK)
        code = keep_choose_number(c, tenant, &s.number, &e);
    if (code == ERR_OK)
        code = begin(source, &s, done, arg, &e);
    if (code == ERR_OK)
        return;
    t = RESERVE_NEW(&c->reserve, struct made_later);
    *t = (struct made_later){done, arg, e};
    core_defer(c, made_deferred, t);
}

/* -- after a restart --------------------------------------------------------------------------- */

/* What was not confirmed goes, and so does what was a fork's; what privd does not have is
 * forgotten. */
static void reconcile(struct snapshot_obj *o)
{
    enum kept_seen seen = keep_seen(o->core, o->s.number, o->s.id);
    struct err e;

    if (seen == KEPT_SEEN_NONE) {
        if (o->s.state == SNAPSHOT_READY)
            log_error("snapshot %s: its files are not there any more", o->s.id);
        forget(o);
        return;
    }
    if (o->s.state == SNAPSHOT_READY && !o->s.of_fork)
        return;
    o->quiet = o->s.state == SNAPSHOT_MAKING;
    if (o->s.state != SNAPSHOT_DELETING && set_state(o, SNAPSHOT_DELETING, &e) != ERR_OK)
        log_error("snapshot %s: %s", o->s.id, e.text);
    drop(o);
}

void snapshots_reconcile(struct core *c)
{
    struct snapshot_obj *next;

    for (struct snapshot_obj *o = c->snapshots; o; o = next) {
        next = o->next;
        if (!o->asked && !o->waits && !timer_armed(&o->again))
            reconcile(o);
    }
}
