/* Volumes as Daytona's SDKs ask for them: the same as E2B's and /cay/v1's. A volume is ready when
 * it is answered, so that it has no other state. */
#include "api/daytona.h"
#include "api/volume_call.h"
#include "core/volume.h"
#include "http/json.h"

static json_t *volume_json(const struct volume *v)
{
    json_t *made = api_json_time(v->made_real_ms);

    return json_pack("{s:s, s:s, s:s, s:s, s:O, s:o, s:n}", "id", v->id, "name", v->name,
                     "organizationId", v->tenant, "state", "ready", "createdAt", made, "updatedAt",
                     made, "errorReason");
}

/* In the words that clients look for before they make one. */
static void no_volume(struct api_call *call, const char *what)
{
    api_fail(call, 404, "Volume with %s %s not found", what, call->params[0]);
}

static void made(void *arg, const struct volume *v, const struct err *why)
{
    struct api_call *call = arg;

    if (v)
        api_reply_json(call, 200, volume_json(v));
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

static void show(struct api_call *call, const char *what)
{
    const struct volume *v = core_volume_find(call->core, call->who.tenant, call->params[0]);

    if (v)
        api_reply_json(call, 200, volume_json(v));
    else
        no_volume(call, what);
}

static void get(struct api_call *call)
{
    show(call, "ID");
}

static void get_named(struct api_call *call)
{
    show(call, "name");
}

static void no_volume_of_id(struct api_call *call)
{
    no_volume(call, "ID");
}

static void removed(void *arg, const struct err *why)
{
    volume_call_removed(arg, why, 200, no_volume_of_id);
}

static void destroy(struct api_call *call)
{
    volume_call_remove(call, removed);
}

const struct api_route daytona_volume_routes[] = {
    {API_READ, "GET", "/api/volumes", list},
    {API_WRITE, "POST", "/api/volumes", create},
    {API_READ, "GET", "/api/volumes/by-name/{name}", get_named},
    {API_READ, "GET", "/api/volumes/{id}", get},
    {API_WRITE, "DELETE", "/api/volumes/{id}", destroy},
    {0},
};

/* -- of a sandbox ------------------------------------------------------------------------------ */

static enum err_code read_one(const json_t *one, struct mounts *out, struct err *e)
{
    const char *id = NULL, *path = NULL, *subpath = "";
    enum err_code rc;

    if ((rc = json_get_str(one, "volumeId", NULL, JSON_REQUIRED, CORE_VOLUME_NAME_SIZE + 3, &id,
                           e)) ||
        (rc = json_get_str(one, "mountPath", NULL, JSON_REQUIRED, CORE_VOLUME_PATH_SIZE, &path,
                           e)) ||
        (rc = json_get_str(one, "subpath", NULL, JSON_OPTIONAL, CORE_VOLUME_PATH_SIZE, &subpath,
                           e)))
        return rc;
    if (*subpath)
        return err_set(e, ERR_INVALID,
                       "volumes: subpath: not supported yet by this server: a part of a volume "
                       "(mount the whole one)");
    return mounts_add_volume(out, "volumes", id, path, false, e);
}

enum err_code daytona_volumes_read(const json_t *body, struct mounts *out, struct err *e)
{
    json_t *requested = NULL, *one;
    enum err_code rc = json_get_arr(body, "volumes", NULL, JSON_OPTIONAL, &requested, e);
    size_t i;

    json_array_foreach (requested, i, one)
        if (rc == ERR_OK)
            rc = json_is_object(one)
                     ? read_one(one, out, e)
                     : err_set(e, ERR_INVALID, "volumes: each has a volumeId and a mountPath");
    return rc;
}

json_t *daytona_volumes_json(const struct sandbox *s)
{
    json_t *all = json_array(), *m;
    size_t i;

    json_array_foreach (s->volumes, i, m)
        if (json_object_get(m, "volume"))
            json_array_append_new(all,
                                  json_pack("{s:O, s:O}", "volumeId", json_object_get(m, "volume"),
                                            "mountPath", json_object_get(m, "path")));
    return all;
}
