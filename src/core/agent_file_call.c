#include "core/agent_file_call.h"

#include "core/call.h"
#include "core/exec.h"

#include "base/share.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/reserve.h"
#include "core/sandbox.h"

struct file_call {
    struct share *share; /* its place among what runs for such calls; NULL: none was given */
    struct err why;
    core_agent_cb done;
    void *arg;
    struct deferred later;
};

static void answer(struct file_call *a, const struct err *why, int status, const char *body,
                   size_t len)
{
    share_return(a->share);
    a->done(a->arg, why, status, body, len);
    free(a);
}

static void on_answer(struct core *c, const char *id, const struct err *why, int status,
                      const char *body, size_t len, void *arg)
{
    answer(arg, why, status, body, len);
}

static void answer_refusal(void *arg)
{
    struct file_call *a = arg;

    answer(a, &a->why, 0, NULL, 0);
}

/* No place in the share, or no memory for its account. */
static void refuse(const struct core *c, const char *tenant, const char *id, struct err *why)
{
    if (share_may_take(c->execs, tenant, id))
        err_set(why, ERR_EXHAUSTED, "memory is out");
    else
        err_set(why, ERR_EXHAUSTED,
                "%zu calls of this sandbox are under way, %zu of its tenant, of %u on this server: "
                "that is its share; wait for one to end",
                share_held(c->execs, tenant, id), share_held(c->execs, tenant, NULL),
                CORE_EXECS_MAX);
}

void core_agent_file_call(struct core *c, const char *tenant, const char *id,
                          const struct core_agent_file_call *r, core_agent_cb done, void *arg)
{
    struct call_agent_request request = {
        .method = r->method,
        .target = r->target,
        .copy_target = true,
        .body = r->body,
        .body_len = r->body_len,
        .type = r->type,
        .user = r->user,
        .own_rights = r->own_rights,
        .range = r->range,
        .max_response_bytes = MIN(r->max_response, CORE_AGENT_ANSWER_MAX),
        .timeout_ms = CORE_AGENT_CALL_MS};
    struct file_call *a = RESERVE_NEW(&c->reserve, struct file_call);
    struct sandbox_obj *o = NULL;

    a->done = done;
    a->arg = arg;
    if (core_check_ready(c, &a->why) == ERR_OK &&
        sandbox_reachable(c, tenant, id, &o, &a->why) == ERR_OK &&
        !(a->share = share_take(c->execs, tenant, id)))
        refuse(c, tenant, id, &a->why);
    if (a->why.code != ERR_OK) {
        free(r->body);
        core_defer(c, &a->later, answer_refusal, a);
        return;
    }
    core_sandbox_used(c, id);
    call_agent(o, &request, on_answer, a);
}
