/* Volumes with their sizes and who has them. See cay_v1.h. */
#include "api/cay_v1.h"

#include "core/volume.h"
#include "http/json.h"

static json_t *volume_json(struct api_call *call, const struct volume *v)
{
    return json_pack("{s:s, s:s, s:I, s:o, s:o}", "volumeID", v->id, "name", v->name, "sizeBytes",
                     (json_int_t)v->bytes, "madeAt", api_json_time(v->made_real_ms), "sandboxes",
                     core_volume_users(call->core, v));
}

static void made(void *arg, const struct volume *v, const struct err *why)
{
    struct api_call *call = arg;

    if (v)
        api_reply_json(call, 201, volume_json(call, v));
    else
        api_fail_err(call, why);
}

void cay_v1_volume_create(struct api_call *call)
{
    const char *name = NULL;
    int64_t bytes = 0;
    struct err e;

    if (!api_call_body_of(call, "name sizeBytes"))
        return;
    if (json_get_str(call->body, "name", NULL, JSON_REQUIRED, CORE_VOLUME_NAME_SIZE - 1, &name,
                     &e) ||
        json_get_int(call->body, "sizeBytes", NULL, JSON_OPTIONAL, CORE_VOLUME_BYTES_MIN,
                     CORE_VOLUME_BYTES_MAX, &bytes, &e))
        api_fail_err(call, &e);
    else
        core_volume_create(call->core, call->who.tenant, name, (uint64_t)bytes, made, call);
}

struct listing {
    struct api_call *call;
    json_t *all;
};

static bool add(void *arg, const struct volume *v)
{
    struct listing *l = arg;

    json_array_append_new(l->all, volume_json(l->call, v));
    return true;
}

void cay_v1_volume_list(struct api_call *call)
{
    struct listing l = {call, json_array()};

    core_volume_each(call->core, call->who.tenant, add, &l);
    api_reply_json(call, 200, l.all);
}

static void removed(void *arg, const struct err *why)
{
    struct api_call *call = arg;

    if (why)
        api_fail_err(call, why);
    else
        api_reply_empty(call, 204);
}

void cay_v1_volume_remove(struct api_call *call)
{
    core_volume_remove(call->core, call->who.tenant, call->params[0], removed, call);
}
