/* POST /cay/v1/snapshots/{id}/memory: docs/templates.md. */
#include "api/cay_v1.h"
#include "core/template_memory.h"
#include "http/json.h"

#define READY_MAX 4096u

static void made(void *arg, const struct err *why)
{
    struct api_call *call = arg;

    if (why)
        api_fail_err(call, why);
    else
        api_reply_json(call, 200,
                       json_pack("{s:s, s:b}", "snapshot", call->params[0], "memory", 1));
}

void cay_v1_snapshot_memory(struct api_call *call)
{
    const char *ready = NULL;
    struct err e;

    if (!api_call_body_of(call, "ready"))
        return;
    if (json_get_str(call->body, "ready", NULL, JSON_OPTIONAL, READY_MAX, &ready, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        core_snapshot_add_memory(call->core, call->who.tenant, call->params[0],
                                 ready && *ready ? ready : NULL, made, call);
}
