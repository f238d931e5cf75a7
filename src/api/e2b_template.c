/* Templates as E2B's SDKs and command line ask for them. Making them is /cay/v1's until E2B's
 * builder is served. */
#include "api/e2b.h"
#include "core/snapshot.h"

#include <string.h>

#define MIB (1024u * 1024u)

#define TEXT_BUILD                                                                         \
    "building templates by the SDK (install what is needed in a sandbox, keep it by `cay " \
    "snapshot create ID NAME` or createSnapshot, and create from NAME; or `cay template build`)"
#define TEXT_TAGS  "template tags"
#define TEXT_TEAMS "teams (keys belong to tenants; see /cay/v1/keys)"
#define TEXT_KEYS  "managing keys by E2B's API (`cay key`, or /cay/v1/keys, does it)"

/* Builds have no id of their own here: the nil UUID says so in the form that clients expect. */
#define NO_BUILD "00000000-0000-0000-0000-000000000000"

static const char *build_status(const struct template_info *t)
{
    return t->building ? "building" : t->ready ? "ready" : "waiting";
}

static json_t *template_json(struct api_call *call, const struct template_info *t)
{
    const struct privsep_limits own = core_template_limits(call->core, t), *l = &own;
    json_t *out = json_object();

    json_object_set_new(out, "templateID", json_string(t->id));
    json_object_set_new(out, "buildID", json_string(NO_BUILD));
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
    size_t n = core_templates(call->core, &items);
    json_t *out = json_array();

    for (size_t i = 0; i < n; i++)
        json_array_append_new(out, template_json(call, &items[i]));
    api_reply_json(call, 200, out);
}

static const struct template_info *find(struct api_call *call)
{
    const struct template_info *t = core_template_find(call->core, call->params[0]);

    if (!t)
        api_fail(call, 404, "template '%s' not found", call->params[0]);
    return t;
}

static void alias(struct api_call *call)
{
    const struct template_info *t = find(call);

    if (t)
        api_reply_json(call, 200, json_pack("{s:s, s:b}", "templateID", t->id, "public", 1));
}

static void get(struct api_call *call)
{
    const struct template_info *t = find(call);
    json_t *out;

    if (!t)
        return;
    out = template_json(call, t);
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

    if (core_snapshot_find(call->core, call->who.tenant, call->params[0])) {
        core_snapshot_delete(call->core, call->who.tenant, call->params[0], snapshot_deleted, call);
        return;
    }
    t = find(call);
    if (t)
        api_fail(call, 403,
                 "template '%s' is built in; its operator removes it with `cay template rm %s`",
                 t->id, t->id);
}

const struct api_route e2b_template_routes[] = {
    /* Before {id}, which would take it for a template's name. */
    {API_WRITE, "POST", "/templates/tags", api_unsupported, TEXT_TAGS},
    {API_WRITE, "DELETE", "/templates/tags", api_unsupported, TEXT_TAGS},
    {API_READ, "GET", "/templates", list},
    {API_READ, "GET", "/v2/templates", list},
    {API_READ, "GET", "/templates/aliases/{alias}", alias},
    {API_READ, "GET", "/templates/{id}", get},
    {API_WRITE, "DELETE", "/templates/{id}", delete_one},
    {API_WRITE, "POST", "/templates", api_unsupported, TEXT_BUILD},
    {API_WRITE, "POST", "/v2/templates", api_unsupported, TEXT_BUILD},
    {API_WRITE, "POST", "/v3/templates", api_unsupported, TEXT_BUILD},
    {API_WRITE, "POST", "/templates/{id}", api_unsupported, TEXT_BUILD},
    {API_WRITE, "PATCH", "/templates/{id}", api_unsupported, TEXT_BUILD},
    {API_WRITE, "PATCH", "/v2/templates/{id}", api_unsupported, TEXT_BUILD},
    {API_READ, "GET", "/templates/{id}/files/{hash}", api_unsupported, TEXT_BUILD},
    {API_WRITE, "POST", "/templates/{id}/builds/{build}", api_unsupported, TEXT_BUILD},
    {API_WRITE, "POST", "/v2/templates/{id}/builds/{build}", api_unsupported, TEXT_BUILD},
    {API_READ, "GET", "/templates/{id}/builds/{build}/status", api_unsupported, TEXT_BUILD},
    {API_READ, "GET", "/templates/{id}/builds/{build}/logs", api_unsupported, TEXT_BUILD},
    {API_READ, "GET", "/templates/{id}/tags", api_unsupported, TEXT_TAGS},
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
