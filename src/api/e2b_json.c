/* Sandboxes and errors in E2B's JSON: the form of a create, of a list and of the details, which
 * differ in fields. Called by all e2b_*.c and, for errors, by handlers of snapshots and
 * templates. Pure but for the reply: nothing is changed in core. Tokens are shown to the tenant
 * whose sandbox it is, which is the caller's to have checked. */

#include "api/e2b.h"
#include "core/ingress.h"
#include "core/life.h"

#include <string.h>

/* E2B names the machine that a sandbox runs on; there is one here. Python's SDK wants the field. */
#define CLIENT_ID "cay"

#define MIB (1024u * 1024u)

const struct core_names e2b_names = {.key_prefix = "e2b_",
                                     .own_credential = E2B_RULE_NAME,
                                     .in_sandbox = "E2B_SANDBOX",
                                     .sandbox_id = "E2B_SANDBOX_ID",
                                     .template_id = "E2B_TEMPLATE_ID"};

static json_t *domain_json(struct api_call *call)
{
    const char *domain = api_config_of(call->api)->domain;

    return domain[0] ? json_string(domain) : json_null();
}

/* An alias is only shown when it says something that the id does not. */
static void set_template(struct api_call *call, json_t *out, const struct sandbox *s)
{
    const char *alias = core_sandbox_template_alias(call->core, s);

    json_object_set_new(out, "templateID", json_string(core_sandbox_template_id(s)));
    if (alias[0])
        json_object_set_new(out, "alias", json_string(alias));
}

static void set_agent_token(struct api_call *call, json_t *out, const struct sandbox *s)
{
    char token[CORE_TOKEN_SIZE + 1];

    if (!s->secure || !api_role_may(call->who.role, API_WRITE))
        return;
    core_sandbox_token(call->core, s->id, token);
    json_object_set_new(out, "envdAccessToken", json_string(token));
}

json_t *e2b_sandbox_json(struct api_call *call, const struct sandbox *s)
{
    json_t *out = json_object();
    char token[CORE_TOKEN_SIZE + 1], traffic[CORE_TOKEN_SIZE + 1];

    set_template(call, out, s);
    json_object_set_new(out, "sandboxID", json_string(s->id));
    json_object_set_new(out, "clientID", json_string(CLIENT_ID));
    json_object_set_new(out, "envdVersion", json_string(API_ENVD_VERSION));
    set_agent_token(call, out, s);
    if (ingress_is_public(s->network)) {
        json_object_set_new(out, "trafficAccessToken", json_null());
    } else {
        core_sandbox_token(call->core, s->id, token);
        ingress_traffic_token(token, traffic);
        json_object_set_new(out, "trafficAccessToken", json_string(traffic));
    }
    json_object_set_new(out, "domain", domain_json(call));
    return out;
}

const char *e2b_state_name(enum sandbox_state state)
{
    return life_of(state)->group == LIFE_GROUP_PAUSED ? "paused" : "running";
}

/* In the words of a create. */
static json_t *volume_mounts(const struct sandbox *s)
{
    json_t *all = json_array(), *m;
    size_t i;

    json_array_foreach (s->volumes, i, m)
        if (json_object_get(m, "volume"))
            json_array_append_new(all,
                                  json_pack("{s:O, s:O, s:O}", "name", json_object_get(m, "name"),
                                            "path", json_object_get(m, "path"), "readOnly",
                                            json_object_get(m, "readOnly")));
    return all;
}

/* The earlier of its end and of the time at which it ends in any state, where it has one. */
static int64_t shown_end_ms(const struct sandbox *s)
{
    return s->destroy_real_ms ? MIN(s->end_real_ms, s->destroy_real_ms) : s->end_real_ms;
}

json_t *e2b_listed_json(struct api_call *call, const struct sandbox *s)
{
    json_t *out = json_object();
    const struct privsep_limits *l = &s->limits;

    set_template(call, out, s);
    json_object_set_new(out, "sandboxID", json_string(s->id));
    json_object_set_new(out, "clientID", json_string(CLIENT_ID));
    json_object_set_new(out, "startedAt", api_json_time(s->started_real_ms));
    json_object_set_new(out, "endAt", api_json_time(shown_end_ms(s)));
    json_object_set_new(out, "cpuCount", json_integer(MAX(1, (l->cpu_milli + 999) / 1000)));
    json_object_set_new(out, "memoryMB", json_integer((json_int_t)(l->memory_bytes / MIB)));
    json_object_set_new(out, "diskSizeMB", json_integer((json_int_t)(l->disk_bytes / MIB)));
    json_object_set_new(out, "state", json_string(e2b_state_name(s->state)));
    json_object_set_new(out, "envdVersion", json_string(API_ENVD_VERSION));
    json_object_set_new(out, "metadata", s->metadata ? json_deep_copy(s->metadata) : json_object());
    json_object_set_new(out, "volumeMounts", volume_mounts(s));
    if (s->pause_reason) { /* not E2B's: why it is paused, and what of it is kept */
        json_object_set_new(out, "reason", json_string(core_pause_reason_name(s->pause_reason)));
        json_object_set_new(out, "tier", json_string(core_pause_tier_name(s)));
    }
    if (core_sandbox_fell(s)[0]) /* not E2B's */
        json_object_set_new(out, "memoryError", json_string(core_sandbox_fell(s)));
    if (s->name[0]) /* not E2B's: Daytona's clients give names */
        json_object_set_new(out, "name", json_string(s->name));
    return out;
}

json_t *e2b_detail_json(struct api_call *call, const struct sandbox *s)
{
    json_t *out = e2b_listed_json(call, s), *network = e2b_network_shown(network_shown(s->network));
    json_t *internet = json_object_get(network_shown(s->network), E2B_INTERNET_KEY);
    const char *on_timeout = s->on_timeout == SANDBOX_ON_TIMEOUT_PAUSE ? "pause" : "kill";

    set_agent_token(call, out, s);
    json_object_set_new(out, "allowInternetAccess", internet ? json_incref(internet) : json_null());
    json_object_set_new(out, "domain", domain_json(call));
    if (network)
        json_object_set_new(out, "network", network);
    json_object_set_new(
        out, "lifecycle",
        json_pack("{s:b, s:s}", "autoResume", s->auto_resume, "onTimeout", on_timeout));
    return out;
}

void e2b_no_sandbox(struct api_call *call, const char *id)
{
    api_fail(call, 404, "Sandbox \"%s\" doesn't exist or you don't have access to it", id);
}

void e2b_fail(struct api_call *call, const struct err *why)
{
    if (why->code == ERR_NOT_FOUND)
        e2b_no_sandbox(call, call->params[0]);
    else
        api_fail_err(call, why);
}

void e2b_reply(struct api_call *call, int status, json_t *out, const struct err *why)
{
    if (!why) {
        api_reply_json(call, status, out);
        return;
    }
    json_decref(out);
    e2b_fail(call, why);
}

void e2b_sandbox_done(void *arg, const struct sandbox *s, const struct err *why)
{
    struct api_call *call = arg;

    if (!why)
        api_reply_empty(call, 204);
    else
        e2b_fail(call, why);
}
