/* A resize: asked about (operator's and tenant's limits), written, then asked of privd where the
 * sandbox lives. Until the answer its tenant is charged for the greater of both of each limit, and
 * after a refusal the row is what it was. An answer that never comes leaves the row with what was
 * wanted: the next LIST tells what holds (resize_on_listed). The agent learns the limits before the
 * answer, as its texts name them; one that is frozen learns them with its resume (hooks.c). */

#include "core/resize.h"

#include "base/log.h"
#include "base/share.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/create.h"
#include "core/deferred.h"
#include "core/life.h"
#include "core/limit.h"
#include "core/logs.h"
#include "core/quota.h"
#include "core/sandbox.h"
#include "core/state_follow.h"
#include "core/store_sandbox.h"
#include "core/template.h"
#include "http/json.h"

#include <errno.h>
#include <inttypes.h>

#define AGENT_ANSWER_MAX (16u * 1024u)

struct resize_op {
    struct privsep_limits from, to;
    core_sandbox_cb done; /* NULL: none waits */
    void *arg;
    struct share *share; /* of those that cay-privd has; NULL: of core's own */
};

static void op_free(struct resize_op *op)
{
    share_return(op->share);
    free(op);
}

static bool is_same(const struct privsep_limits *a, const struct privsep_limits *b)
{
    return a->memory_bytes == b->memory_bytes && a->disk_bytes == b->disk_bytes &&
           a->cpu_milli == b->cpu_milli;
}

static void set(struct sandbox_obj *o, const struct privsep_limits *l)
{
    o->s.limits = *l;
    sandbox_account(o);
}

static enum err_code write_row(struct sandbox_obj *o, const struct privsep_limits *l, struct err *e)
{
    return store_sandbox_set_limits(o->core->store, o->s.id, l, e);
}

/* -- may it ------------------------------------------------------------------------------------ */

/* A limit that does not grow may stay above a maximum that was lowered since. */
static enum err_code check_one(enum core_limit limit, uint64_t from, uint64_t to, uint64_t most,
                               struct err *e)
{
    const char *name = core_limit_name(limit);
    char text[CORE_LIMIT_TEXT];

    core_limit_text(limit, core_limit_min(limit), text);
    if (to != from && to < core_limit_min(limit))
        return err_set(e, ERR_INVALID, "%s: found %" PRIu64 ", at least %s is needed", name, to,
                       text);
    if (to <= from || to <= most)
        return ERR_OK;
    core_limit_text(limit, most, text);
    err_set(e, ERR_INVALID, "%s: found %" PRIu64 ", a sandbox has at most %s here", name, to, text);
    err_hint(e, "the operator sets it: [sandbox] in cay.conf, or `cay template limits`");
    return ERR_INVALID;
}

static enum err_code check_sizes(const struct sandbox_obj *o, const struct privsep_limits *to,
                                 struct err *e)
{
    const struct privsep_limits *from = &o->s.limits;
    const struct template_info *t = core_template_by_id(o->core, o->s.template_id);
    const struct privsep_limits most = t ? core_template_limits(o->core, t)
                                         : o->core->config.limits;
    enum err_code code;

    if ((code = check_one(CORE_LIMIT_MEMORY, from->memory_bytes, to->memory_bytes,
                          most.memory_bytes, e)) != ERR_OK ||
        (code = check_one(CORE_LIMIT_DISK, from->disk_bytes, to->disk_bytes, most.disk_bytes, e)) !=
            ERR_OK)
        return code;
    return check_one(CORE_LIMIT_CPU, from->cpu_milli, to->cpu_milli, most.cpu_milli, e);
}

static bool is_live(const struct sandbox_obj *o)
{
    const struct life *life = sandbox_life(o);

    return life->visible && !life->files && life->change == LIFE_CHANGE_NONE;
}

static enum err_code check_state(const struct sandbox_obj *o, const struct privsep_limits *to,
                                 struct err *e)
{
    if (life_is_at_rest(o->s.state) && !core_sandbox_is_stopped(&o->s)) {
        err_set(e, ERR_CONFLICT, "sandbox %s is %s: its limits are those of its image", o->s.id,
                sandbox_state_text(o));
        err_hint(e, "resume it first: `cay resume %s`", o->s.id);
        return ERR_CONFLICT;
    }
    if (o->resize_requested || o->change_requested ||
        (!is_live(o) && !core_sandbox_is_stopped(&o->s)))
        return err_set(e, ERR_CONFLICT,
                       "sandbox %s is %s: its limits are changed when that is over", o->s.id,
                       o->resize_requested ? "being resized" : sandbox_state_text(o));
    if (is_live(o) || to->disk_bytes >= o->s.limits.disk_bytes)
        return ERR_OK;
    err_set(e, ERR_CONFLICT, "sandbox %s does not run: what its files use is not known", o->s.id);
    err_hint(e, "start it, then give it less disk");
    return ERR_CONFLICT;
}

static enum err_code check(struct sandbox_obj *o, const struct privsep_limits *to, struct err *e)
{
    enum err_code code = check_state(o, to, e);

    if (code == ERR_OK)
        code = check_sizes(o, to, e);
    return code == ERR_OK ? quota_check_resize(o->tenant, &o->s.limits, to, e) : code;
}

/* -- the answer -------------------------------------------------------------------------------- */

static void uses_error(struct err *e, const struct privsep_msg *m)
{
    bool memory = m->u.resize.uses == PRIVSEP_USES_MEMORY;

    if (!memory && m->u.resize.uses != PRIVSEP_USES_DISK) {
        err_set(e, ERR_CONFLICT, "the sandbox is being changed otherwise; try again");
        return;
    }
    err_set(e, ERR_CONFLICT, "the sandbox uses %" PRIu64 " bytes of %s: it cannot have less",
            m->u.resize.used_bytes, memory ? "memory, the cache of its files included," : "disk");
    err_hint(e, memory ? "end some of its programs" : "remove some of its files");
}

static void privd_error(struct err *e, int status, const struct privsep_msg *m)
{
    switch (status) {
    case -EBUSY: uses_error(e, m); break;
    case -EALREADY:
    case -EAGAIN: err_set(e, ERR_UNAVAILABLE, "other limits are being changed; try again"); break;
    case -ETIMEDOUT:
        err_set(e, ERR_TIMEOUT,
                "the kernel did not give memory or disk back in time: nothing "
                "has changed");
        break;
    case -EOPNOTSUPP:
        err_set(e, ERR_UNIMPLEMENTED,
                "the files of sandboxes are in memory on this server: the "
                "size of their disk stays as it was made");
        break;
    case -ESTALE:
    case -ENOENT: err_set(e, ERR_NOT_FOUND, "the sandbox ended while it was resized"); break;
    default: call_privd_err(e, status, "changing its limits");
    }
}

static void done_with(struct sandbox_obj *o)
{
    const struct privsep_limits *l = &o->s.limits;

    log_info("sandbox %s: %" PRIu64 " bytes of memory, %" PRIu64 " of disk, %u of processor time",
             o->s.id, l->memory_bytes, l->disk_bytes, l->cpu_milli);
    logs_add(o, "info",
             "resized: %" PRIu64 " MiB of memory, %" PRIu64 " MiB of disk, %.2f processors",
             l->memory_bytes >> 20, l->disk_bytes >> 20, l->cpu_milli / 1e3);
    state_follow_notify(o, o->s.state);
}

static void answered(struct sandbox_obj *o, const struct resize_op *op, int status,
                     const struct privsep_msg *m, struct err *why)
{
    struct privsep_limits has = op->from;
    struct err e;

    o->resize_requested = false;
    if (status == 0) {
        set(o, &op->to);
        done_with(o);
        return;
    }
    privd_error(why, status, m);
    if (call_is_channel_error(status)) { /* it may have done it */
        set(o, &op->to);
        return;
    }
    /* Those of before, unless they could not be set again. */
    if (m->u.resize.memory_bytes != 0) {
        has.memory_bytes = m->u.resize.memory_bytes;
        has.disk_bytes = m->u.resize.disk_bytes;
        has.cpu_milli = m->u.resize.cpu_milli;
    }
    set(o, &has);
    if (write_row(o, &has, &e) != ERR_OK)
        log_error("sandbox %s: %s", o->s.id, e.text);
}

/* failed: NULL where the limits hold. */
static void finish(struct core *c, const char *id, struct resize_op *op, const struct err *failed)
{
    const struct sandbox_obj *o = sandbox_get(c, NULL, id);
    bool good = o && !c->stopping && !failed;
    struct err why;

    if (c->stopping)
        err_set(&why, ERR_CANCELED, "the server is stopping");
    else if (!o)
        err_set(&why, ERR_NOT_FOUND, "the sandbox ended while it was resized");
    else if (failed)
        why = *failed;
    if (op->done)
        op->done(op->arg, good ? &o->s : NULL, good ? NULL : &why);
    op_free(op);
}

/* The limits hold whatever the agent says: a sandbox is not to keep its tenant from them. */
static void on_agent_answer(struct core *c, const char *id, const struct err *why, int http_status,
                            const char *body, size_t len, void *arg)
{
    if ((why || http_status / 100 != 2) && !c->stopping)
        log_warn("sandbox %s: its agent did not learn its limits: %s", id,
                 why ? why->text : "it refused them");
    finish(c, id, arg, NULL);
}

/* Others' resizes do not wait for an agent: its place of the share is given back first. */
static void inform_agent(struct sandbox_obj *o, struct resize_op *op)
{
    json_t *body = json_pack("{s:o, s:b}", "limits", create_limits(&o->s.limits), "startCommand",
                             false);
    const struct call_agent_request r = {.method = "POST",
                                         .target = "/init",
                                         .body = json_text(body, JSON_COMPACT),
                                         .max_response_bytes = AGENT_ANSWER_MAX,
                                         .timeout_ms = o->core->config.agent_timeout_ms};

    json_decref(body);
    share_return(op->share);
    op->share = NULL;
    if (r.body) {
        call_agent(o, &r, on_agent_answer, op);
        return;
    }
    log_warn("sandbox %s: its agent did not learn its limits: memory is out", o->s.id);
    finish(o->core, o->s.id, op, NULL);
}

static void on_answer(struct core *c, const char *id, int status, const struct privsep_msg *m,
                      int *fds, size_t n_fds, void *arg)
{
    struct resize_op *op = arg;
    struct sandbox_obj *o = sandbox_get(c, NULL, id);
    bool there = o && !c->stopping;
    struct err why;

    if (there)
        answered(o, op, status, m, &why);
    if (there && status == 0 && sandbox_life(o)->reachable)
        inform_agent(o, op);
    else
        finish(c, id, op, there && status != 0 ? &why : NULL);
}

/* -- the call ---------------------------------------------------------------------------------- */

static struct privsep_limits greater(const struct privsep_limits *a, const struct privsep_limits *b)
{
    struct privsep_limits l = *a;

    l.memory_bytes = MAX(a->memory_bytes, b->memory_bytes);
    l.disk_bytes = MAX(a->disk_bytes, b->disk_bytes);
    l.cpu_milli = MAX(a->cpu_milli, b->cpu_milli);
    return l;
}

/* The row has op->to. Takes op over where it succeeds. */
static int64_t send_resize(struct sandbox_obj *o, struct resize_op *op)
{
    struct privsep_msg m = {.op = PRIVSEP_RESIZE, .slot = o->s.slot, .gen = o->s.gen};
    struct privsep_limits both = greater(&op->from, &op->to);
    int64_t rc;

    m.u.resize.memory_bytes = op->to.memory_bytes;
    m.u.resize.disk_bytes = op->to.disk_bytes;
    m.u.resize.cpu_milli = op->to.cpu_milli;
    rc = call_privd(o->core, o->s.id, &m, on_answer, op);
    if (rc < 0)
        return rc;
    o->resize_requested = true;
    set(o, &both);
    return rc;
}

/* op is the caller's, with a place of its tenant's share, until it is freed by op_free. */
static enum err_code op_new(struct sandbox_obj *o, struct resize_op **out, struct err *e)
{
    struct resize_op *op = calloc(1, sizeof(*op));

    if (!op)
        return err_set(e, ERR_UNAVAILABLE, "memory is out");
    op->share = share_take(o->core->resizes, o->s.tenant, o->s.id);
    if (!op->share) {
        free(op);
        if (share_may_take(o->core->resizes, o->s.tenant, o->s.id))
            return err_set(e, ERR_UNAVAILABLE, "memory is out");
        return err_set(e, ERR_EXHAUSTED,
                       "the limits of %zu sandboxes are being changed, %zu of them this tenant's, "
                       "of %u at a time on this server: that is its share; try again",
                       share_used(o->core->resizes),
                       share_held(o->core->resizes, o->s.tenant, NULL), PRIVSEP_RESIZES_MAX);
    }
    *out = op;
    return ERR_OK;
}

static enum err_code begin(struct sandbox_obj *o, const struct privsep_limits *to,
                           core_sandbox_cb done, void *arg, struct err *e)
{
    struct resize_op *op = NULL;
    enum err_code code = op_new(o, &op, e);
    struct err ignored;
    int64_t rc;

    if (code != ERR_OK)
        return code;
    code = write_row(o, to, e);
    if (code != ERR_OK) {
        op_free(op);
        return code;
    }
    *op = (struct resize_op){o->s.limits, *to, done, arg, op->share};
    rc = send_resize(o, op);
    if (rc >= 0)
        return ERR_OK;
    op_free(op);
    if (write_row(o, &o->s.limits, &ignored) != ERR_OK)
        log_error("sandbox %s: %s", o->s.id, ignored.text);
    return call_privd_err(e, rc, "changing its limits");
}

/* Nothing of it runs: what it is made with next is the row's. */
static enum err_code at_rest(struct sandbox_obj *o, const struct privsep_limits *to, struct err *e)
{
    enum err_code code = write_row(o, to, e);

    if (code != ERR_OK)
        return code;
    set(o, to);
    done_with(o);
    return ERR_OK;
}

static enum err_code resize(struct sandbox_obj *o, const struct privsep_limits *want,
                            core_sandbox_cb done, void *arg, bool *is_done, struct err *e)
{
    struct privsep_limits to = o->s.limits;
    enum err_code code;

    to.memory_bytes = want->memory_bytes ? want->memory_bytes : to.memory_bytes;
    to.disk_bytes = want->disk_bytes ? want->disk_bytes : to.disk_bytes;
    to.cpu_milli = want->cpu_milli ? want->cpu_milli : to.cpu_milli;
    code = check(o, &to, e);
    if (code != ERR_OK)
        return code;
    *is_done = core_sandbox_is_stopped(&o->s) || is_same(&to, &o->s.limits);
    if (is_same(&to, &o->s.limits))
        return ERR_OK;
    return *is_done ? at_rest(o, &to, e) : begin(o, &to, done, arg, e);
}

void core_sandbox_resize(struct core *c, const char *tenant, const char *id,
                         const struct privsep_limits *want, core_sandbox_cb done, void *arg)
{
    struct sandbox_obj *o = NULL;
    bool is_done = false;
    struct err e;

    if (sandbox_visible(c, tenant, id, &o, &e) != ERR_OK ||
        resize(o, want, done, arg, &is_done, &e) != ERR_OK)
        core_defer_error(c, done, arg, &e);
    else if (is_done)
        done(arg, &o->s, NULL);
}

/* A cayd or a privd ended before both had the same. */
void resize_on_listed(struct sandbox_obj *o, uint64_t memory_bytes, uint64_t disk_bytes,
                      uint32_t cpu_milli)
{
    struct privsep_limits has = o->s.limits;
    struct resize_op *op;

    has.memory_bytes = memory_bytes;
    has.disk_bytes = disk_bytes;
    has.cpu_milli = cpu_milli;
    if (memory_bytes == 0 || o->resize_requested || !is_live(o) || is_same(&has, &o->s.limits))
        return;
    op = calloc(1, sizeof(*op));
    if (!op)
        return; /* the next LIST tells again */
    *op = (struct resize_op){has, o->s.limits, NULL, NULL, NULL};
    if (send_resize(o, op) < 0)
        free(op);
}
