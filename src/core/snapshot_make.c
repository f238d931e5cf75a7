/* Making a snapshot: its row, then COPY, which cay-privd answers when the copy is on the disk.
 * Copies of a sandbox are made one at a time, as it stands still for it; the others wait in order.
 * Called by api and fork.c. */

#include "core/snapshot_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "base/plain_name.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/freeze.h"
#include "core/keep.h"
#include "core/life.h"
#include "core/quota.h"
#include "core/reboot.h"
#include "core/reserve.h"
#include "core/sandbox.h"
#include "core/store_snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

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
    else if (status == -ENOTRECOVERABLE)
        err_set(e, ERR_INTERNAL,
                "no snapshot was made: the processes of the sandbox stood still for it, and the "
                "kernel did not let them go on; see whether it is paused now");
    else if (status == -ESTALE || status == -ENOENT || status == -ECANCELED)
        err_set(e, ERR_NOT_FOUND, "the sandbox ended while its snapshot was made");
    else
        call_privd_err(e, status, "making the snapshot");
}

static enum err_code send_copy(struct snapshot_obj *o, struct err *e);

/* The oldest that waits for this sandbox; where it cannot be begun its waiters are told, and the
 * next has its turn. */
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
        snapshot_notify(found, &e);
        snapshot_forget(found);
    } while (found);
}

/* As its log has it: an imported one is of no sandbox here. */
static const char *source_of(const struct snapshot_obj *o)
{
    return o->s.sandbox[0] ? o->s.sandbox : "none (it was imported)";
}

void snapshot_was_made(struct snapshot_obj *o, int status, const struct err *why)
{
    struct err e;

    if (status == 0 && snapshot_set_state(o, SNAPSHOT_READY, &e) == ERR_OK) {
        take_name(o); /* not before: one that is not written is dropped, and the other keeps it */
        log_info("snapshot %s of sandbox %s: made", o->s.id, source_of(o));
        snapshot_add_event(o, EVENT_SNAPSHOT_CREATED);
        snapshot_notify(o, NULL);
        return;
    }
    if (status < 0)
        e = *why;
    log_warn("snapshot of sandbox %s: %s", source_of(o), e.text);
    snapshot_notify(o, &e);
    if (call_is_channel_error(status))
        return; /* the next KEPTS tells what there is */
    o->quiet = true;
    if (status == 0)
        snapshot_drop(o);
    else
        snapshot_forget(o);
}

static void copied(struct snapshot_obj *o, int status)
{
    struct err why = {.code = ERR_OK};

    if (status < 0)
        copy_error(&why, status);
    snapshot_was_made(o, status, &why);
}

static void on_copied(struct core *c, const char *id, int status, const struct privsep_msg *m,
                      int *fds, size_t n_fds, void *arg)
{
    struct snapshot_obj *o = snapshot_get(c, id);
    struct sandbox_obj *source = o ? sandbox_get(c, NULL, o->s.sandbox) : NULL;
    struct trace_about about = {.tenant = NULL};
    char sandbox[IDS_SANDBOX_SIZE];

    if (!o)
        return;
    about = (struct trace_about){
        .tenant = o->s.tenant, .sandbox = o->s.sandbox, .snapshot = o->s.id};
    memcpy(sandbox, o->s.sandbox, sizeof(sandbox));
    o->requested = false;
    if (status == 0)
        trace_step(c, &o->trace, TRACE_SNAPSHOT_COPY, o->copy_begun_us, clock_mono_us(), &about);
    if (source && source->copies > 0)
        source->copies--;
    copied(o, status);
    begin_next(c, sandbox);
    source = sandbox_get(c, NULL, sandbox);
    if (source && status == -ENOTRECOVERABLE && sandbox_life(source)->pause == LIFE_CALL_DO)
        freeze_let_go_on(source);
    if (source && source->copies == 0)
        reboot_copies_made(source);
}

static void fill(struct snapshot *s, const struct sandbox_obj *source, const char *name,
                 enum snapshot_kind kind)
{
    *s = (struct snapshot){.tenant = source->s.tenant,
                           .state = SNAPSHOT_MAKING,
                           .kind = kind,
                           .level = source->s.level,
                           .limits = source->s.limits,
                           .made_real_ms = clock_real_ms()};
    ids_sandbox(s->id);
    s->id[0] = 's';
    (void)snprintf(s->name, sizeof(s->name), "%s", name ? name : "");
    (void)snprintf(s->sandbox, sizeof(s->sandbox), "%s", source->s.id);
    (void)snprintf(s->template_id, sizeof(s->template_id), "%s", source->s.template_id);
}

/* A name that says something else already: a snapshot's comes before the server's templates, and
 * an id has to find that which it is of. */
static bool means_another(const char *name)
{
    return ids_is_snapshot(name) || ids_is_template(name) || core_template_is_host(name) ||
           strcmp(name, "base") == 0;
}

enum err_code snapshot_check_name(const char *name, struct err *e)
{
    if (means_another(name))
        return err_set(e, ERR_INVALID,
                       "\"%.100s\" is no name for a snapshot: it is that of a template of the "
                       "server's, or has the form of an id",
                       name);
    return !*name || plain_name_is_label(name, CORE_SNAPSHOT_NAME_SIZE - 1)
               ? ERR_OK
               : err_set(e, ERR_INVALID,
                         "\"%.100s\" is no name of a snapshot: at most %d letters, digits, '.', "
                         "'_' and '-', the first of them a letter or digit",
                         name, CORE_SNAPSHOT_NAME_SIZE - 1);
}

/* Of a sandbox that runs or stands still: no change of its state may be under way. */
static enum err_code check(struct core *c, const char *tenant, const char *id, const char *name,
                           struct sandbox_obj **out, struct err *e)
{
    enum err_code code = core_check_ready(c, e);

    if (code == ERR_OK)
        code = sandbox_visible(c, tenant, id, out, e);
    if (code == ERR_OK && name)
        code = snapshot_check_name(name, e);
    if (code == ERR_OK)
        code = keep_check(c, e);
    if (code == ERR_OK &&
        (sandbox_life(*out)->change != LIFE_CHANGE_NONE || !(*out)->known_to_privd)) {
        code = err_set(e, ERR_CONFLICT,
                       "sandbox %s is %s: a snapshot is made of one that runs, or is paused frozen",
                       id, sandbox_state_text(*out));
        err_hint(e, "resume it first: `cay resume %s`, or connect to it", id);
    }
    return code;
}

/* Copies of a sandbox are made one at a time: it stands still meanwhile. */
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
    m.u.kept.creates = o->creates;
    keep_owner(o->s.id, m.u.kept.owner);
    rc = call_privd(o->core, o->s.id, &m, on_copied, NULL);
    if (rc < 0)
        return call_privd_err(e, rc, "making the snapshot");
    o->requested = true;
    o->copy_begun_us = clock_mono_us();
    source->copies++;
    return ERR_OK;
}

static enum err_code begin(struct sandbox_obj *source, const struct snapshot *s, uint32_t creates,
                           core_snapshot_cb done, void *arg, struct err *e)
{
    const uint64_t begun_us = clock_mono_us();
    struct core *c = source->core;
    struct snapshot_obj *o;
    enum err_code code = store_snapshot_insert(c->store, s, e);

    if (code != ERR_OK)
        return code;
    o = snapshot_enter(c, s);
    if (!o) {
        store_snapshot_delete(c->store, s->id, NULL);
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    }
    o->creates = creates;
    o->waits = source->copies > 0;
    if (!o->waits && (code = send_copy(o, e)) != ERR_OK) {
        snapshot_forget(o);
        return code;
    }
    o->made = done;
    o->arg = arg;
    trace_begin(c, &o->trace, TRACE_SNAPSHOT, begun_us);
    return ERR_OK;
}

struct made_later {
    core_snapshot_cb done;
    void *arg;
    struct err why;
    struct deferred later;
};

static void made_deferred(void *arg)
{
    CLEANUP_FREE struct made_later *t = arg;

    t->done(t->arg, NULL, &t->why);
}

/* Cached steps of builds give way. */
static enum err_code check_quota(struct tenant *t, struct err *e)
{
    enum err_code code;

    do
        code = quota_check_snapshot(t, e);
    while (code == ERR_EXHAUSTED && t->core->kept_gives_way &&
           t->core->kept_gives_way(t->core, t->name));
    return code;
}

enum err_code snapshot_check_quota(struct core *c, const char *tenant, struct err *e)
{
    struct tenant *t = tenant_get(c, tenant);
    enum err_code code = t ? check_quota(t, e) : err_set(e, ERR_UNAVAILABLE, "memory is out");

    if (t)
        tenant_unref(t);
    return code;
}

static void create(struct core *c, const char *tenant, const char *sandbox, const char *name,
                   enum snapshot_kind kind, uint32_t creates, core_snapshot_cb done, void *arg)
{
    struct sandbox_obj *source = NULL;
    struct made_later *t;
    struct snapshot s;
    struct err e;
    enum err_code code = check(c, tenant, sandbox, name, &source, &e);

    if (code == ERR_OK) {
        fill(&s, source, name, kind);
        code = kind == SNAPSHOT_OF_FORK ? ERR_OK : check_quota(source->tenant, &e);
    }
    if (code == ERR_OK)
        code = keep_choose_number(c, tenant, &s.number, &e);
    if (code == ERR_OK)
        code = begin(source, &s, creates, done, arg, &e);
    if (code == ERR_OK)
        return;
    t = RESERVE_NEW(&c->reserve, struct made_later);
    *t = (struct made_later){done, arg, e};
    core_defer(c, &t->later, made_deferred, t);
}

void core_snapshot_create(struct core *c, const char *tenant, const char *sandbox, const char *name,
                          enum snapshot_kind kind, core_snapshot_cb done, void *arg)
{
    create(c, tenant, sandbox, name, kind, 0, done, arg);
}

void snapshot_for_forks(struct core *c, const char *tenant, const char *sandbox, size_t count,
                        core_snapshot_cb done, void *arg)
{
    create(c, tenant, sandbox, NULL, SNAPSHOT_OF_FORK, (uint32_t)count, done, arg);
}
