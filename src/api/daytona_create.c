/* POST /api/sandbox. A request for something that is not there is refused, not ignored: a client
 * that asked for a volume must not find its files gone later. */
#include "api/daytona.h"
#include "api/daytona_fields.h"
#include "api/daytona_later.h"
#include "api/daytona_mount.h"
#include "api/daytona_network.h"
#include "api/e2b.h"
#include "core/build_spec.h"
#include "core/publish.h"
#include "http/json.h"

#include <stdio.h>
#include <string.h>

/* Strings and objects of r are the body's, but for those that are here too. */
struct creation {
    struct sandbox_request r;
    struct network *network;
    json_t *body, *settings, *policy, *mounted, *env;
    struct mounts mounts;
    bool pauses;    /* after its idle time, and is not stopped */
    bool has_image; /* it begins with an image, which spec describes */
    struct build_spec spec;
    uint8_t hash[CORE_IMAGE_HASH_SIZE];
    char template_name[CORE_BUILD_NAME_SIZE];
};

static void creation_free(void *state)
{
    struct creation *c = state;

    json_decref(c->settings);
    network_unref(c->network);
    json_decref(c->policy);
    json_decref(c->mounted);
    json_decref(c->env);
    json_decref(c->body);
    build_spec_free(&c->spec);
    free(c);
}

/* -- fields ------------------------------------------------------------------------------------ */

/* Every field of a body; without `what`: it is read below. */
static const struct daytona_field fields[] = {
    {"snapshot", NULL},
    {"env", NULL},
    {"labels", NULL},
    {"public", NULL},
    {"user", NULL},
    {"target", NULL},
    {"networkBlockAll", NULL},
    {"networkAllowList", NULL},
    {"domainAllowList", NULL},
    {"autoDeleteInterval", NULL},
    {"ttlMinutes", NULL},
    {"name", NULL},
    {"autoStopInterval", NULL},
    {"autoPauseInterval", NULL},
    {"autoArchiveInterval", NULL},
    {"cpu", NULL},
    {"memory", NULL},
    {"disk", NULL},
    {"gpu", "GPUs"},
    {"gpuType", "GPUs"},
    {"spot", "spot sandboxes"},
    {"kvm", "virtual machines"},
    {"buildInfo", NULL},
    {"volumes", NULL},
    {"secrets", NULL},
    {"outboundProxyUrl", "a proxy of the sandbox's own"},
    {"otelEndpointOverride", "telemetry"},
    {"linkedSandbox", "linked sandboxes"},
    {"queueTimeout", "waiting for room (a create that has none is refused at once)"},
};

/* -- the end of its life ----------------------------------------------------------------------- */

static bool has(const json_t *body, const char *name)
{
    const json_t *value = json_object_get(body, name);

    return value && !json_is_null(value);
}

/* Minutes after which one that is stopped is deleted. 0: one that stops is gone; below: it stays.
 * Where no files can be kept it is gone then, which its answers say (0), and a time after that is
 * refused. */
static enum err_code read_auto_delete(struct api_call *call, struct creation *c, struct err *e)
{
    int64_t minutes = -1;
    enum err_code rc = json_get_int(call->body, "autoDeleteInterval", NULL, JSON_OPTIONAL,
                                    INT32_MIN, INT32_MAX, &minutes, e);

    c->r.auto_delete_ms = MAX(minutes, 0) * DAYTONA_MINUTE_MS;
    if (minutes > 0 || (minutes < 0 && core_keeps_files(call->core, NULL))) {
        c->r.on_timeout = SANDBOX_ON_TIMEOUT_PAUSE;
        c->r.timeout_tier = SANDBOX_TIER_FILES;
    }
    return rc;
}

/* A sandbox that is idle for so long stops, or is paused; one of the two. */
static enum err_code read_auto_stop(struct api_call *call, struct creation *c, struct err *e)
{
    int64_t stop = c->r.destroy_ms > 0 ? 0 : DAYTONA_IDLE_DEFAULT_MINUTES;
    int64_t pause = 0;
    enum err_code rc = json_get_int(call->body, "autoPauseInterval", NULL, JSON_OPTIONAL, 0,
                                    INT32_MAX, &pause, e);

    if (rc == ERR_OK && pause > 0)
        stop = 0;
    if (rc == ERR_OK)
        rc = json_get_int(call->body, "autoStopInterval", NULL, JSON_OPTIONAL, 0, INT32_MAX, &stop,
                          e);
    if (rc != ERR_OK)
        return rc;
    if (stop > 0 && pause > 0)
        return err_set(e, ERR_INVALID,
                       "At most one of autoStopInterval and autoPauseInterval may be non-zero");
    c->pauses = pause > 0;
    return daytona_idle_ms(call, MAX(stop, pause), &c->r.idle_ms, e);
}

/* A sandbox that is deleted when it stops is never paused by itself. */
static enum err_code read_auto_pause(struct creation *c, struct err *e)
{
    if (!c->pauses)
        return ERR_OK;
    if (c->r.on_timeout == SANDBOX_ON_TIMEOUT_KILL)
        return err_set(
            e, ERR_INVALID,
            "autoPauseInterval: not with autoDeleteInterval 0, by which it is deleted instead");
    c->r.timeout_tier = SANDBOX_TIER_FROZEN;
    return ERR_OK;
}

/* A sandbox that has been stopped for so long is archived. */
static enum err_code read_auto_archive(const json_t *body, struct creation *c, struct err *e)
{
    int64_t minutes = 0;
    enum err_code rc = json_get_int(body, "autoArchiveInterval", NULL, JSON_OPTIONAL, 0, INT32_MAX,
                                    &minutes, e);

    if (rc == ERR_OK && has(body, "autoArchiveInterval"))
        c->r.auto_archive_ms = daytona_archive_ms(minutes);
    return rc;
}

/* ttlMinutes: it is deleted then, in any state; 0: not for a time alone. */
static enum err_code read_times(struct api_call *call, struct creation *c, struct err *e)
{
    int64_t minutes = 0;
    enum err_code rc = json_get_int(call->body, "ttlMinutes", NULL, JSON_OPTIONAL, 0, INT32_MAX,
                                    &minutes, e);

    c->r.destroy_ms = minutes * DAYTONA_MINUTE_MS;
    if (rc != ERR_OK || (rc = read_auto_archive(call->body, c, e)) ||
        (rc = read_auto_stop(call, c, e)) || (rc = read_auto_delete(call, c, e)))
        return rc;
    c->r.ttl_ms = c->r.idle_ms > 0 ? 0 : (int64_t)api_config_of(call->api)->max_ttl_ms;
    return read_auto_pause(c, e);
}

/* -- the rest ---------------------------------------------------------------------------------- */

static enum err_code read_secrets(const json_t *body, struct creation *c, struct err *e)
{
    enum err_code rc = daytona_mounted_read(body, &c->mounted, e);

    if (rc != ERR_OK || !c->mounted)
        return rc;
    rc = daytona_mounted_env(c->r.env, c->mounted, &c->env, e);
    c->r.env = c->env;
    return rc;
}

/* The policy of its settings and of what is mounted, which are kept together. */
static enum err_code make_policy(struct api_call *call, struct creation *c, struct err *e)
{
    c->policy = daytona_network_policy(c->settings);
    if (!c->policy ||
        (c->mounted && json_object_set(c->settings, DAYTONA_MOUNTED_KEY, c->mounted) < 0))
        return err_set(e, ERR_UNAVAILABLE, "memory is out");
    return daytona_mounted_inject(call, c->mounted, false, c->policy, e);
}

static enum err_code read_network(struct api_call *call, struct creation *c, struct err *e)
{
    const json_t *body = call->body;
    json_t *network;
    bool public = false;
    enum err_code rc;

    if ((rc = json_get_bool(body, "public", NULL, JSON_OPTIONAL, &public, e)) ||
        (rc = daytona_network_read(body, &c->settings, e)) || (rc = make_policy(call, c, e)))
        return rc;
    network = json_pack("{s:b, s:O}", E2B_PUBLIC_KEY, public, DAYTONA_NETWORK_KEY, c->settings);
    if (!network)
        rc = err_set(e, ERR_UNAVAILABLE, "memory is out");
    else
        rc = e2b_network_setting(network, &c->network, e);
    json_decref(network);
    if (rc != ERR_OK)
        return rc;
    c->r.network = c->network;
    c->r.policy = c->policy;
    c->r.allow_internet = !json_is_true(json_object_get(c->settings, "networkBlockAll"));
    return ERR_OK;
}

enum err_code daytona_too_much(const char *name, int64_t n, uint64_t unit, uint64_t most,
                               struct err *e)
{
    err_set(e, ERR_INVALID, "%s: found %lld, a sandbox has at most %.1f on this server", name,
            (long long)n, (double)most / (double)unit);
    err_hint(e, "the operator sets it: [sandbox] in cay.conf, or `cay template limits`");
    return ERR_INVALID;
}

/* Whole cores and GiB; no more than the operator gives a sandbox of this template. */
static enum err_code read_resource(const json_t *body, const char *name, uint64_t unit,
                                   uint64_t most, uint64_t *out, struct err *e)
{
    int64_t n = 0;
    enum err_code rc = json_get_int(body, name, NULL, JSON_OPTIONAL, 0, INT32_MAX, &n, e);

    if (rc == ERR_OK && (uint64_t)n * unit > most)
        return daytona_too_much(name, n, unit, most, e);
    *out = (uint64_t)n * unit;
    return rc;
}

enum err_code daytona_resources_read(const json_t *body, const struct privsep_limits *most,
                                     struct privsep_limits *out, struct err *e)
{
    uint64_t cpu_milli = 0;
    enum err_code rc;

    if ((rc = read_resource(body, "cpu", 1000, most->cpu_milli, &cpu_milli, e)) ||
        (rc = read_resource(body, "memory", DAYTONA_GIB, most->memory_bytes, &out->memory_bytes,
                            e)))
        return rc;
    out->cpu_milli = (uint32_t)cpu_milli;
    return read_resource(body, "disk", DAYTONA_GIB, most->disk_bytes, &out->disk_bytes, e);
}

/* Of a snapshot the template that it lies on: its sandboxes are bounded as the template's are. */
static const struct template_info *template_of(const struct api_call *call, const char *name)
{
    const struct snapshot *s = core_template_snapshot(call->core, call->who.tenant, name);

    return s ? core_template_by_id(call->core, s->template_id)
             : core_template_find(call->core, name);
}

static enum err_code read_resources(struct api_call *call, struct sandbox_request *r, struct err *e)
{
    const struct template_info *t = r->template_name ? template_of(call, r->template_name) : NULL;
    struct privsep_limits most = t ? core_template_limits(call->core, t)
                                   : api_config_of(call->api)->limits;

    return daytona_resources_read(call->body, &most, &r->limits, e);
}

/* The sandbox begins with a snapshot, by its name, or with an image. */
static enum err_code read_origin(struct api_call *call, struct creation *c, struct err *e)
{
    const char *name = NULL;
    enum err_code rc = json_get_str(call->body, "snapshot", NULL, JSON_OPTIONAL, CORE_NAME_SIZE - 1,
                                    &name, e);

    c->has_image = has(call->body, "buildInfo");
    if (rc == ERR_OK && c->has_image && name && *name)
        return err_set(e, ERR_INVALID,
                       "Cannot specify a snapshot when using a build info entry: snapshot, or "
                       "buildInfo");
    c->r.template_name = c->has_image ? NULL : name ? name : DAYTONA_SNAPSHOT;
    return rc == ERR_OK && c->has_image ? daytona_build_info_take(call->body, &c->spec, c->hash, e)
                                        : rc;
}

static enum err_code read_creation(struct api_call *call, struct creation *c, struct err *e)
{
    const json_t *body = call->body;
    enum err_code rc;

    c->r = (struct sandbox_request){
        .tenant = call->who.tenant, .on_timeout = SANDBOX_ON_TIMEOUT_KILL, .secure = true};
    if ((rc = daytona_fields_check(body, fields, ARRAY_SIZE(fields), e)) ||
        (rc = read_origin(call, c, e)) || (rc = daytona_name_read(body, &c->r.name, e)) ||
        (rc = read_resources(call, &c->r, e)) ||
        (rc = daytona_only_read(body, "user", "daytona", "sessions and commands run as that user",
                                e)) ||
        (rc = daytona_only_read(body, "target", DAYTONA_TARGET,
                                "unset DAYTONA_TARGET, and remove target from the configuration",
                                e)) ||
        (rc = read_times(call, c, e)) || (rc = api_read_maps(body, "labels", "env", &c->r, e)))
        return rc;
    if ((rc = daytona_volumes_read(body, &c->mounts, e)) || (rc = read_secrets(body, c, e)))
        return rc;
    c->r.mounts = c->mounts.list;
    c->r.n_mounts = c->mounts.n;
    return read_network(call, c, e);
}

/* -- the create -------------------------------------------------------------------------------- */

/* A create that names a snapshot or a volume that is not there is a bad request, as upstream has
 * it: 404 is for the sandbox of a path. */
static void fail_create(struct api_call *call, const struct err *why)
{
    struct err e = *why;

    if (e.code == ERR_NOT_FOUND)
        e.code = ERR_INVALID;
    api_fail_err(call, &e);
}

/* A core_sandbox_cb. */
static void created(void *arg, const struct sandbox *s, const struct err *why)
{
    if (why)
        fail_create(arg, why);
    else
        daytona_sandbox_done(arg, s, NULL);
}

/* The record has c from now on; its answer is the state that clients wait for a build in. */
static void wait_for(struct api_call *call, struct creation *c, const struct build *b)
{
    const struct core_create_later *l = NULL;
    struct err e;
    json_t *out;

    c->body = json_incref(call->body);
    if (core_create_later(call->core, &c->r, b, c, creation_free, &l, &e) != ERR_OK) {
        fail_create(call, &e);
        return;
    }
    call->state = NULL;
    call->state_free = NULL;
    out = daytona_later_json(call, l, false);
    json_object_set_new(out, "state", json_string("pending_build"));
    api_reply_json(call, 200, out);
}

/* The template may lie on one with narrower limits than the server's. */
static void create_of_image(struct api_call *call, struct creation *c)
{
    const struct build *b = NULL;
    struct err e;

    if (core_build_of_create(call->core, call->who.tenant, c->hash, &c->spec, &b, &e) != ERR_OK) {
        fail_create(call, &e);
        return;
    }
    if (b->state != BUILD_READY) {
        wait_for(call, c, b);
        return;
    }
    (void)snprintf(c->template_name, sizeof(c->template_name), "%s", b->name);
    c->r.template_name = c->template_name;
    if (read_resources(call, &c->r, &e) != ERR_OK)
        fail_create(call, &e);
    else
        core_sandbox_create(call->core, &c->r, created, call);
}

/* Of a snapshot that a create names and that is none yet, or never will be: why. */
static bool is_refused(struct api_call *call, const char *name)
{
    const struct build *b = template_of(call, name) ? NULL : daytona_build_find(call, name);
    bool failed = b && b->state == BUILD_ERROR;

    if (!b || b->state == BUILD_READY)
        return false;
    api_fail(call, 400, "Snapshot %s is %s%s%.400s", name, daytona_build_state(b),
             failed && *b->reason ? ": " : "", failed ? b->reason : "");
    return true;
}

void daytona_sandbox_create(struct api_call *call)
{
    struct creation *c;
    struct err e;

    c = api_call_state(call, sizeof(*c), creation_free);
    if (!c)
        return;
    if (read_creation(call, c, &e) != ERR_OK)
        fail_create(call, &e);
    else if (c->r.name && *c->r.name && core_later_find(call->core, call->who.tenant, c->r.name))
        api_fail(call, 409, "there is a sandbox with the name %s already", c->r.name);
    else if (c->has_image)
        create_of_image(call, c);
    else if (!is_refused(call, c->r.template_name))
        core_sandbox_create(call->core, &c->r, created, call);
}
