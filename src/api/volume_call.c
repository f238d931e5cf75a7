#include "api/volume_call.h"

#include "http/json.h"

void volume_call_create(struct api_call *call, core_volume_cb made)
{
    const char *name = NULL;
    struct err e;

    if (!api_call_body(call))
        return;
    if (json_get_str(call->body, "name", NULL, JSON_REQUIRED, CORE_VOLUME_NAME_SIZE, &name, &e) !=
        ERR_OK)
        api_fail_err(call, &e);
    else
        core_volume_create(call->core, call->who.tenant, name, 0, made, call);
}

struct listing {
    json_t *all;
    json_t *(*json)(const struct volume *v);
};

static bool add(void *arg, const struct volume *v)
{
    struct listing *l = arg;

    json_array_append_new(l->all, l->json(v));
    return true;
}

void volume_call_list(struct api_call *call, json_t *(*json)(const struct volume *v))
{
    struct listing l = {json_array(), json};

    core_volume_each(call->core, call->who.tenant, add, &l);
    api_reply_json(call, 200, l.all);
}

void volume_call_remove(struct api_call *call, core_done_cb removed)
{
    core_volume_remove(call->core, call->who.tenant, call->params[0], removed, call);
}

void volume_call_removed(struct api_call *call, const struct err *why, unsigned status,
                         void (*missing)(struct api_call *call))
{
    if (!why)
        api_reply_empty(call, status);
    else if (why->code == ERR_NOT_FOUND)
        missing(call);
    else
        api_fail_err(call, why);
}
