/* Credentials of a tenant: set, listed, removed, never shown. See cay_v1.h. */
#include "api/cay_v1.h"

#include "core/credential.h"
#include "http/json.h"

static void secret_set(void *arg, const struct sandbox *s, const struct err *why)
{
    struct api_call *call = arg;

    if (why)
        api_fail_err(call, why);
    else
        api_reply_json(call, 201,
                       json_make("{s:O, s:O, s:O*}", "name", json_object_get(call->body, "name"),
                                 "bind", json_object_get(call->body, "bind"), "replaced",
                                 (json_t *)call->state));
}

static void binding_free(void *state)
{
    json_decref(state);
}

/* The binding of the secret of that name so far: answered beside the new one. */
static enum err_code keep_binding(void *arg, const struct core_credential *k, struct err *e)
{
    struct api_call *call = arg;

    call->state = json_incref(k->bind);
    call->state_free = binding_free;
    return ERR_OK;
}

void cay_v1_secret_set(struct api_call *call)
{
    const char *name = NULL;
    json_t *bind = NULL, *value;
    struct err e;

    if (!api_call_body_of(call, "name value bind"))
        return;
    value = json_object_get(call->body, "value");
    if (json_get_str(call->body, "name", NULL, JSON_REQUIRED, CORE_CREDENTIAL_NAME_MAX, &name,
                     &e) ||
        json_get_obj(call->body, "bind", NULL, JSON_REQUIRED, &bind, &e))
        api_fail_err(call, &e);
    else if (!value || json_is_null(value))
        api_fail(call, 400, "\"value\" is missing");
    else if (core_credential_each(call->core, call->who.tenant, name, keep_binding, call, &e) !=
             ERR_OK)
        api_fail_err(call, &e);
    else
        core_credential_set(
            call->core, call->who.tenant,
            &(struct core_credential_value){.name = name, .bind = bind, .value = value}, secret_set,
            call);
}

static enum err_code list_secret(void *arg, const struct core_credential *k, struct err *e)
{
    json_array_append_new(arg, json_pack("{s:s, s:O, s:o}", "name", k->name, "bind", k->bind,
                                         "madeAt", api_json_time(k->made_real_ms)));
    return ERR_OK;
}

void cay_v1_secret_list(struct api_call *call)
{
    json_t *all = json_array();
    struct err e;

    if (core_credential_each(call->core, call->who.tenant, NULL, list_secret, all, &e) == ERR_OK) {
        api_reply_json(call, 200, all);
    } else {
        json_decref(all);
        api_fail_err(call, &e);
    }
}

void cay_v1_secret_remove(struct api_call *call)
{
    struct err e;

    if (core_credential_remove(call->core, call->who.tenant, call->params[0], &e) == ERR_OK)
        api_reply_empty(call, 204);
    else
        api_fail_err(call, &e);
}
