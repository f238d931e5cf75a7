/* POST /api/snapshots, which begins a build, and calls about one: its log, and whether it is
 * switched on. The states of a build and what it leaves are core's. */
#include "api/daytona_image.h"

#include "api/daytona_build_spec.h"
#include "api/daytona_fields.h"
#include "api/daytona_later.h"
#include "core/publish.h"
#include "core/snapshot.h"
#include "http/json.h"

#include <string.h>

#define IMAGE_TEXT_MAX 512

static const struct daytona_field fields[] = {
    {"name", NULL},
    {"imageName", NULL},
    {"entrypoint", NULL},
    {"buildInfo", NULL},
    {"cpu", NULL},
    {"memory", NULL},
    {"disk", NULL},
    {"regionId", NULL},
    {"sandboxClass", NULL},
    {"general", "snapshots for all (the operator publishes one by `cay template publish`)"},
    {"gpu", "GPUs"},
    {"gpuType", "GPUs"},
    {"skipValidation", "images that are not looked at"},
};

/* -- POST /api/snapshots ----------------------------------------------------------------------- */

static enum err_code read_image(const json_t *body, struct build_spec *spec, struct err *e)
{
    json_t *info = NULL, *entrypoint = NULL;
    const char *image = NULL;

    if (json_get_obj(body, "buildInfo", NULL, JSON_OPTIONAL, &info, e) != ERR_OK ||
        json_get_str(body, "imageName", NULL, JSON_OPTIONAL, IMAGE_TEXT_MAX, &image, e) != ERR_OK ||
        json_get_arr(body, "entrypoint", NULL, JSON_OPTIONAL, &entrypoint, e) != ERR_OK)
        return e->code;
    if (!info == !(image && *image))
        return err_set(e, ERR_INVALID, "one of imageName and buildInfo has to be given");
    if (info && json_array_size(entrypoint) > 0)
        return err_set(e, ERR_INVALID,
                       "entrypoint: with buildInfo it is an ENTRYPOINT of the Dockerfile");
    return info ? daytona_build_spec_read(info, spec, e)
                : daytona_build_spec_of_image(image, entrypoint, spec, e);
}

static enum err_code read_rest(struct api_call *call, struct core_build_request *r, struct err *e)
{
    const json_t *body = call->body;
    struct privsep_limits limits = {0};

    if (daytona_fields_check(body, fields, ARRAY_SIZE(fields), e) != ERR_OK ||
        json_get_str(body, "name", NULL, JSON_REQUIRED, CORE_BUILD_NAME_SIZE - 1, &r->name, e) !=
            ERR_OK ||
        daytona_only_read(body, "regionId", DAYTONA_TARGET,
                          "unset DAYTONA_TARGET, and remove target from the configuration",
                          e) != ERR_OK ||
        daytona_only_read(body, "sandboxClass", "container", "there are no virtual machines", e) !=
            ERR_OK ||
        daytona_resources_read(body, &api_config_of(call->api)->limits, &limits, e) != ERR_OK)
        return e->code;
    if (strchr(r->name, ':'))
        return err_set(e, ERR_INVALID,
                       "name: \"%.100s\" is none of a snapshot on this server: letters, digits, "
                       "'.', '_' and '-'",
                       r->name);
    r->tenant = call->who.tenant;
    r->memory_bytes = limits.memory_bytes;
    r->cpu_milli = limits.cpu_milli;
    return ERR_OK;
}

/* A build that cannot be started leaves nothing: there was none of that name. */
static enum err_code begin(struct api_call *call, const struct core_build_request *r,
                           struct build_spec *spec, const struct build **out, struct err *e)
{
    const struct build *b = NULL;
    enum err_code code = core_build_new(call->core, r, &b, e);

    if (code == ERR_OK) {
        code = core_build_start(call->core, r->tenant, b->template_id, b->id, spec, e);
        if (code != ERR_OK)
            core_build_delete(call->core, r->tenant, b->template_id, NULL);
    }
    build_spec_free(spec);
    *out = b;
    return code;
}

static void create(struct api_call *call)
{
    struct core_build_request r = {0};
    struct build_spec spec = {0};
    const struct build *b = NULL;
    struct err e;

    if (!api_call_body(call))
        return;
    if (read_rest(call, &r, &e) != ERR_OK || read_image(call->body, &spec, &e) != ERR_OK) {
        api_fail_err(call, &e);
    } else if (daytona_snapshot_is_taken(call, r.name)) {
        build_spec_free(&spec);
        api_fail(call, 409, "Snapshot with name \"%s\" already exists for this organization",
                 r.name);
    } else if (begin(call, &r, &spec, &b, &e) != ERR_OK) {
        api_fail_err(call, &e);
    } else {
        api_reply_json(call, 200, daytona_build_json(call, b));
    }
}

/* -- the log of a build ------------------------------------------------------------------------ */

static void no_log(struct api_call *call)
{
    api_fail(call, 404, "Snapshot %s with build info not found", call->params[0]);
}

/* Clients send their key to it, so that it must be this very server, as they know it. */
void daytona_build_logs_url(struct api_call *call, const struct build *b)
{
    api_reply_json(call, 200,
                   json_pack("{s:o}", "url",
                             json_sprintf("%s://%s" DAYTONA_PREFIX "snapshots/%s/build-logs",
                                          api_config_of(call->api)->https ? "https" : "http",
                                          call->request->host, b->template_id)));
}

static void logs_url(struct api_call *call)
{
    const struct build *b = daytona_build_find(call, call->params[0]);

    if (b)
        daytona_build_logs_url(call, b);
    else
        no_log(call);
}

/* Of one that stands on a build as well. */
void daytona_sandbox_logs_url(struct api_call *call)
{
    const struct core_create_later *l = daytona_later_find(call);
    const struct sandbox *s = l ? NULL : daytona_find(call);
    const struct build *b;

    if (!l && !s)
        return;
    b = daytona_build_find(call, l ? l->template_id : core_sandbox_template_id(s));
    if (b)
        daytona_build_logs_url(call, b);
    else
        api_fail(call, 404, "Sandbox with ID %s does not have build info", call->params[0]);
}

static void logs(struct api_call *call)
{
    const struct build *b = daytona_build_find(call, call->params[0]);
    char follow[8];
    struct err e;
    int fd;

    if (!b)
        no_log(call);
    else if (!api_call_query(call, "follow", follow, sizeof(follow)))
        return;
    else if (core_build_log_follow(call->core, b, call->request->key, strcmp(follow, "true") == 0,
                                   &fd, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        api_reply_stream(call, "text/plain", fd);
}

/* -- on and off -------------------------------------------------------------------------------- */

/* None is ever off. */
static void activate(struct api_call *call)
{
    const char *name = call->params[0];
    const struct build *b = daytona_build_find(call, name);
    struct core_public_template public;

    if (b && b->state != BUILD_READY)
        api_fail(call, 400, "Snapshot %s cannot be activated: it is not active, but %s", name,
                 b->state == BUILD_ERROR ? "its build has failed" : "being built");
    else if (b || core_snapshot_find(call->core, call->who.tenant, name) ||
             core_template_find(call->core, name) ||
             core_template_public(call->core, name, &public))
        api_fail(call, 400, "Snapshot %s is already active", name);
    else
        daytona_no_snapshot(call);
}

const struct api_route daytona_image_routes[] = {
    {API_WRITE, "POST", "/api/snapshots", create},
    {API_READ, "GET", "/api/snapshots/{id}/build-logs-url", logs_url},
    {API_READ, "GET", "/api/snapshots/{id}/build-logs", logs},
    {API_WRITE, "POST", "/api/snapshots/{id}/activate", activate},
    {0},
};
