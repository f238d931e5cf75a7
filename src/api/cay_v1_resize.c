/* POST /cay/v1/sandboxes/{id}/resize: docs/resize.md. */
#include "api/cay_v1.h"
#include "core/limit.h"
#include "core/resize.h"
#include "http/json.h"

#include <string.h>

static void resized(void *arg, const struct sandbox *s, const struct err *why)
{
    struct api_call *call = arg;

    if (s)
        api_reply_json(call, 200, cay_v1_sandbox_json(call->core, s));
    else
        api_fail_err(call, why);
}

/* 0: it is not given. Core alone knows the most that a sandbox of its template may have. */
static enum err_code read_one(const struct api_call *call, enum core_limit limit, int64_t *out,
                              struct err *e)
{
    int64_t n = INT64_MIN;
    enum err_code code = json_get_int(call->body, core_limit_name(limit), NULL, JSON_OPTIONAL,
                                      INT64_MIN + 1, INT64_MAX, &n, e);

    if (code != ERR_OK || n == INT64_MIN)
        return code;
    *out = n;
    return core_limit_check(limit, n, false, e);
}

void cay_v1_resize(struct api_call *call)
{
    int64_t memory = 0, disk = 0, cpu = 0;
    struct privsep_limits to;
    struct err e;

    if (!api_call_body_of(call, "memoryBytes diskBytes cpuMilli"))
        return;
    if (read_one(call, CORE_LIMIT_MEMORY, &memory, &e) != ERR_OK ||
        read_one(call, CORE_LIMIT_DISK, &disk, &e) != ERR_OK ||
        read_one(call, CORE_LIMIT_CPU, &cpu, &e) != ERR_OK) {
        api_fail_err(call, &e);
        return;
    }
    if (memory == 0 && disk == 0 && cpu == 0 &&
        core_sandbox_find(call->core, call->who.tenant, call->params[0])) {
        api_fail(call, 400, "give at least one of memoryBytes, diskBytes and cpuMilli");
        return;
    }
    to = (struct privsep_limits){
        .memory_bytes = (uint64_t)memory, .disk_bytes = (uint64_t)disk, .cpu_milli = (uint32_t)cpu};
    core_sandbox_resize(call->core, call->who.tenant, call->params[0], &to, resized, call);
}
