/* POST /cay/v1/sandboxes/{id}/rollback: docs/snapshots.md. */
#include "api/cay_v1.h"
#include "api/e2b.h"
#include "core/reboot.h"
#include "core/snapshot.h"
#include "http/json.h"

static void rolled_back(void *arg, const struct sandbox *s, const struct err *why)
{
    struct api_call *call = arg;

    if (s)
        api_reply_json(call, 200, e2b_sandbox_json(call, s));
    else
        api_fail_err(call, why);
}

void cay_v1_rollback(struct api_call *call)
{
    const char *snapshot = NULL;
    struct err e;

    if (!api_call_body_of(call, "snapshotID"))
        return;
    if (json_get_str(call->body, "snapshotID", NULL, JSON_REQUIRED, CORE_SNAPSHOT_NAME_SIZE,
                     &snapshot, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        core_sandbox_rollback(call->core, call->who.tenant, call->params[0], snapshot, rolled_back,
                              call);
}
