/* Webhooks of a tenant: made, listed, removed; their deliveries listed and sent again. See
 * cay_v1.h. */
#include "api/cay_v1.h"

#include "core/webhook.h"
#include "http/json.h"

#include <inttypes.h>
#include <string.h>

static json_t *types_json(unsigned types)
{
    json_t *list = json_array();

    for (int i = 0; i < EVENT_TYPE_COUNT; i++)
        if (types & 1u << i)
            json_array_append_new(list, json_string(event_type_name((enum event_type)i)));
    return list;
}

static json_t *webhook_json(const struct core_webhook *w)
{
    return json_pack("{s:s, s:s, s:o, s:o, s:I, s:I, s:I, s:I, s:o, s:o}", "id", w->id, "url",
                     w->url, "types", types_json(w->types), "madeAt",
                     api_json_time(w->made_real_ms), "waiting", (json_int_t)w->waiting, "dead",
                     (json_int_t)w->dead, "delivered", (json_int_t)w->delivered, "dropped",
                     (json_int_t)w->dropped, "lastStatus",
                     w->last_status ? json_integer(w->last_status) : json_null(), "lastError",
                     w->last_why[0] ? api_json_text(w->last_why) : json_null());
}

/* -- made -------------------------------------------------------------------------------------- */

static void on_made(void *arg, const struct core_webhook *w, const char *secret,
                    const struct err *why)
{
    struct api_call *call = arg;
    json_t *o;

    if (why) {
        api_fail_err(call, why);
        return;
    }
    o = webhook_json(w);
    if (o)
        json_object_set_new(o, "secret", json_string(secret));
    api_reply_json(call, 201, o);
}

/* Absent: those that concern the state of sandboxes and snapshots. */
static enum err_code read_types(const json_t *body, unsigned *types, struct err *e)
{
    const json_t *list = json_object_get(body, "types"), *item;
    size_t i;

    *types = list ? 0 : core_webhook_default_types();
    if (list && (!json_is_array(list) || json_array_size(list) == 0))
        return err_set(e, ERR_INVALID, "\"types\" must be a list of types of events");
    json_array_foreach (list, i, item) {
        const char *name = json_string_value(item);
        int type = name ? event_type_from(name, strlen(name)) : -1;

        if (type < 0 || !core_webhook_sends((enum event_type)type)) {
            err_set(e, ERR_INVALID, "\"types\": there is no \"%.32s\" to be sent",
                    name ? name : "that is not a text");
            err_hint(e, "docs/events.md has the types");
            return e->code;
        }
        *types |= 1u << type;
    }
    return ERR_OK;
}

void cay_v1_webhook_create(struct api_call *call)
{
    const char *url = NULL;
    unsigned types;
    struct err e;

    if (!api_call_body_of(call, "url types"))
        return;
    if (json_get_str(call->body, "url", NULL, JSON_REQUIRED, CORE_WEBHOOK_URL_SIZE - 1, &url, &e) ||
        read_types(call->body, &types, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        core_webhook_add(call->core, call->who.tenant, url, types, on_made, call);
}

/* -- listed ------------------------------------------------------------------------------------ */

static void list_webhook(void *arg, const struct core_webhook *w)
{
    json_array_append_new(arg, webhook_json(w));
}

void cay_v1_webhook_list(struct api_call *call)
{
    json_t *all = json_array();

    core_webhook_each(call->core, call->who.tenant, list_webhook, all);
    api_reply_json(call, 200, all);
}

static void list_delivery(void *arg, const struct core_delivery *d)
{
    json_array_append_new(
        arg, json_pack("{s:I, s:s, s:s, s:i, s:o, s:o, s:o, s:o}", "id", (json_int_t)d->id, "type",
                       d->type, "state", d->dead ? "dead" : "waiting", "attempts", (int)d->attempts,
                       "madeAt", api_json_time(d->made_real_ms), "dueAt",
                       d->dead ? json_null() : api_json_time(d->due_real_ms), "lastError",
                       d->why[0] ? api_json_text(d->why) : json_null(), "body",
                       json_loads(d->body, 0, NULL)));
}

void cay_v1_webhook_deliveries(struct api_call *call)
{
    json_t *all = json_array();
    struct err e;

    if (core_webhook_deliveries(call->core, call->who.tenant, call->params[0], list_delivery, all,
                                &e) == ERR_OK) {
        api_reply_json(call, 200, all);
    } else {
        json_decref(all);
        api_fail_err(call, &e);
    }
}

/* -- changed ----------------------------------------------------------------------------------- */

void cay_v1_webhook_remove(struct api_call *call)
{
    struct err e;

    if (core_webhook_remove(call->core, call->who.tenant, call->params[0], &e) == ERR_OK)
        api_reply_empty(call, 204);
    else
        api_fail_err(call, &e);
}

void cay_v1_webhook_retry(struct api_call *call)
{
    uint64_t count;
    struct err e;

    if (core_webhook_retry(call->core, call->who.tenant, call->params[0], &count, &e) == ERR_OK)
        api_reply_json(call, 202, json_pack("{s:I}", "deliveries", (json_int_t)count));
    else
        api_fail_err(call, &e);
}

void cay_v1_webhook_ping(struct api_call *call)
{
    struct err e;

    if (core_webhook_ping(call->core, call->who.tenant, call->params[0], &e) == ERR_OK)
        api_reply_empty(call, 202);
    else
        api_fail_err(call, &e);
}
