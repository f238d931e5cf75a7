/* The table of the routes of /cay/v1, and the handlers of status and health. The others have files
 * of their own (cay_v1_*.c). */

#include "api/cay_v1.h"

#include "api/e2b.h"
#include "api/openmetrics.h"
#include "base/clock.h"
#include "core/key.h"
#include "http/json.h"

#include <stdio.h>
#include <string.h>

/* -- status ------------------------------------------------------------------------------------ */

/* The operator's: it tells what all tenants ask for. */
static json_t *pool_json(const struct core_status *s)
{
    json_t *out = json_array();

    for (size_t i = 0; i < s->n_pool; i++) {
        const struct core_pool *p = &s->pool[i];

        if (p->template)
            json_array_append_new(
                out, json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "template", p->template, "ready",
                               (json_int_t)p->ready, "target", (json_int_t)p->target, "claims",
                               (json_int_t)p->claims, "misses", (json_int_t)p->misses, "refills",
                               (json_int_t)p->refills));
    }
    return out;
}

static void status_done(void *arg, const struct core_status *s)
{
    struct api_call *call = arg;
    int64_t up_s = (clock_real_ms() - s->started_real_ms) / 1000;
    bool operates = call->who.role == CORE_ROLE_OPERATOR;
    /* How many others have is nothing that a tenant is told. */
    size_t sandboxes = operates ? s->sandboxes
                                : core_tenant_sandboxes(call->core, call->who.tenant);
    json_t *out = json_object();

    json_object_set_new(out, "version", json_string(CAY_VERSION));
    json_object_set_new(out, "ready", json_boolean(s->ready));
    json_object_set_new(out, "privd", json_boolean(s->privd_up));
    json_object_set_new(out, "tenant", json_string(call->who.tenant));
    json_object_set_new(out, "operator", json_boolean(operates));
    json_object_set_new(out, "role", json_string(core_role_name(call->who.role)));
    json_object_set_new(out, "domain", json_string(api_config_of(call->api)->domain));
    json_object_set_new(out, "startedAt", api_json_time(s->started_real_ms));
    json_object_set_new(out, "uptimeSeconds", json_integer(MAX(0, up_s)));
    json_object_set_new(out, "sandboxes", json_integer((json_int_t)sandboxes));
    json_object_set_new(out, "slots",
                        json_pack("{s:I, s:I}", "max", (json_int_t)s->slots_max, "ready",
                                  (json_int_t)s->slots_ready));
    if (operates) {
        json_object_set_new(out, "pool", pool_json(s));
        json_object_set_new(
            out, "paused",
            json_pack("{s:I, s:I}", "frozen", (json_int_t)s->frozen, "kept", (json_int_t)s->kept));
    }
    json_object_set_new(out, "disk",
                        json_pack("{s:s, s:I, s:I}", "backend", s->disk_backend, "totalBytes",
                                  (json_int_t)s->disk_total_bytes, "freeBytes",
                                  (json_int_t)s->disk_free_bytes));
    api_reply_json(call, 200, out);
}

static void status(struct api_call *call)
{
    core_status(call->core, status_done, call);
}

static void health(struct api_call *call)
{
    if (core_is_ready(call->core))
        api_reply_json(call, 200, json_pack("{s:s}", "status", "ok"));
    else
        api_fail(call, 503, "cay-privd does not answer; no sandbox can be made or reached now");
}

/* -- the table --------------------------------------------------------------------------------- */

const struct api_route cay_v1_routes[] = {
    {API_OPEN, "GET", "/health", health},
    {API_OPERATE, "GET", "/metrics", api_openmetrics},
    {API_READ, "GET", "/cay/v1/status", status},
    {API_READ, "GET", "/cay/v1/templates", cay_v1_template_list},
    {API_OPERATE, "POST", "/cay/v1/templates/{name}/build", cay_v1_template_build},
    {API_OPERATE, "POST", "/cay/v1/templates/{name}/import", cay_v1_template_import},
    {API_OPERATE, "PUT", "/cay/v1/templates/{name}/limits", cay_v1_template_limits},
    {API_WRITE, "DELETE", "/cay/v1/templates/{name}", cay_v1_template_remove},
    {API_OPERATE, "GET", "/cay/v1/jobs/{job}", cay_v1_job_get},
    {API_READ, "GET", "/cay/v1/keys", cay_v1_key_list},
    {API_WRITE, "POST", "/cay/v1/keys", cay_v1_key_create},
    {API_WRITE, "DELETE", "/cay/v1/keys/{id}", cay_v1_key_revoke},
    {API_OPERATE, "GET", "/cay/v1/tenants", cay_v1_tenant_list},
    {API_READ, "GET", "/cay/v1/tenants/{tenant}/ceiling", cay_v1_ceiling_get},
    {API_OPERATE, "PUT", "/cay/v1/tenants/{tenant}/ceiling", cay_v1_ceiling_put,
     .body_max = API_POLICY_MAX_BYTES},
    {API_OPERATE, "DELETE", "/cay/v1/tenants/{tenant}/ceiling", cay_v1_ceiling_remove},
    {API_READ, "GET", "/cay/v1/tenants/{tenant}/quota", cay_v1_quota_get},
    {API_OPERATE, "PATCH", "/cay/v1/tenants/{tenant}/quota", cay_v1_quota_set},
    {API_READ, "GET", "/cay/v1/tenants/{tenant}/usage", cay_v1_usage_get},
    {API_WRITE, "POST", "/cay/v1/sandboxes", e2b_sandbox_create_cay},
    {API_READ, "GET", "/cay/v1/sandboxes/{id}", cay_v1_sandbox_get},
    {API_READ, "GET", "/cay/v1/ended", cay_v1_ended_list},
    {API_WRITE, "POST", "/cay/v1/sandboxes/{id}/pause", e2b_sandbox_pause_cay},
    {API_WRITE, "POST", "/cay/v1/sandboxes/{id}/resume", e2b_sandbox_resume_cay},
    {API_WRITE, "POST", "/cay/v1/sandboxes/{id}/archive", cay_v1_archive},
    {API_WRITE, "POST", "/cay/v1/sandboxes/{id}/rollback", cay_v1_rollback},
    {API_WRITE, "POST", "/cay/v1/sandboxes/{id}/resize", cay_v1_resize},
    {API_WRITE, "POST", "/cay/v1/snapshots/{id}/memory", cay_v1_snapshot_memory},
    {API_WRITE, "GET", "/cay/v1/snapshots/{id}/export", cay_v1_snapshot_export},
    {API_WRITE, "POST", "/cay/v1/snapshots/import", cay_v1_snapshot_import},
    {API_READ, "GET", "/cay/v1/sandboxes/{id}/policy", cay_v1_policy_get},
    {API_WRITE, "PUT", "/cay/v1/sandboxes/{id}/policy", cay_v1_policy_put,
     .body_max = API_POLICY_MAX_BYTES},
    {API_READ, "POST", "/cay/v1/sandboxes/{id}/policy/explain", cay_v1_policy_explain,
     .body_max = API_POLICY_MAX_BYTES},
    {API_READ, "POST", "/cay/v1/policies/check", cay_v1_policy_check,
     .body_max = API_POLICY_MAX_BYTES},
    {API_READ, "GET", "/cay/v1/sandboxes/{id}/denials", cay_v1_denials},
    {API_READ, "GET", "/cay/v1/sandboxes/{id}/asks", cay_v1_asks},
    {API_WRITE, "POST", "/cay/v1/sandboxes/{id}/asks/{ask}", cay_v1_ask_answer},
    {API_WRITE, "POST", "/cay/v1/sandboxes/{id}/exec", cay_v1_exec},
    {API_WRITE, "POST", "/cay/v1/secrets", cay_v1_secret_set},
    {API_READ, "GET", "/cay/v1/secrets", cay_v1_secret_list},
    {API_WRITE, "DELETE", "/cay/v1/secrets/{name}", cay_v1_secret_remove},
    {API_WRITE, "POST", "/cay/v1/volumes", cay_v1_volume_create},
    {API_READ, "GET", "/cay/v1/volumes", cay_v1_volume_list},
    {API_WRITE, "DELETE", "/cay/v1/volumes/{name}", cay_v1_volume_remove},
    {API_READ, "GET", "/cay/v1/events", cay_v1_events},
    {API_READ, "GET", "/cay/v1/webhooks", cay_v1_webhook_list},
    {API_WRITE, "POST", "/cay/v1/webhooks", cay_v1_webhook_create},
    {API_WRITE, "DELETE", "/cay/v1/webhooks/{id}", cay_v1_webhook_remove},
    {API_READ, "GET", "/cay/v1/webhooks/{id}/deliveries", cay_v1_webhook_deliveries},
    {API_WRITE, "POST", "/cay/v1/webhooks/{id}/ping", cay_v1_webhook_ping},
    {API_WRITE, "POST", "/cay/v1/webhooks/{id}/retry", cay_v1_webhook_retry},
    {API_READ, "GET", "/cay/v1/audit", cay_v1_audit},
    {API_OPERATE, "GET", "/cay/v1/audit/verify", cay_v1_audit_verify},
    {0},
};
