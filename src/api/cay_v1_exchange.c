/* GET /cay/v1/snapshots/{id}/export and POST /cay/v1/snapshots/import: docs/snapshots.md. The body
 * of an import passes by: the first call, before it, gives the connection loop a file to write it
 * to, and the second one comes when it is all there (cayd/snapshot_import.c). */
#include "api/cay_v1.h"
#include "api/e2b.h"
#include "core/transfer.h"

#include <stdio.h>

#define TYPE "application/vnd.cay.snapshot"

static void exported(void *arg, int fd, uint64_t bytes, const struct err *why)
{
    struct api_call *call = arg;

    if (why)
        api_fail_err(call, why);
    else
        api_reply_file(call, TYPE, fd, bytes);
}

void cay_v1_snapshot_export(struct api_call *call)
{
    core_snapshot_export(call->core, call->who.tenant, call->params[0], exported, call);
}

static void imported(void *arg, const struct snapshot *s, const struct err *why)
{
    struct api_call *call = arg;

    if (s)
        api_reply_json(call, 201, e2b_snapshot_json(s));
    else
        api_fail_err(call, why);
}

static void begin(struct api_call *call)
{
    struct core_build_upload file = {.fd = -1};
    char name[CORE_SNAPSHOT_NAME_SIZE + 1];
    struct err e;

    if (!api_call_query(call, "name", name, sizeof(name)))
        return;
    if (core_snapshot_import_begin(call->core, call->who.tenant, name, &file, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_upload(call, file.fd, file.number, file.most_bytes);
}

void cay_v1_snapshot_import(struct api_call *call)
{
    switch (call->request->upload) {
    case API_UPLOAD_BEGINS: begin(call); return;
    case API_UPLOAD_ENDS:
        core_snapshot_import_end(call->core, call->who.tenant, call->request->upload_number,
                                 imported, call);
        return;
    case API_UPLOAD_NONE: break;
    }
    api_fail(call, 404, "the path of an import is /cay/v1/snapshots/import, as it stands here");
}
