/* GET /api/object-storage/push-access: where clients send the local files of an image to
 * (cayd/storage.h), and with what. They sign with the two keys, which says nothing here: the
 * session token alone decides. */
#include "api/daytona.h"

#include "core/build_storage.h"

#define UNUSED_KEY "the-session-token-decides"

void daytona_push_access(struct api_call *call)
{
    char token[CORE_STORAGE_TOKEN_SIZE];
    json_t *url = json_sprintf("%s://%s" DAYTONA_STORAGE_PATH,
                               api_config_of(call->api)->https ? "https" : "http",
                               call->request->host);

    core_storage_token(call->core, &call->who, call->request->key, token);
    api_reply_json(call, 200,
                   json_pack("{s:s, s:s, s:s, s:o, s:s, s:s, s:s}", "accessKey", "cay", "secret",
                             UNUSED_KEY, "sessionToken", token, "storageUrl", url, "organizationId",
                             call->who.tenant, "bucket", DAYTONA_STORAGE_BUCKET, "region",
                             "us-east-1"));
}
