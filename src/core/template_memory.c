/* The steps: privd is asked whether memory can be kept, create, the ready command again and again,
 * pause, take (snapshot_memory.c), each begun by the answer to the one before. A failure ends the
 * sandbox first, and is told then. */

#include "core/template_memory.h"

#include "base/clock.h"
#include "base/log.h"
#include "contract/checkpoint_boot.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/exec.h"
#include "core/keep.h"
#include "core/lifecycle.h"
#include "core/sandbox.h"
#include "core/snapshot.h"
#include "core/snapshot_internal.h"
#include "core/snapshot_memory.h"
#include "core/tenant.h"
#include "core/timers.h"

#include <errno.h>
#include <string.h>

#define PRESET         "package-registries"
#define READY_AGAIN_MS 500u
#define READY_ONE_MS   30000u
#define READY_OUTPUT   4096u

struct template_making {
    struct core *core;
    struct template_making *next; /* of those under way */
    struct tenant *tenant;        /* a reference */
    char snapshot[IDS_SANDBOX_SIZE], sandbox[IDS_SANDBOX_SIZE];
    char *ready, *ready_user, *cwd; /* ready NULL: settle_ms is waited */
    json_t *env;
    uint64_t settle_ms, ready_ms, until_ms; /* the last of clock_mono_ms, of the ready command */
    struct timer again;
    struct deferred later;
    struct err why; /* of why it ends */
    bool failed;
    core_done_cb done;
    void *arg;
};

static void making_free(struct template_making *m)
{
    struct template_making **at = &m->core->makings;

    while (*at != m)
        at = &(*at)->next;
    *at = m->next;
    timers_cancel(&m->core->timers, &m->again);
    json_decref(m->env);
    free(m->ready);
    free(m->ready_user);
    free(m->cwd);
    tenant_unref(m->tenant);
    free(m);
}

static void finish(void *arg)
{
    struct template_making *m = arg;
    const core_done_cb done = m->done;
    void *const for_done = m->arg;
    const struct err why = m->why;
    const bool failed = m->failed;

    if (failed)
        log_warn("snapshot %s has no memory: %s", m->snapshot, why.text);
    else
        log_info("snapshot %s has memory from now on", m->snapshot);
    core_call_end(m->core);
    making_free(m);
    done(for_done, failed ? &why : NULL);
}

static void on_killed(void *arg, const struct sandbox *s, const struct err *why)
{
    finish(arg);
}

/* why lives in m. */
static void fail(struct template_making *m)
{
    m->failed = true;
    if (m->sandbox[0] && !m->core->stopping)
        core_sandbox_kill(m->core, m->tenant->name, m->sandbox, on_killed, m);
    else
        finish(m);
}

static void fail_with(struct template_making *m, const struct err *why)
{
    m->why = *why;
    fail(m);
}

/* -- the pause --------------------------------------------------------------------------------- */

/* In a turn of its own, as the sandbox goes with it. */
static void take(void *arg)
{
    struct template_making *m = arg;

    if (snapshot_memory_take(m->core, m->tenant->name, m->snapshot, m->sandbox, &m->why) == ERR_OK)
        finish(m);
    else
        fail(m);
}

static void on_paused(void *arg, const struct sandbox *s, const struct err *why)
{
    struct template_making *m = arg;

    if (why)
        fail_with(m, why);
    else
        core_defer(m->core, &m->later, take, m);
}

static void keep_it(struct template_making *m)
{
    core_sandbox_pause(m->core, m->tenant->name, m->sandbox, SANDBOX_TIER_MEMORY, on_paused, m);
}

/* -- until it is ready ------------------------------------------------------------------------- */

static void check_ready(struct template_making *m);

static void on_again(struct timer *t)
{
    struct template_making *m = CONTAINER_OF(t, struct template_making, again);

    if (m->ready)
        check_ready(m);
    else
        keep_it(m);
}

static void on_ready(void *arg, const struct core_exec_result *x, const struct err *why)
{
    struct template_making *m = arg;

    if (why) {
        fail_with(m, why);
    } else if (x->exit_code == 0 && !x->signal && !x->timed_out) {
        keep_it(m);
    } else if (clock_mono_ms() >= m->until_ms) {
        err_set(&m->why, ERR_TIMEOUT, "the ready command did not succeed within %llu s there",
                (unsigned long long)m->ready_ms / 1000);
        fail(m);
    } else {
        timers_set(&m->core->timers, &m->again, clock_mono_ms() + READY_AGAIN_MS);
    }
}

static void check_ready(struct template_making *m)
{
    json_t *process = json_pack("{s:s, s:[s, s, s], s:s, s:O}", "cmd", "/bin/bash", "args", "-l",
                                "-c", m->ready, "cwd", m->cwd, "envs", m->env);
    const struct core_exec_request r = {.process = process,
                                        .user = m->ready_user,
                                        .timeout_ms = READY_ONE_MS,
                                        .max_output_bytes = READY_OUTPUT};

    core_exec(m->core, m->tenant->name, m->sandbox, &r, on_ready, m);
    json_decref(process);
}

static void on_created(void *arg, const struct sandbox *s, const struct err *why)
{
    struct template_making *m = arg;

    if (!s) {
        fail_with(m, why);
        return;
    }
    memcpy(m->sandbox, s->id, sizeof(m->sandbox));
    m->until_ms = clock_mono_ms() + m->ready_ms;
    if (m->ready)
        check_ready(m);
    else
        timers_set(&m->core->timers, &m->again, clock_mono_ms() + m->settle_ms);
}

/* -- the beginning ----------------------------------------------------------------------------- */

static void create(struct template_making *m)
{
    json_t *policy = json_pack("{s:[s]}", "presets", PRESET);
    json_t *metadata = json_pack("{s:s}", TEMPLATE_MEMORY_METADATA, m->snapshot);
    const struct sandbox_request r = {
        .tenant = m->tenant->name,
        .snapshot = m->snapshot,
        .secure = true,
        .allow_internet = true,
        .metadata = metadata,
        .policy = policy,
        .ttl_ms = (int64_t)MIN((uint64_t)TEMPLATE_MEMORY_TIME_MS, m->core->config.max_ttl_ms)};

    if (!policy || !metadata) { /* without a policy it would be let out everywhere */
        json_decref(metadata);
        json_decref(policy);
        err_set(&m->why, ERR_EXHAUSTED, "memory is out");
        fail(m);
        return;
    }
    m->ready_ms = m->ready_ms ? MIN(m->ready_ms, (uint64_t)r.ttl_ms / 2) : (uint64_t)r.ttl_ms / 2;
    core_sandbox_create(m->core, &r, on_created, m);
    json_decref(metadata);
    json_decref(policy);
}

/* No sandbox is made, and none waited for, where its memory could not be kept in the end. */
static void on_capacity(struct core *c, const char *id, int status, const struct privsep_msg *msg,
                        int *fds, size_t n_fds, void *arg)
{
    struct template_making *m = arg;
    const int cannot = status == 0 ? msg->u.capacity.memory : 0;

    if (status < 0) {
        call_privd_err(&m->why, status, "asking whether memory can be kept");
    } else if (cannot == -ENOENT) {
        err_set(&m->why, ERR_UNIMPLEMENTED, "memory cannot be kept: there is no " CHECKPOINT_CRIU);
        err_hint(&m->why, "see `cay doctor` for the CRIU that this needs");
    } else if (cannot) {
        err_set(&m->why, ERR_UNIMPLEMENTED,
                "memory cannot be kept on this server: its state disk is not btrfs, or a program "
                "of cay is not there");
    } else {
        create(m);
        return;
    }
    fail(m);
}

static enum err_code request_capacity(struct template_making *m, struct err *e)
{
    struct privsep_msg msg = {.op = PRIVSEP_CAPACITY};
    const int64_t rc = call_privd(m->core, "", &msg, on_capacity, m);

    return rc < 0 ? call_privd_err(e, rc, "asking whether memory can be kept") : ERR_OK;
}

/* false: memory is out. */
static bool copy(struct template_making *m, const struct template_memory_request *r)
{
    m->tenant = tenant_get(m->core, r->tenant);
    memcpy(m->snapshot, r->snapshot, strlen(r->snapshot) + 1);
    m->settle_ms = r->settle_ms;
    m->ready_ms = r->ready_ms;
    m->env = r->env ? json_deep_copy(r->env) : json_object();
    m->ready = r->ready ? strdup(r->ready) : NULL;
    m->ready_user = strdup(r->ready ? r->ready_user : "");
    m->cwd = strdup(r->ready ? r->cwd : "");
    return m->tenant && m->env && m->ready_user && m->cwd && (m->ready || !r->ready);
}

static enum err_code begin(struct core *c, const struct template_memory_request *r,
                           core_done_cb done, void *arg, struct err *e)
{
    struct template_making *m;
    enum err_code code = keep_check(c, e);

    if (code != ERR_OK)
        return code;
    if (!core_call_begin(c))
        return err_set(e, ERR_UNAVAILABLE, "memory is out");
    m = calloc(1, sizeof(*m));
    if (!m) {
        core_call_end(c);
        return err_set(e, ERR_UNAVAILABLE, "memory is out");
    }
    m->core = c;
    m->done = done;
    m->arg = arg;
    m->again.fire = on_again;
    m->next = c->makings;
    c->makings = m;
    code = copy(m, r) ? request_capacity(m, e) : err_set(e, ERR_UNAVAILABLE, "memory is out");
    if (code != ERR_OK) {
        core_call_end(c);
        making_free(m);
    }
    return code;
}

void template_memory_make(struct core *c, const struct template_memory_request *r,
                          core_done_cb done, void *arg)
{
    struct err e;

    if (begin(c, r, done, arg, &e) != ERR_OK)
        core_defer_refusal(c, done, arg, &e);
}

void core_snapshot_add_memory(struct core *c, const char *tenant, const char *name,
                              const char *ready, core_done_cb done, void *arg)
{
    const struct snapshot *s = core_snapshot_find(c, tenant, name);
    struct template_memory_request r = {
        .tenant = tenant, .ready = ready, .ready_user = "root", .cwd = "/"};
    struct err e;

    if (core_check_ready(c, &e) != ERR_OK) {
        core_defer_refusal(c, done, arg, &e);
    } else if (!s) {
        snapshot_missing(name, &e);
        core_defer_refusal(c, done, arg, &e);
    } else {
        r.snapshot = s->id;
        template_memory_make(c, &r, done, arg);
    }
}

void template_memory_stop(struct core *c, const struct err *why)
{
    struct template_making *next;

    for (struct template_making *m = c->makings; m; m = next) {
        next = m->next;
        if (timer_armed(&m->again)) /* else it is told by what it waits for */
            fail_with(m, why);
    }
}

/* -- after a restart --------------------------------------------------------------------------- */

static bool is_under_way(const struct core *c, const char *sandbox)
{
    const struct template_making *m = c->makings;

    while (m && strcmp(m->sandbox, sandbox) != 0)
        m = m->next;
    return m != NULL;
}

void template_memory_ready(struct core *c)
{
    /* Backwards: an end moves only what comes after it. */
    for (size_t i = c->registry.n; i > 0; i--) {
        struct sandbox_obj *o = c->registry.order[i - 1];

        if (json_object_get(o->s.metadata, TEMPLATE_MEMORY_METADATA) && sandbox_life(o)->visible &&
            !is_under_way(c, o->s.id))
            lifecycle_end(o, "the making of a template's memory was interrupted");
    }
}
