/* Does the agent of a sandbox answer? Asked before a pause that is refused otherwise. */
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/deferred.h"
#include "core/reserve.h"
#include "core/sandbox.h"

#define HEALTH_TIMEOUT_MS 5000u
#define HEALTH_BYTES_MAX  4096u

struct health_wait {
    core_done_cb done;
    void *arg;
    struct err why;
    struct deferred later;
};

static void answer_health(void *arg)
{
    CLEANUP_FREE struct health_wait *w = arg;

    w->done(w->arg, w->why.code == ERR_OK ? NULL : &w->why);
}

static void on_health(struct core *c, const char *id, const struct err *why, int http_status,
                      const char *body, size_t len, void *arg)
{
    struct health_wait *w = arg;

    if (why || http_status / 100 != 2)
        err_set(&w->why, ERR_UNAVAILABLE, "the agent of sandbox %s does not answer", id);
    answer_health(w);
}

void core_sandbox_agent_answers(struct core *c, const char *tenant, const char *id,
                                core_done_cb done, void *arg)
{
    const struct call_agent_request r = {.method = "GET",
                                         .target = "/health",
                                         .max_response_bytes = HEALTH_BYTES_MAX,
                                         .timeout_ms = HEALTH_TIMEOUT_MS};
    struct health_wait *w = RESERVE_NEW(&c->reserve, struct health_wait);
    struct sandbox_obj *o = NULL;

    w->done = done;
    w->arg = arg;
    if (sandbox_reachable(c, tenant, id, &o, &w->why) == ERR_OK)
        call_agent(o, &r, on_health, w);
    else
        core_defer(c, &w->later, answer_health, w);
}
