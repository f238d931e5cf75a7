#include "core/fork.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/events.h"
#include "core/keep.h"
#include "core/lifecycle.h"
#include "core/pause.h"
#include "core/reboot.h"
#include "core/reserve.h"
#include "core/sandbox.h"
#include "core/snapshot.h"
#include "core/tenant.h"
#include "core/volume.h"

#include <errno.h>
#include <string.h>

_Static_assert(CORE_FORKS_MAX == PRIVSEP_COPY_CREATES_MAX, "a copy is for all forks of a call");

#define ENV_TIMEOUT_MS 5000u
#define ENV_BYTES_MAX  (2u * 1024u * 1024u)
#define FORKS_AT_ONCE  2u     /* with memory; less than a tenant may have restored at a time */
#define OWN_KEYS       "cay." /* of metadata: what cay itself says of the one sandbox */

/* All that a fork needs of its source, which may end meanwhile. */
struct fork_op {
    struct core *core;
    struct sandbox_request r;
    struct tenant *tenant; /* a reference: the source may end meanwhile */
    char source[IDS_SANDBOX_SIZE], snapshot[IDS_SANDBOX_SIZE];
    char made_of[CORE_NAME_SIZE];
    char name[CORE_SANDBOX_NAME_SIZE];
    json_t *metadata, *env, *policy, *credentials, *volumes;
    struct volume_mount mounts[PRIVSEP_CREATE_VOLUMES];
    struct network *network;
    size_t n, begun, answered;
    size_t at_once, under_way; /* with memory */
    struct fork_one *put_off;  /* with memory: which is begun again when no other is under way */
    unsigned awaited;      /* with files: environment and snapshot, which are asked for at once */
    bool failed;           /* one of them, and why says how */
    bool stood_still;      /* the snapshot was answered */
    bool env_later;        /* the environment is asked for again then */
    bool holds;            /* with memory: the source stays paused until all are made */
    int64_t source_ttl_ms; /* where it is paused for this */
    core_fork_cb done;
    void *arg;
    struct err why;
    struct core_fork *forks;
    struct fork_one *ones; /* for each of them */
    struct deferred later;
    struct trace_span trace;
};

/* A create of the fork. */
struct fork_one {
    struct fork_op *op;
    size_t at;
};

static void op_free(struct fork_op *op)
{
    json_decref(op->metadata);
    json_decref(op->env);
    json_decref(op->policy);
    json_decref(op->credentials);
    json_decref(op->volumes);
    network_unref(op->network);
    tenant_unref(op->tenant);
    free(op->forks);
    free(op->ones);
    free(op);
}

static void ignore_deleted(void *arg, const struct err *why)
{
}

static void add_event(const struct fork_op *op)
{
    json_t *ids = json_array(), *data;
    int failed = 0;

    for (size_t i = 0; i < op->n; i++)
        if (op->forks[i].id[0])
            json_array_append_new(ids, json_string(op->forks[i].id));
        else
            failed++;
    data = json_pack("{s:O, s:i}", "forks", ids, "failed", failed);
    if (op->forks[0].source)
        json_object_set_new(data, "sourceError", json_string(op->forks[0].source->text));
    events_add(op->tenant, EVENT_SANDBOX_FORKED, op->source, data);
    json_decref(ids);
}

/* Of all that it has begun: the first that has failed. */
static enum err_code outcome(const struct fork_op *op, const struct err *why)
{
    for (size_t i = 0; !why && i < op->n; i++)
        if (!op->forks[i].id[0])
            why = &op->forks[i].why;
    return why ? why->code : ERR_OK;
}

/* The answer; then the snapshot goes by itself. */
static void finish(struct fork_op *op, const struct err *why)
{
    const struct trace_about about = {.tenant = op->tenant->name, .sandbox = op->source};

    trace_end(op->core, &op->trace, &about, outcome(op, why));
    if (!why)
        add_event(op);
    op->done(op->arg, why ? NULL : op->forks, why ? 0 : op->n, why);
    if (op->snapshot[0])
        core_snapshot_delete(op->core, op->tenant->name, op->snapshot, ignore_deleted, NULL);
    op_free(op);
}

/* While it is held a resume of it waits (reboot.h). */
static void hold_source(struct fork_op *op, struct sandbox_obj *o)
{
    o->copies++;
    op->holds = true;
}

/* How long the source, which was paused for forks, is to run when this was the last of the calls
 * that make some; 0: it is not to be resumed. */
static int64_t release_source(struct fork_op *op)
{
    struct sandbox_obj *o = op->holds ? sandbox_get(op->core, op->tenant->name, op->source) : NULL;
    int64_t ttl_ms = 0;

    op->holds = false;
    if (!o || --o->copies > 0)
        return 0;
    ttl_ms = o->forks_ttl_ms;
    o->forks_ttl_ms = 0;
    reboot_copies_made(o);
    return ttl_ms;
}

/* The forks are as they are: each says it of its source. */
static void source_stays_paused(struct fork_op *op, const struct err *why)
{
    err_set(&op->why, why->code, "sandbox %s was paused for this, and is paused still: %s",
            op->source, why->text);
    err_hint(&op->why, "%s", why->hint);
    log_warn("%s", op->why.text);
    for (size_t i = 0; i < op->n; i++)
        op->forks[i].source = &op->why;
}

/* Its time goes on from where it stood. Another caller may have resumed it, or ended it. */
static void on_source_resumed(void *arg, const struct sandbox *s, const struct err *why)
{
    struct fork_op *op = arg;
    struct sandbox_obj *o;
    struct err e;

    if (!s && why->code != ERR_EXISTS &&
        sandbox_visible(op->core, op->tenant->name, op->source, &o, &e) == ERR_OK)
        source_stays_paused(op, why);
    finish(op, NULL);
}

static void all_answered(struct fork_op *op)
{
    int64_t ttl_ms = release_source(op);

    if (ttl_ms > 0)
        core_sandbox_resume(op->core, op->tenant->name, op->source, ttl_ms, false,
                            on_source_resumed, op);
    else
        finish(op, NULL);
}

static void begin_next(struct fork_op *op);

/* While others of it are under way the tenant may have too many that are restored: then the rest is
 * made one after the other. */
static bool is_put_off(struct fork_op *op, struct fork_one *one, const struct err *why)
{
    if (!op->r.memory_of || op->under_way == 0 || why->code != ERR_UNAVAILABLE)
        return false;
    op->put_off = one;
    op->at_once = 1;
    return true;
}

static void on_created(void *arg, const struct sandbox *s, const struct err *why)
{
    struct fork_one *one = arg;
    struct fork_op *op = one->op;
    struct core_fork *f = &op->forks[one->at];

    core_call_end(op->core);
    op->under_way--;
    if (!s && is_put_off(op, one, why))
        return;
    if (s)
        memcpy(f->id, s->id, sizeof(f->id));
    else
        f->why = *why;
    if (s && op->answered == 0) /* the image is open for the others */
        op->at_once = FORKS_AT_ONCE;
    if (++op->answered == op->n)
        all_answered(op);
    else if (op->r.memory_of)
        begin_next(op);
}

/* The way out is the source's as it is now: its owner may have changed it meanwhile. false: memory
 * is out. */
static bool take_way_out(struct fork_op *op)
{
    const struct sandbox_obj *o = sandbox_get(op->core, op->tenant->name, op->source);
    json_t *policy, *credentials;

    if (!o)
        return true; /* it has ended: as it was last */
    policy = o->s.policy ? json_deep_copy(o->s.policy) : NULL;
    credentials = o->s.credentials ? json_deep_copy(o->s.credentials) : NULL;
    if ((o->s.policy && !policy) || (o->s.credentials && !credentials)) {
        json_decref(policy);
        json_decref(credentials);
        return false;
    }
    json_decref(op->policy);
    json_decref(op->credentials);
    network_unref(op->network);
    op->r.policy = op->policy = policy;
    op->r.credentials = op->credentials = credentials;
    op->r.network = op->network = network_ref(o->s.network);
    op->r.allow_internet = o->s.allow_internet;
    return true;
}

/* Never answers from inside. false: it is answered, as no create can be taken on without memory. */
static bool begin_one(struct fork_op *op, size_t i)
{
    op->ones[i] = (struct fork_one){op, i};
    if (op->env && take_way_out(op) && core_call_begin(op->core)) {
        op->under_way++;
        core_sandbox_create(op->core, &op->r, on_created, &op->ones[i]);
        return true;
    }
    err_set(&op->forks[i].why, ERR_EXHAUSTED, "memory is out");
    op->answered++;
    return false;
}

static bool may_begin(const struct fork_op *op)
{
    return op->under_way < op->at_once && (op->put_off || op->begun < op->n);
}

/* With memory few at a time, the first alone, which opens the image. */
static void begin_next(struct fork_op *op)
{
    const struct trace_context below = trace_below(&op->trace);
    struct trace_context before = trace_enter(op->core, &below);

    while (may_begin(op)) {
        size_t i = op->put_off ? op->put_off->at : op->begun++;

        op->put_off = NULL;
        (void)begin_one(op, i);
    }
    (void)trace_enter(op->core, &before);
    if (op->answered == op->n)
        all_answered(op);
}

static void begin_with_memory(struct fork_op *op, struct sandbox_obj *o)
{
    hold_source(op, o);
    op->env = o->s.env ? json_deep_copy(o->s.env) : json_object();
    op->r.env = op->env;
    op->r.memory_of = op->source;
    op->at_once = 1;
    begin_next(op);
}

static void on_source_paused(void *arg, const struct sandbox *s, const struct err *why)
{
    struct fork_op *op = arg;
    struct sandbox_obj *o;

    if (!s) {
        finish(op, why);
        return;
    }
    o = sandbox_get(op->core, NULL, s->id);
    o->forks_ttl_ms = op->source_ttl_ms;
    begin_with_memory(op, o);
}

static void begin_with_files(struct fork_op *op)
{
    const struct trace_context below = trace_below(&op->trace);
    struct trace_context before;
    bool begun = false;

    op->r.env = op->env;
    op->r.template_name = op->snapshot;
    op->r.takes_snapshot = op->n == 1;
    before = trace_enter(op->core, &below);
    for (size_t i = 0; i < op->n; i++)
        begun |= begin_one(op, i);
    (void)trace_enter(op->core, &before);
    if (!begun)
        finish(op, NULL);
}

/* Environment or snapshot is there, or (why) cannot be had: the forks begin, or the call ends, when
 * both have been answered. */
static void take_answer(struct fork_op *op, const struct err *why)
{
    if (why && !op->failed) {
        op->failed = true;
        op->why = *why;
    }
    if (--op->awaited > 0)
        return;
    if (op->failed)
        finish(op, &op->why);
    else
        begin_with_files(op);
}

static void take_no_env(struct fork_op *op)
{
    struct err e;

    err_set(&e, op->core->stopping ? ERR_CANCELED : ERR_UNAVAILABLE,
            "sandbox %s is not forked: its agent, which has its environment, does not answer",
            op->source);
    take_answer(op, &e);
}

static void on_env(struct core *c, const char *id, const struct err *why, int http_status,
                   const char *body, size_t len, void *arg);

/* Also again, where the agent did not answer while its sandbox stood still for the snapshot. */
static void request_env(struct fork_op *op)
{
    const struct call_agent_request get_env = {.method = "GET",
                                               .target = "/envs",
                                               .max_response_bytes = ENV_BYTES_MAX,
                                               .timeout_ms = ENV_TIMEOUT_MS};
    struct sandbox_obj *o;
    struct err e;

    op->env_later = false;
    if (sandbox_visible(op->core, op->tenant->name, op->source, &o, &e) == ERR_OK)
        call_agent(o, &get_env, on_env, op);
    else
        take_answer(op, &e);
}

static void on_snapshot(void *arg, const struct snapshot *s, const struct err *why)
{
    struct fork_op *op = arg;

    if (s)
        memcpy(op->snapshot, s->id, sizeof(op->snapshot));
    op->stood_still = true;
    if (op->env_later && s && !op->core->stopping)
        request_env(op);
    else if (op->env_later)
        take_no_env(op);
    take_answer(op, s ? NULL : why);
}

static void on_env(struct core *c, const char *id, const struct err *why, int http_status,
                   const char *body, size_t len, void *arg)
{
    struct fork_op *op = arg;
    const struct trace_about about = {.tenant = op->tenant->name, .sandbox = op->source};

    op->env = call_agent_env(why, http_status, body, len);
    op->env_later = !json_is_object(op->env) && !op->stood_still && !c->stopping;
    if (op->env_later)
        return;
    if (!json_is_object(op->env)) {
        take_no_env(op);
        return;
    }
    trace_step(c, &op->trace, TRACE_FORK_ENV, op->trace.begun_us, clock_mono_us(), &about);
    take_answer(op, NULL);
}

/* The agent answers before its sandbox stands still for the snapshot, or when it goes on. */
static void begin_both(struct fork_op *op)
{
    struct core *c = op->core;
    const struct trace_context below = trace_below(&op->trace);
    struct trace_context before;

    op->awaited = 2;
    request_env(op);
    before = trace_enter(c, &below);
    snapshot_for_forks(c, op->tenant->name, op->source, op->n, on_snapshot, op);
    (void)trace_enter(c, &before);
}

/* The source's but for cay's own: those, as of which MCP session it is, are not true of a fork.
 * NULL: memory is out. */
static json_t *copy_metadata(json_t *of)
{
    json_t *copy = json_deep_copy(of), *value;
    const char *key;

    json_object_foreach (of, key, value)
        if (strncmp(key, OWN_KEYS, strlen(OWN_KEYS)) == 0)
            json_object_del(copy, key);
    return copy;
}

/* false: memory is out. */
static bool take_over(struct fork_op *op, const struct sandbox *s,
                      const struct core_fork_request *r)
{
    op->metadata = s->metadata ? copy_metadata(s->metadata) : NULL;
    op->volumes = json_incref(s->volumes); /* paths of mounts are its */
    memcpy(op->source, s->id, sizeof(op->source));
    memcpy(op->made_of, s->template_requested, sizeof(op->made_of));
    op->tenant = tenant_ref(sandbox_tenant(s));
    if (r->name)
        memcpy(op->name, r->name, strlen(r->name) + 1);
    op->r = (struct sandbox_request){.tenant = op->tenant->name,
                                     .made_of = op->made_of,
                                     .parent = op->source,
                                     .name = r->name ? op->name : NULL,
                                     .ttl_ms = r->ttl_ms,
                                     .idle_ms = r->idle_ms,
                                     .idle_counts = s->idle_counts,
                                     .auto_archive_ms = s->auto_archive_ms,
                                     .auto_delete_ms = s->auto_delete_ms,
                                     .destroy_ms = r->destroy_ms,
                                     .on_timeout = s->on_timeout,
                                     .auto_resume = s->auto_resume,
                                     .timeout_tier = s->timeout_tier,
                                     .to_disk_ms = s->to_disk_ms,
                                     .secure = s->secure,
                                     .level = s->level,
                                     .limits = s->limits,
                                     .metadata = op->metadata,
                                     .mounts = op->mounts,
                                     .n_mounts = volumes_mounts(op->volumes, op->mounts)};
    return (op->metadata || !s->metadata) && take_way_out(op);
}

static enum err_code check_request(const struct core *c, const char *tenant,
                                   const struct core_fork_request *r, struct err *e)
{
    if (r->count < 1 || r->count > CORE_FORKS_MAX)
        return err_set(e, ERR_INVALID, "%zu forks at once; 1 to %u are allowed", r->count,
                       CORE_FORKS_MAX);
    if (r->name && (r->count > 1 || strlen(r->name) >= CORE_SANDBOX_NAME_SIZE))
        return err_set(e, ERR_INVALID, "a name of at most %d characters is for one fork alone",
                       CORE_SANDBOX_NAME_SIZE - 1);
    if (r->name && sandbox_name_is_taken(c, tenant, r->name))
        return err_set(e, ERR_EXISTS, "there is a sandbox with the name %s already", r->name);
    return r->idle_ms > 0 && r->ttl_ms == 0 ? ERR_OK : lifecycle_check_ttl(c, r->ttl_ms, e);
}

static enum err_code check(struct core *c, const char *tenant, const char *id,
                           const struct core_fork_request *r, struct sandbox_obj **out,
                           struct err *e)
{
    enum err_code code = core_check_ready(c, e);

    if (code == ERR_OK)
        code = sandbox_visible(c, tenant, id, out, e);
    if (code == ERR_OK)
        code = check_request(c, (*out)->s.tenant, r, e);
    if (code == ERR_OK && volumes_any_writable((*out)->s.volumes)) {
        code = err_set(e, ERR_CONFLICT,
                       "sandbox %s may write to a volume, which no other can have then", id);
        err_hint(e, "fork one that has its volumes read-only, or none");
    }
    if (code == ERR_OK && !(r->memory && sandbox_has_memory_on_disk(*out)) &&
        !sandbox_life(*out)->reachable)
        code = sandbox_not_running(*out, e);
    return code;
}

static void refuse_deferred(void *arg)
{
    struct fork_op *op = arg;

    finish(op, &op->why);
}

/* Of one that is paused with its memory already, where it still is. */
static void begin_deferred(void *arg)
{
    struct fork_op *op = arg;
    struct sandbox_obj *o = sandbox_get(op->core, op->tenant->name, op->source);

    if (o && sandbox_has_memory_on_disk(o)) {
        begin_with_memory(op, o);
        return;
    }
    err_set(&op->why, ERR_CONFLICT, "sandbox %s was resumed meanwhile", op->source);
    finish(op, &op->why);
}

void core_sandbox_fork(struct core *c, const char *tenant, const char *id,
                       const struct core_fork_request *r, core_fork_cb done, void *arg)
{
    struct fork_op *op = RESERVE_NEW(&c->reserve, struct fork_op);
    struct sandbox_obj *o = NULL;
    enum err_code code = check(c, tenant, id, r, &o, &op->why);

    op->core = c;
    op->done = done;
    op->arg = arg;
    op->n = r->count;
    if (code == ERR_OK)
        op->forks = calloc(r->count, sizeof(*op->forks));
    if (code == ERR_OK)
        op->ones = calloc(r->count, sizeof(*op->ones));
    if (code == ERR_OK && (!op->forks || !op->ones || !take_over(op, &o->s, r)))
        code = err_set(&op->why, ERR_EXHAUSTED, "memory is out");
    if (code == ERR_OK && r->memory) {
        trace_begin(c, &op->trace, TRACE_FORK, clock_mono_us());
        op->source_ttl_ms = MAX(o->s.end_real_ms - clock_real_ms(), 1000);
        if (sandbox_has_memory_on_disk(o))
            core_defer(c, &op->later, begin_deferred, op);
        else
            pause_for_forks(o, on_source_paused, op);
        return;
    }
    if (code == ERR_OK) {
        trace_begin(c, &op->trace, TRACE_FORK, clock_mono_us());
        begin_both(op);
        return;
    }
    core_defer(c, &op->later, refuse_deferred, op);
}

size_t core_sandbox_forks(struct core *c, const char *tenant, const char *id,
                          const struct sandbox **out, size_t max)
{
    const struct tenant *t = tenant_find(c, tenant);
    size_t n = 0;

    for (struct sandbox_obj *o = t ? t->sandboxes : NULL; o && n < max; o = o->tenant_next)
        if (sandbox_life(o)->visible && strcmp(o->s.parent, id) == 0)
            out[n++] = &o->s;
    return n;
}
