/* API keys of tenants: made, listed, revoked. See cay_v1.h. */
#include "api/cay_v1.h"

#include "http/json.h"

#include <string.h>

static bool is_operator(const struct api_call *call)
{
    return strcmp(call->tenant, CAY_V1_OPERATOR) == 0;
}

void cay_v1_key_create(struct api_call *call)
{
    const char *tenant = call->tenant, *label = "";
    char key[CORE_TOKEN_SIZE], id[CORE_KEY_ID_SIZE];
    struct err e;

    if (!api_call_body(call))
        return;
    if (json_get_str(call->body, "tenant", NULL, JSON_OPTIONAL, CORE_TENANT_SIZE, &tenant, &e) ||
        json_get_str(call->body, "label", NULL, JSON_OPTIONAL, CORE_KEY_LABEL_MAX, &label, &e)) {
        api_fail_err(call, &e);
    } else if (strcmp(tenant, call->tenant) != 0 && !is_operator(call)) {
        api_fail(call, 403, "only the operator may make keys for other tenants");
    } else if (core_key_create(call->core, tenant, label, key, &e) != ERR_OK) {
        api_fail_err(call, &e);
    } else {
        core_key_id(key, id);
        api_reply_json(call, 201,
                       json_pack("{s:s, s:s, s:s, s:s}", "id", id, "tenant", tenant, "label", label,
                                 "key", key));
    }
    explicit_bzero(key, sizeof(key));
}

struct listing {
    json_t *keys;
    char current[CORE_KEY_ID_SIZE];
};

static enum err_code list_key(void *arg, const struct core_key *k, struct err *e)
{
    struct listing *l = arg;

    json_array_append_new(l->keys,
                          json_pack("{s:s, s:s, s:s, s:o, s:b}", "id", k->id, "tenant", k->tenant,
                                    "label", k->label, "madeAt", api_json_time(k->made_real_ms),
                                    "current", strcmp(k->id, l->current) == 0));
    return ERR_OK;
}

void cay_v1_key_list(struct api_call *call)
{
    struct listing l = {.keys = NULL};
    char tenant[CORE_TENANT_SIZE];
    const char *whose = tenant;
    struct err e;

    if (!api_call_query(call, "tenant", tenant, sizeof(tenant)))
        return;
    if (!*tenant)
        whose = is_operator(call) ? NULL : call->tenant;
    if (whose && strcmp(whose, call->tenant) != 0 && !is_operator(call)) {
        api_fail(call, 403, "only the operator may see the keys of other tenants");
        return;
    }
    l.keys = json_array();
    core_key_id(call->request->key, l.current);
    if (core_key_each(call->core, whose, list_key, &l, &e) == ERR_OK) {
        api_reply_json(call, 200, l.keys);
    } else {
        json_decref(l.keys);
        api_fail_err(call, &e);
    }
}

void cay_v1_key_revoke(struct api_call *call)
{
    char current[CORE_KEY_ID_SIZE];
    struct err e;

    core_key_id(call->request->key, current);
    if (strcmp(call->params[0], current) == 0)
        api_fail(call, 409,
                 "that is the key of this very call; make another one and revoke it with that");
    else if (core_key_revoke(call->core, is_operator(call) ? NULL : call->tenant, call->params[0],
                             &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_empty(call, 204);
}
