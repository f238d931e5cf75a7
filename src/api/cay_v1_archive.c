/* POST /cay/v1/sandboxes/{id}/archive: docs/archive.md. */
#include "api/cay_v1.h"
#include "core/archive_file.h"

static void archived(void *arg, const struct sandbox *s, const struct err *why)
{
    struct api_call *call = arg;

    if (s)
        api_reply_json(call, 200, cay_v1_sandbox_json(call->core, s));
    else
        api_fail_err(call, why);
}

void cay_v1_archive(struct api_call *call)
{
    core_sandbox_archive_files(call->core, call->who.tenant, call->params[0], archived, call);
}
