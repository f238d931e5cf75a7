/* Volumes as E2B's SDKs ask for them. Their contents without a sandbox (/volumecontent) are the
 * gateway's, which relays them to what serves the volume (core/volume_content.h). */
#include "api/e2b.h"
#include "api/volume_call.h"
#include "core/volume.h"
#include "http/json.h"

#include <string.h>

static json_t *volume_json(const struct volume *v)
{
    return json_pack("{s:s, s:s}", "volumeID", v->id, "name", v->name);
}

/* The token is the id's, under the server's key: what opens the contents (core_volume_is_token). */
static json_t *with_token(struct api_call *call, const struct volume *v)
{
    json_t *out = volume_json(v);
    char token[CORE_TOKEN_SIZE + 1] = "";

    if (api_role_may(call->who.role, API_WRITE))
        core_sandbox_token(call->core, v->id, token);
    json_object_set_new(out, "token", json_string(token));
    return out;
}

static void no_volume(struct api_call *call)
{
    api_fail(call, 404, "Volume \"%s\" doesn't exist or you don't have access to it",
             call->params[0]);
}

static void made(void *arg, const struct volume *v, const struct err *why)
{
    struct api_call *call = arg;

    if (v)
        api_reply_json(call, 201, with_token(call, v));
    else
        api_fail_err(call, why);
}

static void create(struct api_call *call)
{
    volume_call_create(call, made);
}

static void list(struct api_call *call)
{
    volume_call_list(call, volume_json);
}

static void get(struct api_call *call)
{
    const struct volume *v = core_volume_find(call->core, call->who.tenant, call->params[0]);

    if (v)
        api_reply_json(call, 200, with_token(call, v));
    else
        no_volume(call);
}

static void removed(void *arg, const struct err *why)
{
    volume_call_removed(arg, why, 204, no_volume);
}

static void destroy(struct api_call *call)
{
    volume_call_remove(call, removed);
}

const struct api_route e2b_volume_routes[] = {
    {API_WRITE, "POST", "/volumes", create},
    {API_READ, "GET", "/volumes", list},
    {API_READ, "GET", "/volumes/{id}", get},
    {API_WRITE, "DELETE", "/volumes/{id}", destroy},
    {0},
};
