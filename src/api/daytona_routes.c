/* Daytona's table of routes, and the form of its errors. */
#include "api/daytona_image.h"
#include "api/daytona_later.h"
#include "base/clock.h"
#include "http/message.h"

static json_t *error(struct api_call *call, int status, const char *message, const char *hint)
{
    char now[CLOCK_RFC3339_SIZE];
    json_t *body = json_object();

    clock_format_rfc3339(clock_real_ms(), now);
    json_object_set_new(body, "path", api_json_text(call->request->path));
    json_object_set_new(body, "timestamp", json_string(now));
    json_object_set_new(body, "statusCode", json_integer(status));
    json_object_set_new(body, "error", json_string(http_status_text(status)));
    json_object_set_new(body, "message", api_json_text(message));
    return body;
}

static const struct api_route routes[] = {
    {API_WRITE, "POST", "/api/sandbox", daytona_sandbox_create},
    {API_READ, "GET", "/api/sandbox", daytona_sandbox_list},
    {API_READ, "GET", "/api/sandbox/paginated", daytona_sandbox_paginated},
    {API_READ, "GET", "/api/sandbox/{id}", daytona_get},
    {API_WRITE, "DELETE", "/api/sandbox/{id}", daytona_remove},
    {API_WRITE, "POST", "/api/sandbox/{id}/start", daytona_start},
    {API_WRITE, "POST", "/api/sandbox/{id}/stop", daytona_stop},
    {API_WRITE, "POST", "/api/sandbox/{id}/pause", daytona_pause},
    {API_WRITE, "POST", "/api/sandbox/{id}/archive", daytona_archive},
    {API_WRITE, "POST", "/api/sandbox/{id}/network-settings", daytona_set_network,
     .body_max = API_POLICY_MAX_BYTES},
    {API_WRITE, "PUT", "/api/sandbox/{id}/secrets", daytona_set_secrets},
    {API_WRITE, "*", "/api/sandbox/{id}/secrets", api_unsupported,
     "reading a sandbox's secrets with their values (they are sealed, and put on requests outside "
     "of it)"},
    {API_WRITE, "POST", "/api/sandbox/{id}/autostop/{interval}", daytona_set_auto_stop},
    {API_WRITE, "POST", "/api/sandbox/{id}/autopause/{interval}", daytona_set_auto_pause},
    {API_WRITE, "POST", "/api/sandbox/{id}/autoarchive/{interval}", daytona_set_auto_archive},
    {API_WRITE, "POST", "/api/sandbox/{id}/autodelete/{interval}", daytona_set_auto_delete},
    {API_WRITE, "POST", "/api/sandbox/{id}/ttl/{interval}", daytona_set_ttl},
    {API_WRITE, "PUT", "/api/sandbox/{id}/labels", daytona_set_labels},
    {API_WRITE, "POST", "/api/sandbox/{id}/last-activity", daytona_activity},
    {API_READ, "GET", "/api/sandbox/{id}/toolbox-proxy-url", daytona_toolbox_url},
    {API_WRITE, "GET", "/api/sandbox/{id}/ports/{port}/preview-url", daytona_preview_url},
    {API_WRITE, "GET", "/api/sandbox/{id}/ports/{port}/signed-preview-url",
     daytona_signed_preview_url},
    {API_WRITE, "GET", "/api/sandbox/{id}/signing-key", daytona_signing_key},
    {API_WRITE, "POST", "/api/sandbox/{id}/signing-key/rotate", daytona_replace_signing_key},
    {API_READ, "GET", "/api/sandbox/{id}/telemetry/metrics", daytona_metrics},
    {API_READ, "GET", "/api/sandbox/{id}/build-logs-url", daytona_sandbox_logs_url},
    {API_READ, "GET", "/api/config", daytona_config},
    {API_READ, "GET", DAYTONA_EVENTS_PATH, daytona_events},
    {API_WRITE, "POST", "/api/sandbox/{id}/ports/{port}/signed-preview-url/{token}/expire",
     daytona_end_signed},
    {API_WRITE, "POST", "/api/sandbox/{id}/public/{flag}", daytona_set_public},
    {API_WRITE, "POST", "/api/sandbox/{id}/recover", daytona_recover},
    {API_WRITE, "POST", "/api/sandbox/{id}/backup", daytona_backup},
    {API_WRITE, "*", "/api/sandbox/{id}/ssh-access", api_unsupported,
     "access by SSH: there is no SSH server in front of sandboxes (use a terminal of the SDK, `cay "
     "exec -t`, or an SSH server of the sandbox's own behind a port)"},
    {API_WRITE, "POST", "/api/sandbox/{id}/resize", daytona_resize},
    {API_WRITE, "*", "/api/snapshots*", api_unsupported,
     "switching snapshots off (each is on as long as it is there: delete it)"},
    {API_WRITE, "GET", "/api/object-storage/push-access", daytona_push_access},
    {API_WRITE, "*", "/api/object-storage/*", api_unsupported,
     "this call of the storage for local files of images (there is push-access)"},
    {API_WRITE, "*", "/api/*", api_unsupported,
     "this call of Daytona's API (there are those of sandboxes, snapshots, volumes, secrets and "
     "the "
     "toolbox: docs/compatibility.md has them all)"},
    {0},
};

static const struct api_route *const tables[] = {daytona_volume_routes,
                                                 daytona_snapshot_routes,
                                                 daytona_fork_routes,
                                                 daytona_image_routes,
                                                 daytona_secret_routes,
                                                 routes,
                                                 NULL};

const struct api_dialect daytona_dialect = {DAYTONA_PREFIX, tables, error};
