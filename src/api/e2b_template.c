/* Templates as E2B's SDKs and command line ask for them: those of the server, for all tenants, and
 * the tenant's own, which it has built (e2b_build.c). */
#include "api/e2b.h"
#include "api/e2b_build.h"
#include "core/snapshot.h"
#include "http/json.h"

#include <string.h>

#define MIB (1024u * 1024u)

#define TEXT_BUILD                                                                            \
    "building templates from a Dockerfile's image (SDKs from 2.0 on build by steps; or `cay " \
    "template build`)"
#define TEXT_TEAMS "teams (keys belong to tenants; see /cay/v1/keys)"
#define TEXT_KEYS  "managing keys by E2B's API (`cay key`, or /cay/v1/keys, does it)"

static const char *build_status(const struct template_info *t)
{
    return t->building ? "building" : t->ready ? "ready" : "waiting";
}

static json_t *template_json(struct api_call *call, const struct template_info *t)
{
    const struct privsep_limits own = core_template_limits(call->core, t), *l = &own;
    json_t *out = json_object();

    json_object_set_new(out, "templateID", json_string(t->id));
    json_object_set_new(out, "buildID", json_string(E2B_NO_BUILD));
    json_object_set_new(out, "cpuCount", json_integer(MAX(1, (l->cpu_milli + 999) / 1000)));
    json_object_set_new(out, "memoryMB", json_integer((json_int_t)(l->memory_bytes / MIB)));
    json_object_set_new(out, "diskSizeMB", json_integer((json_int_t)(l->disk_bytes / MIB)));
    json_object_set_new(out, "public", json_true());
    json_object_set_new(out, "aliases", json_pack("[s]", t->id));
    json_object_set_new(out, "names", json_pack("[s]", t->id));
    json_object_set_new(out, "createdAt", api_json_time(t->made_real_ms));
    json_object_set_new(out, "updatedAt", api_json_time(t->made_real_ms));
    json_object_set_new(out, "createdBy", json_null());
    json_object_set_new(out, "lastSpawnedAt", json_null());
    json_object_set_new(out, "spawnCount", json_integer(0));
    json_object_set_new(out, "buildCount", json_integer(t->ready ? 1 : 0));
    json_object_set_new(out, "envdVersion", json_string(API_ENVD_VERSION));
    json_object_set_new(out, "buildStatus", json_string(build_status(t)));
    return out;
}

static void list(struct api_call *call)
{
    const struct template_info *items = NULL;
    size_t n = core_templates(call->core, false, &items);
    json_t *out = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(out, template_json(call, &items[i]));
    e2b_build_list(call, out);
    api_reply_json(call, 200, out);
}

static const struct template_info *find(struct api_call *call)
{
    const struct template_info *t = core_template_find(call->core, call->params[0]);

    if (!t)
        api_fail(call, 404, "template '%s' not found", call->params[0]);
    return t;
}

/* A name is there when sandboxes can be made of it. */
static void alias(struct api_call *call)
{
    const char *name = call->params[0];
    const struct build *b = core_build_named(call->core, call->who.tenant, name);
    const struct snapshot *s = b ? NULL : core_snapshot_find(call->core, call->who.tenant, name);
    const struct template_info *t = b || s ? NULL : core_template_find(call->core, name);
    struct core_public_template public;
    const char *id = NULL;

    if (b || s)
        id = b ? b->template_id : s->name[0] ? s->name : s->id;
    else if (t)
        id = t->id;
    else if (core_template_public(call->core, name, &public))
        id = public.b ? public.b->template_id : public.name;
    if (id)
        api_reply_json(call, 200,
                       json_pack("{s:s, s:b}", "templateID", id, "public",
                                 !(b || s) || core_template_is_public(call->core, call->who.tenant,
                                                                      b ? b->name : s->name)));
    else
        api_fail(call, 404, "template '%s' not found", name);
}

static void get(struct api_call *call)
{
    const char *name = call->params[0];
    const struct build *b = e2b_build_of(call, name);
    const struct template_info *t = b ? NULL : core_template_find(call->core, name);
    struct core_public_template public;
    json_t *out = b ? e2b_build_template_json(call, b) : t ? template_json(call, t) : NULL;

    if (!out && core_template_public(call->core, name, &public))
        out = e2b_build_public_json(call, &public);
    if (!out) {
        api_fail(call, 404, "template '%s' not found", name);
        return;
    }
    if (b)
        e2b_build_add_all(call, b->template_id, out);
    else
        json_object_set_new(out, "builds", json_array());
    api_reply_json(call, 200, out);
}

static void snapshot_deleted(void *arg, const struct err *why)
{
    struct api_call *call = arg;

    if (why)
        api_fail_err(call, why);
    else
        api_reply_empty(call, 204);
}

/* Also E2B's deleteSnapshot: an unknown id is 404, which the SDK turns into false. */
static void delete_one(struct api_call *call)
{
    const struct template_info *t;
    struct err e;

    if (e2b_build_of(call, call->params[0])) {
        if (core_build_delete(call->core, call->who.tenant, call->params[0], &e) == ERR_OK)
            api_reply_empty(call, 204);
        else
            api_fail_err(call, &e);
        return;
    }
    if (core_snapshot_find(call->core, call->who.tenant, call->params[0])) {
        core_snapshot_delete(call->core, call->who.tenant, call->params[0], snapshot_deleted, call);
        return;
    }
    t = find(call);
    if (t && core_template_is_host(t->id))
        api_fail(call, 403, "template 'host' " CORE_HOST_STAYS);
    else if (t)
        api_fail(call, 403,
                 "template '%s' is built in; its operator removes it with `cay template rm %s`",
                 t->id, t->id);
}

/* A request for the present state succeeds for every key; only the operator's changes it. */
static void publish(struct api_call *call, bool on)
{
    const struct build *b = e2b_build_of(call, call->params[0]);
    const char *name = call->params[0];
    struct err e;

    if (call->who.role != CORE_ROLE_OPERATOR && b && on)
        api_fail(call, 403,
                 "a template of a tenant's is for that tenant alone; the operator can publish one "
                 "of its own tenant's for all");
    else if (call->who.role != CORE_ROLE_OPERATOR && b)
        api_reply_json(call, 200, json_pack("{s:[s]}", "names", b->name));
    else if (call->who.role != CORE_ROLE_OPERATOR)
        api_fail(call, 404, "template '%s' not found", name);
    else if (core_template_publish(call->core, name, on, &name, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_json(call, 200, json_pack("{s:[s]}", "names", name));
}

static void patch(struct api_call *call)
{
    const struct template_info *t;
    bool public = false;
    struct err e;

    if (!api_call_body(call))
        return;
    t = e2b_build_of(call, call->params[0]) ? NULL
                                            : core_template_find(call->core, call->params[0]);
    if (json_get_bool(call->body, "public", NULL, JSON_OPTIONAL, &public, &e) != ERR_OK)
        api_fail_err(call, &e);
    else if (!t)
        publish(call, public);
    else if (!public)
        api_fail(call, 403, "template '%s' is the server's, for all tenants", call->params[0]);
    else
        api_reply_json(call, 200, json_pack("{s:[s]}", "names", call->params[0]));
}

const struct api_route e2b_template_routes[] = {
    /* Before {id}, which would take it for a template's name. */
    {API_WRITE, "POST", "/templates/tags", e2b_tags_add},
    {API_WRITE, "DELETE", "/templates/tags", e2b_tags_drop},
    {API_READ, "GET", "/templates", list},
    {API_READ, "GET", "/v2/templates", list},
    {API_READ, "GET", "/templates/aliases/{alias}", alias},
    {API_READ, "GET", "/templates/{id}", get},
    {API_WRITE, "DELETE", "/templates/{id}", delete_one},
    {API_WRITE, "POST", "/templates", api_unsupported, TEXT_BUILD},
    {API_WRITE, "POST", "/v2/templates", api_unsupported, TEXT_BUILD},
    {API_WRITE, "POST", "/v3/templates", e2b_build_request},
    {API_WRITE, "POST", "/templates/{id}", api_unsupported, TEXT_BUILD},
    {API_WRITE, "PATCH", "/templates/{id}", patch},
    {API_WRITE, "PATCH", "/v2/templates/{id}", patch},
    {API_WRITE, "GET", "/templates/{id}/files/{hash}", e2b_build_files},
    {API_OPEN, "PUT", "/templates/{id}/files/{hash}", e2b_build_upload},
    {API_WRITE, "POST", "/templates/{id}/builds/{build}", api_unsupported, TEXT_BUILD},
    {API_WRITE, "POST", "/v2/templates/{id}/builds/{build}", e2b_build_start},
    {API_READ, "GET", "/templates/{id}/builds/{build}/status", e2b_build_status},
    {API_READ, "GET", "/templates/{id}/builds/{build}/logs", api_unsupported, TEXT_BUILD},
    {API_READ, "GET", "/templates/{id}/tags", e2b_tags_list},
    {0},
};

const struct api_route e2b_other_routes[] = {
    {API_READ, "GET", "/teams", api_unsupported, TEXT_TEAMS},
    {API_READ, "GET", "/api-keys", api_unsupported, TEXT_KEYS},
    {API_WRITE, "POST", "/api-keys", api_unsupported, TEXT_KEYS},
    {API_WRITE, "PATCH", "/api-keys/{id}", api_unsupported, TEXT_KEYS},
    {API_WRITE, "DELETE", "/api-keys/{id}", api_unsupported, TEXT_KEYS},
    {API_WRITE, "POST", "/access-tokens", api_unsupported, TEXT_KEYS},
    {API_WRITE, "DELETE", "/access-tokens/{id}", api_unsupported, TEXT_KEYS},
    {0},
};
