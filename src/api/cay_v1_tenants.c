/* Tenants, and what each may do on the network at most. See cay_v1.h. */
#include "api/cay_v1.h"

#include "core/ceiling.h"
#include "core/key.h"

#include <string.h>

static enum err_code list_tenant(void *arg, const struct core_tenant *t, struct err *e)
{
    json_array_append_new(arg, json_pack("{s:s, s:o, s:i, s:O?}", "name", t->name, "madeAt",
                                         api_json_time(t->made_real_ms), "keys", (int)t->keys,
                                         "ceiling", t->ceiling));
    return ERR_OK;
}

void cay_v1_tenant_list(struct api_call *call)
{
    json_t *out = json_array();
    struct err e;

    if (core_tenant_each(call->core, list_tenant, out, &e) == ERR_OK) {
        api_reply_json(call, 200, out);
    } else {
        json_decref(out);
        api_fail_err(call, &e);
    }
}

void cay_v1_no_tenant(struct api_call *call, const char *name)
{
    api_fail(call, 404, "there is no tenant \"%s\"", name);
}

void cay_v1_ceiling_get(struct api_call *call)
{
    json_t *ceiling = NULL;
    struct err e;

    if (strcmp(call->params[0], call->who.tenant) != 0 && call->who.role != CORE_ROLE_OPERATOR)
        cay_v1_no_tenant(call, call->params[0]);
    else if (core_tenant_ceiling(call->core, call->params[0], &ceiling, &e) != ERR_OK)
        api_fail_err(call, &e);
    else if (!ceiling)
        api_fail(call, 404, "tenant %s has no ceiling of its own, only the server's",
                 call->params[0]);
    else
        api_reply_json(call, 200, ceiling);
}

static void ceiling_set(void *arg, const struct err *why)
{
    struct api_call *call = arg;

    if (why)
        api_fail_err(call, why);
    else
        api_reply_empty(call, 204);
}

void cay_v1_ceiling_put(struct api_call *call)
{
    if (call->request->body_len == 0)
        api_fail(call, 400, "the body must be a policy: {} lets nothing out");
    else if (api_call_body(call))
        core_tenant_set_ceiling(call->core, call->params[0], call->body, ceiling_set, call);
}

void cay_v1_ceiling_remove(struct api_call *call)
{
    core_tenant_set_ceiling(call->core, call->params[0], NULL, ceiling_set, call);
}
