/* POST /cay/v1/sandboxes/{id}/resize: docs/resize.md. */
#include "api/cay_v1.h"
#include "core/resize.h"
#include "http/json.h"

#include <string.h>

static void resized(void *arg, const struct sandbox *s, const struct err *why)
{
    struct api_call *call = arg;

    if (s)
        api_reply_json(call, 200, cay_v1_sandbox_json(s));
    else
        api_fail_err(call, why);
}

void cay_v1_resize(struct api_call *call)
{
    int64_t memory = 0, disk = 0, cpu = 0;
    struct privsep_limits to;
    struct err e;

    if (!api_call_body_of(call, "memoryBytes diskBytes cpuMilli"))
        return;
    if (json_get_int(call->body, "memoryBytes", NULL, JSON_OPTIONAL, 1, INT64_MAX, &memory, &e) !=
            ERR_OK ||
        json_get_int(call->body, "diskBytes", NULL, JSON_OPTIONAL, 1, INT64_MAX, &disk, &e) !=
            ERR_OK ||
        json_get_int(call->body, "cpuMilli", NULL, JSON_OPTIONAL, 1, UINT32_MAX, &cpu, &e) !=
            ERR_OK) {
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
