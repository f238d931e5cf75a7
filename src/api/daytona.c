#include "api/daytona.h"

#include "api/daytona_network.h"
#include "base/clock.h"
#include "core/archive.h"
#include "core/ingress.h"
#include "core/life.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define USER          "daytona" /* whom programs run as */
#define ADDRESS_BYTES 512       /* beyond any host name */

/* -- shapes ------------------------------------------------------------------------------------ */

/* A switch, so that a state without a name does not compile. */
const char *daytona_state_name(enum sandbox_state state)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch"
    switch (state) {
    case SANDBOX_CREATING: return "creating";
    case SANDBOX_RUNNING: return "started";
    case SANDBOX_PAUSING: return "pausing";
    case SANDBOX_PAUSED: return "paused";
    case SANDBOX_RESUMING: return "resuming";
    case SANDBOX_ENDING: return "destroying";
    case SANDBOX_ENDED: return "destroyed";
    case SANDBOX_KEEPING: return "stopping";
    case SANDBOX_KEPT: return "stopped";
    case SANDBOX_RESTARTING: return "starting";
    case SANDBOX_STATE_COUNT: break;
    }
#pragma GCC diagnostic pop
    abort(); /* a state that there is not */
}

/* Clients want one, also of a server that has no toolbox: there they are told so, below
 * DAYTONA_PREFIX. They send their key to it, so that it must be this very server, as they know it;
 * and in clear only where there is nothing else. */
static json_t *toolbox_address(const struct api *api, const char *host)
{
    const struct api_config *config = api_config_of(api);
    char text[ADDRESS_BYTES];

    (void)snprintf(text, sizeof(text), "%s://%s" DAYTONA_PREFIX "toolbox",
                   config->https ? "https" : "http", host[0] ? host : config->domain);
    return api_json_text(text);
}

json_t *daytona_toolbox_address(const struct api_call *call)
{
    return toolbox_address(call->api, call->request->host);
}

json_t *daytona_whole(uint64_t n, uint64_t unit)
{
    return json_integer((json_int_t)MAX(1, n / unit + (n % unit != 0)));
}

static void set_resources(json_t *out, const struct privsep_limits *l)
{
    json_object_set_new(out, "cpu", daytona_whole(l->cpu_milli, 1000));
    json_object_set_new(out, "memory", daytona_whole(l->memory_bytes, DAYTONA_GIB));
    json_object_set_new(out, "disk", daytona_whole(l->disk_bytes, DAYTONA_GIB));
    json_object_set_new(out, "gpu", json_integer(0));
    json_object_set_new(out, "kvm", json_false());
}

const char *daytona_state(const struct sandbox *s)
{
    if (s->kept_memory && life_is_at_rest(s->state))
        return daytona_state_name(SANDBOX_PAUSED);
    return core_sandbox_is_archived(s, clock_real_ms()) ? "archived" : daytona_state_name(s->state);
}

static int auto_delete_minutes(const struct sandbox *s)
{
    if (s->on_timeout == SANDBOX_ON_TIMEOUT_KILL)
        return 0;
    return s->auto_delete_ms > 0 ? (int)(s->auto_delete_ms / DAYTONA_MINUTE_MS) : -1;
}

/* When it is deleted whatever it is used for; 0: never for a time alone. */
static int64_t destroy_real_ms(const struct sandbox *s)
{
    int64_t end_ms = s->on_timeout == SANDBOX_ON_TIMEOUT_KILL ? s->end_real_ms : 0;

    if (end_ms == 0 || s->destroy_real_ms == 0)
        return end_ms + s->destroy_real_ms;
    return MIN(end_ms, s->destroy_real_ms);
}

/* By its name, as a create can say it again; where that has gone, by its id. */
static const char *snapshot_of(struct core *core, const struct sandbox *s)
{
    const char *name = core_sandbox_template_alias(core, s);

    return *name ? name : core_sandbox_template_id(s);
}

json_t *daytona_sandbox_json_of(struct core *core, const struct api *api, const char *host,
                                const struct sandbox *s, bool item)
{
    const int idle_minutes = (int)(s->idle_ms / DAYTONA_MINUTE_MS);
    const bool pauses = core_sandbox_pauses_when_idle(s);
    json_t *out = json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:i}", "id", s->id, "organizationId",
        s->tenant, "name", *s->name ? s->name : s->id, "snapshot", snapshot_of(core, s), "user",
        USER, "target", DAYTONA_TARGET, "state", daytona_state(s), "sandboxClass", "container",
        "autoStopInterval", pauses ? 0 : idle_minutes, "autoPauseInterval",
        pauses ? idle_minutes : 0, "autoDeleteInterval", auto_delete_minutes(s));

    if (!out)
        return NULL;
    json_object_set_new(out, "labels", s->metadata ? json_deep_copy(s->metadata) : json_object());
    json_object_set_new(out, "public", json_boolean(ingress_is_public(s->network)));
    daytona_network_show(network_shown(s->network), s->policy, out);
    set_resources(out, &s->limits);
    json_object_set_new(out, "autoArchiveInterval",
                        json_integer(s->auto_archive_ms / DAYTONA_MINUTE_MS));
    json_object_set_new(out, "createdAt", api_json_time(s->started_real_ms));
    if (destroy_real_ms(s))
        json_object_set_new(out, "autoDestroyAt", api_json_time(destroy_real_ms(s)));
    json_object_set_new(out, "toolboxProxyUrl", toolbox_address(api, host));
    if (item)
        return out;
    /* The environment is kept inside the sandbox alone: it may hold secrets. */
    json_object_set_new(out, "env", json_object());
    json_object_set_new(out, "volumes", daytona_volumes_json(s));
    return out;
}

json_t *daytona_sandbox_json(struct api_call *call, const struct sandbox *s, bool item)
{
    return daytona_sandbox_json_of(call->core, call->api, call->request->host, s, item);
}

void daytona_no_sandbox(struct api_call *call)
{
    api_fail(call, 404, "Sandbox with ID or name %s not found", call->params[0]);
}

void daytona_sandbox_done(void *arg, const struct sandbox *s, const struct err *why)
{
    struct api_call *call = arg;

    if (!why)
        api_reply_json(call, 200, daytona_sandbox_json(call, s, false));
    else
        api_fail_err(call, why);
}
