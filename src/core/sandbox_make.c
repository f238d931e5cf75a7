/* A sandbox is entered once, from a request or a row of the store, into the registry and to its
 * tenant, and freed after its last step or when the core stops, by which each part of core lets go
 * of it. Owns every sandbox_obj through the registry. Called by create.c and lifecycle.c, which
 * decide when. */

#include "core/sandbox_make.h"

#include "base/clock.h"
#include "core/archive.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/egress.h"
#include "core/exec.h"
#include "core/logs.h"
#include "core/metrics.h"
#include "core/pause.h"
#include "core/pause_waiters.h"
#include "core/registry.h"
#include "core/sandbox.h"
#include "core/sockets.h"
#include "core/template.h"
#include "core/tenant.h"
#include "core/timers.h"
#include "core/volume.h"

#include <stdio.h>
#include <string.h>

static void join_tenant(struct sandbox_obj *o, struct tenant *t)
{
    o->tenant = t;
    o->s.tenant = t->name;
    o->tenant_next = t->sandboxes;
    if (o->tenant_next)
        o->tenant_next->tenant_prev = o;
    t->sandboxes = o;
    sandbox_account(o);
}

static void leave_tenant(struct sandbox_obj *o)
{
    for (int i = 0; i < TENANT_SANDBOX_RESOURCES; i++)
        tenant_refund(&o->charges[i]);
    *(o->tenant_prev ? &o->tenant_prev->tenant_next : &o->tenant->sandboxes) = o->tenant_next;
    if (o->tenant_next)
        o->tenant_next->tenant_prev = o->tenant_prev;
    tenant_unref(o->tenant);
}

/* Puts o into the registry and to its tenant; false: memory is out, and o is as before. */
static bool enter(struct core *c, struct sandbox_obj *o, const char *tenant)
{
    struct tenant *t = tenant_get(c, tenant);

    if (!t)
        return false;
    o->core = c;
    o->used_ms = clock_mono_ms();
    o->end.fire = c->events_of_sandboxes.on_end_timer;
    o->destroy.fire = c->events_of_sandboxes.on_destroy_timer;
    o->socket_cache_expiry.fire = sockets_on_expiry;
    o->sample.fire = metrics_on_timer;
    if (registry_add(&c->registry, o) < 0) {
        tenant_unref(t);
        return false;
    }
    join_tenant(o, t);
    return true;
}

static void release(struct sandbox_obj *o)
{
    json_decref(o->s.metadata);
    json_decref(o->s.env);
    network_unref(o->s.network);
    json_decref(o->s.policy);
    json_decref(o->s.credentials);
    json_decref(o->s.volumes);
    free(o->init_body);
    explicit_bzero(o, sizeof(*o));
    free(o);
}

struct sandbox_obj *sandbox_adopt(struct core *c, const struct sandbox *s)
{
    struct sandbox_obj *o = calloc(1, sizeof(*o));

    if (!o)
        return NULL;
    o->s = *s;
    o->s.serves_volume = volumes_serve(s->volumes);
    if (!enter(c, o, s->tenant)) {
        free(o);
        return NULL;
    }
    if (s->memory_error && s->memory_error[0])
        err_set(&o->fell, ERR_UNIMPLEMENTED, "%s", s->memory_error);
    o->s.memory_error = o->fell.text;
    return o;
}

struct privsep_limits sandbox_limits_or(const struct privsep_limits *requested,
                                        const struct privsep_limits *d)
{
    return (struct privsep_limits){
        .memory_bytes = requested->memory_bytes ? requested->memory_bytes : d->memory_bytes,
        .disk_bytes = requested->disk_bytes ? requested->disk_bytes : d->disk_bytes,
        .cpu_milli = requested->cpu_milli ? requested->cpu_milli : d->cpu_milli,
        .pids = requested->pids ? requested->pids : d->pids,
        .open_files = requested->open_files ? requested->open_files : d->open_files,
        .filters = requested->filters ? requested->filters : d->filters};
}

/* Its own copies: the caller's may change or go. (A network setting does not change.) */
static bool copy_json(struct sandbox *s, const struct sandbox_request *r)
{
    s->metadata = r->metadata ? json_deep_copy(r->metadata) : json_object();
    s->env = r->env ? json_deep_copy(r->env) : json_object();
    s->network = network_ref(r->network);
    s->policy = r->policy ? json_deep_copy(r->policy) : NULL;
    s->volumes = r->volumes ? json_deep_copy(r->volumes) : NULL;
    s->credentials = r->credentials ? json_deep_copy(r->credentials) : NULL;
    return s->metadata && s->env && (s->policy || !r->policy) && (s->volumes || !r->volumes) &&
           (s->credentials || !r->credentials);
}

static int64_t first_life_ms(const struct core *c, const struct sandbox_request *r)
{
    int64_t ttl_ms = r->ttl_ms > 0 ? r->ttl_ms : (int64_t)c->config.default_ttl_ms;

    if (r->idle_ms == 0)
        return ttl_ms;
    return r->ttl_ms > 0 ? MIN(r->idle_ms, ttl_ms) : r->idle_ms;
}

struct privsep_limits sandbox_limits(const struct core *c, const struct sandbox_request *r,
                                     const struct template_info *requested)
{
    struct privsep_limits of_template = core_template_limits(c, requested);

    return sandbox_limits_or(&r->limits, &of_template);
}

static void fill(struct core *c, struct sandbox *s, const struct sandbox_request *r,
                 const struct template_info *requested, const struct template_info *used)
{
    if (r->id)
        snprintf(s->id, sizeof(s->id), "%s", r->id);
    while (!r->id && (!s->id[0] || registry_find(&c->registry, s->id)))
        ids_sandbox(s->id);
    snprintf(s->name, sizeof(s->name), "%s", r->name ? r->name : "");
    snprintf(s->parent, sizeof(s->parent), "%s", r->parent ? r->parent : "");
    snprintf(s->template_requested, sizeof(s->template_requested), "%s", requested->id);
    snprintf(s->template_id, sizeof(s->template_id), "%s", used->id);
    s->state = SANDBOX_CREATING;
    s->on_timeout = r->on_timeout;
    s->level = r->level;
    s->secure = r->secure;
    s->auto_resume = r->auto_resume;
    s->timeout_tier = r->timeout_tier;
    s->to_disk_ms = r->to_disk_ms;
    s->allow_internet = r->allow_internet;
    s->serves_volume = r->serves_volume;
    s->limits = sandbox_limits(c, r, requested);
    s->started_real_ms = clock_real_ms();
    s->idle_ms = r->idle_ms;
    s->auto_archive_ms = r->auto_archive_ms ? r->auto_archive_ms : CORE_ARCHIVE_DEFAULT_MS;
    s->auto_delete_ms = r->auto_delete_ms;
    s->destroy_real_ms = r->destroy_ms ? s->started_real_ms + r->destroy_ms : 0;
    s->idle_counts = r->idle_counts ? r->idle_counts : SANDBOX_IDLE_TRAFFIC;
    s->last_end_real_ms = r->idle_ms > 0 && r->ttl_ms > 0 ? s->started_real_ms + r->ttl_ms : 0;
    s->end_real_ms = s->started_real_ms + first_life_ms(c, r);
    ids_random_bytes(s->agent_key, sizeof(s->agent_key));
}

enum err_code sandbox_make(struct core *c, const struct sandbox_request *r,
                           const struct template_info *requested, const struct template_info *used,
                           struct sandbox_obj **out, struct err *e)
{
    struct sandbox_obj *o = calloc(1, sizeof(*o));

    if (!o)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    fill(c, &o->s, r, requested, used);
    o->s.memory_error = o->fell.text;
    if (!copy_json(&o->s, r) || !enter(c, o, r->tenant)) {
        release(o);
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    }
    *out = o;
    return ERR_OK;
}

void sandbox_free(struct sandbox_obj *o)
{
    struct core *c = o->core;
    const bool served = o->s.serves_volume;
    struct err why;

    err_set(&why, ERR_NOT_FOUND, "sandbox %s has ended", o->s.id);
    pause_fail(o, &why);
    metrics_free(o, &why);
    logs_free(o);
    exec_command_sandboxes_free(o);
    egress_forget(o);
    sockets_discard(o);
    timers_cancel(&c->timers, &o->end);
    timers_cancel(&c->timers, &o->destroy);
    timers_cancel(&c->timers, &o->sample);
    timers_cancel(&c->timers, &o->copies_wait);
    registry_remove(&c->registry, o);
    template_images_poke(c);
    leave_tenant(o);
    release(o);
    if (served)
        c->events_of_sandboxes.on_server_gone(c);
}
