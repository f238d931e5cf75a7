/* Making a sandbox, in this order: row, CREATE to privd, one socket, /init to its agent, row. After
 * a failure the steps are undone, and the object is freed only then. Owns the create's caller and
 * the deadline until the sandbox runs; an answer of privd or the agent belongs to a sandbox only
 * while its state awaits it (life.h). Called by api, by answers (call.h), and by lifecycle.c at the
 * deadline. */

#include "core/create.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/auto_destroy.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/counters.h"
#include "core/create_check.h"
#include "core/create_error.h"
#include "core/create_key.h"
#include "core/create_memory.h"
#include "core/deferred.h"
#include "core/dump.h"
#include "core/egress.h"
#include "core/events.h"
#include "core/hooks.h"
#include "core/keep.h"
#include "core/lifecycle.h"
#include "core/logs.h"
#include "core/pause_internal.h"
#include "core/sandbox.h"
#include "core/sandbox_make.h"
#include "core/snapshot.h"
#include "core/sockets.h"
#include "core/store_create_key.h"
#include "core/store_sandbox.h"
#include "core/template.h"
#include "core/tenant.h"
#include "core/tenant_ca.h"
#include "core/timers.h"
#include "core/volume.h"
#include "core/volume_content.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define INIT_RESPONSE_MAX (16u * 1024u)
#define FIRST_SAMPLE_MS   1000u

/* -- /init ------------------------------------------------------------------------------------- */

static bool ca_is_wanted(const struct sandbox_obj *o)
{
    return !o->s.serves_volume && tenant_ca_wanted(o->tenant);
}

/* Makes a create visible to clients. */
static void announce(struct sandbox_obj *o)
{
    tenant_count(o->tenant, USAGE_CREATED);
    timers_set(&o->core->timers, &o->sample, clock_mono_ms() + FIRST_SAMPLE_MS);
    o->announced = true;
    json_t *more = json_pack("{s:s}", "templateID", core_sandbox_template_id(&o->s));

    if (o->copies_memory)
        json_object_set_new(more, "memory", json_true());
    else if (o->fell.text[0])
        json_object_set_new(more, "memoryError", json_string(o->fell.text));
    events_add(o->tenant, EVENT_SANDBOX_CREATED, o->s.id, more);
}

static enum err_code become_running(struct sandbox_obj *o, struct err *e)
{
    struct sandbox changed = o->s;
    enum err_code code;

    changed.end_real_ms = clock_real_ms() + (o->s.end_real_ms - o->s.started_real_ms);
    changed.state = SANDBOX_RUNNING;
    code = store_sandbox_update(o->core->store, &changed, e);
    if (code == ERR_OK && o->has_create_key)
        code = store_create_key_done(o->core->store, o->s.id, e);
    if (code != ERR_OK)
        return code;
    o->s.end_real_ms = changed.end_real_ms;
    o->used_ms = clock_mono_ms();
    sandbox_move(o, SANDBOX_RUNNING);
    lifecycle_arm(o);
    return ERR_OK;
}

static void done_with(struct sandbox_obj *o)
{
    core_sandbox_cb done = TAKE_PTR(o->create_done);
    struct histogram *steps = o->core->counters.steps;
    uint64_t took_us = clock_mono_us() - o->begun_us;

    log_info("sandbox %s: running from template %s after %.3f ms, %.3f of them in its agent",
             o->s.id, o->s.template_id, (double)took_us / 1e3,
             (double)(took_us + o->begun_us - o->made_us) / 1e3);
    logs_add(o, "info", "sandbox started from template %s in %llu ms", o->s.template_id,
             (unsigned long long)took_us / 1000u);
    if (strcmp(o->s.template_id, o->s.template_requested) != 0 && !o->copy_of)
        logs_add(o, "warn", "template %s is not built yet: this is %s; see `cay template build %s`",
                 o->s.template_requested, o->s.template_id, o->s.template_requested);
    if (o->copies_memory)
        hooks_after_resume(o, "memory", o->memory_snapshot[0] ? "snapshot" : "fork");
    else if (o->copy_of && !o->no_start_command)
        hooks_after_resume(o, "files", "snapshot");
    o->core->counters.created++;
    histogram_add(&steps[COUNTER_CREATE], took_us);
    histogram_add(&steps[COUNTER_CREATE_MADE], o->made_us - o->begun_us);
    histogram_add(&steps[COUNTER_CREATE_AGENT], took_us + o->begun_us - o->made_us);
    trace_sandbox_step(o, TRACE_CREATE_MADE, o->begun_us, o->made_us);
    trace_sandbox_step(o, TRACE_CREATE_AGENT, o->made_us, o->begun_us + took_us);
    trace_sandbox_end(o, ERR_OK);
    if (!o->s.serves_volume)
        announce(o);
    o->copy_of = 0; /* the number may be another's from now on */
    o->copies_memory = false;
    if (!o->s.has_tenant_ca)
        tenant_ca_install(o->core); /* it may have come meanwhile */
    if (done)
        done(o->create_arg, &o->s, NULL);
}

/* It was made, and cannot be used. */
static void agent_failed(struct sandbox_obj *o, const struct err *why)
{
    if (sandbox_life(o)->files) {
        keep_restart_failed(o, why);
        return;
    }
    create_fail(o, why);
    lifecycle_end(o, why->text);
}

static void on_init(struct core *c, const char *id, const struct err *why, int http_status,
                    const char *body, size_t len, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);
    struct err e;

    if (!o || !sandbox_life(o)->awaits_create)
        return; /* ended meanwhile, and the caller knows */
    if (sandbox_life(o)->files && (c->stopping || !o->change_requested || o->keep_requested))
        return; /* the next start settles it, or its files are being kept again */
    if (c->stopping) {
        create_fail(o, why); /* the next start undoes it */
        return;
    }
    if (why)
        err_set(&e, why->code, "the sandbox could not be made: its agent: %s", why->text);
    else if (http_status / 100 != 2)
        create_explain_agent(&e, http_status, body, len);
    else if (sandbox_life(o)->files) {
        o->change_requested = false;
        pause_resumed(o);
        return;
    } else if (become_running(o, &e) == ERR_OK) {
        done_with(o);
        return;
    }
    agent_failed(o, &e);
}

/* The environment goes to the agent and is kept nowhere else: it may hold secrets. */
static void send_init(struct sandbox_obj *o)
{
    char *body = o->init_body ? TAKE_PTR(o->init_body) : create_make_init(o);
    struct call_agent_request r = {.method = "POST",
                                   .target = "/init",
                                   .body = body,
                                   .max_response_bytes = INIT_RESPONSE_MAX,
                                   .timeout_ms = o->core->config.agent_timeout_ms};
    struct err e;

    if (!sandbox_life(o)->files) {
        json_decref(o->s.env);
        o->s.env = NULL;
    }
    if (body) {
        call_agent(o, &r, on_init, NULL);
        return;
    }
    err_set(&e, ERR_EXHAUSTED, "memory is out");
    agent_failed(o, &e);
}

static void go_on(struct sandbox_obj *o, const struct err *why)
{
    if (!sandbox_life(o)->awaits_create)
        return;
    if (!o->core->stopping)
        send_init(o);
    else if (!sandbox_life(o)->files)
        create_fail(o, why); /* the next start undoes it */
}

/* -- CREATE ------------------------------------------------------------------------------------ */

static void kill_stray(struct core *c, const struct privsep_msg *m)
{
    call_kill_stray(c, "", m->slot, m->gen);
}

/* The channel broke: privd may have made it. LIST will tell; it is not wanted any more. */
static void leave_to_reconcile(struct sandbox_obj *o)
{
    struct err e;

    sandbox_move(o, SANDBOX_ENDING);
    timers_cancel(&o->core->timers, &o->end);
    if (store_sandbox_update(o->core->store, &o->s, &e) != ERR_OK)
        log_error("sandbox %s: %s", o->s.id, e.text);
}

/* For privd to make it, and its agent to answer. */
static void arm_deadline(struct sandbox_obj *o)
{
    const struct core_config *config = &o->core->config;

    timers_set(&o->core->timers, &o->end,
               clock_mono_ms() + config->privd_timeout_ms + config->agent_timeout_ms);
}

/* Whether it begins with the files alone, as the memory was refused. */
static bool begins_with_files(struct sandbox_obj *o, int status, const struct privsep_msg *m)
{
    const struct template_info *t = templates_entry(o->core, o->s.template_id);
    const struct snapshot *s = t ? create_memory_refused(o, status, m) : NULL;

    if (!s || create_send(o, t->number, s->number, s->id) < 0)
        return false;
    arm_deadline(o);
    return true;
}

/* m: what privd answered, NULL where it did not. */
static void create_refused(struct sandbox_obj *o, int status, const struct privsep_msg *m)
{
    struct core *c = o->core;
    struct err e;

    if (call_is_channel_error(status) && !sandbox_life(o)->files) {
        call_privd_err(&e, status, "the sandbox could not be made");
        create_fail(o, &e);
        lifecycle_kill_failed(o, &e);
        if (!c->stopping)
            leave_to_reconcile(o);
        return;
    }
    if (begins_with_files(o, status, m))
        return;
    create_explain(&e, &o->s, status, m);
    log_warn("sandbox %s: %s", o->s.id, e.text);
    if (sandbox_life(o)->files) {
        if (!dump_restore_refused(o, status, m, &e))
            keep_restart_refused(o, status, &e);
        return;
    }
    create_fail(o, &e);
    lifecycle_ended(o, "it could not be made");
}

static void on_created(struct core *c, const char *id, int status, const struct privsep_msg *m,
                       int *fds, size_t n_fds, void *arg)
{
    struct sandbox_obj *o = sandbox_get(c, NULL, id);

    if (!o || !sandbox_life(o)->awaits_create) {
        for (size_t i = 0; i < n_fds; i++)
            close(fds[i]);
        if (status == 0)
            kill_stray(c, m);
        return;
    }
    sockets_put(o, fds, n_fds);
    if (status < 0) {
        create_refused(o, status, m);
        return;
    }
    egress_leave(o); /* its process of cay-egress goes by the slot */
    o->s.slot = m->slot;
    o->s.gen = m->gen;
    o->known_to_privd = true;
    o->made_us = clock_mono_us();
    egress_touch(o);
    if (o->kill_wanted)
        lifecycle_end(o, "it was asked for while it was being made");
    else if (o->restoring)
        dump_restored(o);
    else if (ca_is_wanted(o))
        o->on_tenant_ca = go_on;
    else
        send_init(o);
}

void create_on_deadline(struct sandbox_obj *o)
{
    struct err why;

    err_set(&why, ERR_TIMEOUT, "the sandbox was not ready in time");
    create_fail(o, &why);
    lifecycle_kill_failed(o, &why);
    lifecycle_end(o, why.text);
}

/* snapshot: whose copy it begins with; NULL: none. */
static uint32_t create_flags(const struct sandbox_obj *o, const char *snapshot)
{
    if (!snapshot)
        return o->restoring ? PRIVSEP_CREATE_MEMORY : 0;
    if (!o->copies_memory)
        return PRIVSEP_CREATE_COPY | (o->takes_snapshot ? PRIVSEP_CREATE_LAST : 0);
    return PRIVSEP_CREATE_COPY | PRIVSEP_CREATE_MEMORY |
           (o->memory_snapshot[0] ? PRIVSEP_CREATE_POOL : 0);
}

int64_t create_send(struct sandbox_obj *o, uint32_t template_number, uint32_t kept,
                    const char *snapshot)
{
    struct privsep_msg m = {.op = PRIVSEP_CREATE};

    o->held = volume_content_hold(o);
    if (o->held) {
        o->held_template = template_number;
        o->held_kept = kept;
        (void)snprintf(o->held_snapshot, sizeof(o->held_snapshot), "%s", snapshot ? snapshot : "");
        return 0;
    }
    m.u.create.template_number = template_number;
    m.u.create.level = o->s.level;
    m.u.create.limits = o->s.limits;
    m.u.create.kept = kept;
    m.u.create.flags = create_flags(o, snapshot);
    if (kept) {
        m.u.create.account = tenant_privd_account(o->s.tenant);
        keep_owner(snapshot ? snapshot : o->s.id, m.u.create.owner);
    }
    if (volumes_fill(o->core, o->s.tenant, o->s.volumes, &m) < 0)
        return -ENOENT;
    memcpy(m.u.create.id, o->s.id, sizeof(o->s.id));
    memcpy(m.u.create.key, o->s.agent_key, sizeof(m.u.create.key));
    return call_privd(o->core, o->s.id, &m, on_created, NULL);
}

void create_held_refused(struct sandbox_obj *o, const struct err *why)
{
    o->held = false;
    if (!sandbox_life(o)->awaits_create)
        return; /* it is not to be made any more */
    log_warn("sandbox %s: %s", o->s.id, why->text);
    if (sandbox_life(o)->files) {
        keep_restart_refused(o, -EBUSY, why);
        return;
    }
    create_fail(o, why);
    lifecycle_ended(o, "it could not be made");
}

void create_send_held(struct sandbox_obj *o)
{
    struct err e;
    int64_t rc;

    o->held = false;
    if (!sandbox_life(o)->awaits_create)
        return;
    rc = create_send(o, o->held_template, o->held_kept,
                     o->held_snapshot[0] ? o->held_snapshot : NULL);
    if (rc >= 0)
        return;
    call_privd_err(&e, rc, "the sandbox could not be made");
    create_held_refused(o, &e);
}

static enum err_code write_row(struct core *c, struct sandbox_obj *o,
                               const struct sandbox_request *r, struct err *e)
{
    enum err_code code = store_sandbox_insert(c->store, &o->s, e);

    if (code != ERR_OK || !r->create_key)
        return code;
    code = create_key_insert(c, &o->s, r, e);
    if (code != ERR_OK)
        store_sandbox_delete(c->store, o->s.id, NULL);
    o->has_create_key = code == ERR_OK;
    return code;
}

/* Row first, then privd. On failure nothing is left. */
static enum err_code begin(struct core *c, struct sandbox_obj *o, const struct sandbox_request *r,
                           const char *copy_of, uint32_t template_number, struct err *e)
{
    enum err_code code = write_row(c, o, r, e);
    int64_t rc;

    if (code != ERR_OK)
        return code;
    rc = create_send(o, template_number, o->copy_of, copy_of);
    if (rc < 0) {
        store_sandbox_delete(c->store, o->s.id, NULL);
        return call_privd_err(e, rc, "the sandbox could not be made");
    }
    if (o->copies_memory)
        dump_await_restore(o);
    else
        arm_deadline(o);
    return ERR_OK;
}

/* Takes from r what the sandbox begins with. The id that those files are kept for; NULL: none. */
static const char *set_source(struct sandbox_obj *o, const struct sandbox_request *r,
                              const struct snapshot *snapshot)
{
    const struct sandbox_obj *source = r->memory_of ? sandbox_get(o->core, NULL, r->memory_of)
                                                    : NULL;
    const bool memory = snapshot && create_memory_fits(o, r, snapshot);

    o->no_start_command = r->no_start_command || source || memory; /* it runs already */
    if (!source && !snapshot)
        return NULL;
    o->copy_of = source ? source->s.kept : snapshot->number;
    o->copies_memory = source || memory;
    o->takes_snapshot = snapshot && r->takes_snapshot;
    (void)snprintf(o->s.template_requested, sizeof(o->s.template_requested), "%s", r->made_of);
    if (!memory)
        return source ? source->s.id : snapshot->id;
    o->copy_of = snapshot->memory;
    memcpy(o->memory_snapshot, snapshot->id, sizeof(o->memory_snapshot));
    return snapshot->memory_of;
}

static enum err_code create(struct core *c, const struct sandbox_request *request,
                            core_sandbox_cb done, void *arg, struct err *e)
{
    struct sandbox_request own = *request, *r = &own;
    const struct snapshot *snapshot = NULL;
    const struct template_info *requested = NULL, *used = NULL;
    struct sandbox_obj *o = NULL;
    json_t *volumes = NULL;
    enum err_code code = volumes_resolve(c, r, &volumes, e);

    r->volumes = volumes;
    if (code == ERR_OK && r->serves_volume && volumes_mark_serving(volumes) < 0)
        code = err_set(e, ERR_EXHAUSTED, "memory is out");
    if (code == ERR_OK)
        code = create_check(c, r, &snapshot, &requested, &used, e);
    if (code == ERR_OK)
        code = sandbox_make(c, r, requested, used, &o, e);
    json_decref(volumes);
    if (code != ERR_OK)
        return code;
    auto_destroy_arm(o);
    const char *copy_of = set_source(o, r, snapshot);
    o->begun_us = clock_mono_us();
    code = begin(c, o, r, copy_of, used->number, e);
    if (code != ERR_OK) {
        sandbox_free(o);
        return code;
    }
    o->create_done = done;
    o->create_arg = arg;
    if (!o->s.serves_volume)
        trace_sandbox_begin(o, TRACE_CREATE, NULL, o->begun_us);
    if (!ca_is_wanted(o))
        o->init_body = create_make_init(o); /* while privd is at work */
    return ERR_OK;
}

void core_sandbox_create(struct core *c, const struct sandbox_request *r, core_sandbox_cb done,
                         void *arg)
{
    struct err e;

    if (create(c, r, done, arg, &e) == ERR_OK)
        return;
    c->counters.create_failed[e.code]++;
    core_defer_error(c, done, arg, &e);
}
