#pragma once
/* Daytona's control plane below /api. All other paths there answer 501; requests to a sandbox
 * itself are src/toolbox's.
 *
 *   POST /api/sandbox                        a sandbox, at once in state "started"
 *   GET /api/sandbox?cursor&limit&labels     {"items": [...], "nextCursor": text or null}
 *   GET /api/sandbox/paginated?page&limit    {"items", "total", "page", "totalPages"}: of older
 *                                            clients
 *   GET, DELETE /api/sandbox/{id}
 *   POST /api/sandbox/{id}/network-settings  see daytona_network.h
 *   PUT /api/sandbox/{id}/secrets            see daytona_mount.h
 *   POST /api/sandbox/{id}/autostop/{minutes}, .../autopause/{minutes}, .../autodelete/{minutes},
 *       .../ttl/{minutes}, .../last-activity
 *   POST /api/sandbox/{id}/start, .../stop, .../pause, .../resize, .../recover, .../backup,
 *       .../public/{true or false}, .../ports/{port}/signed-preview-url/{token}/expire
 *   PUT /api/sandbox/{id}/labels
 *   GET /api/sandbox/{id}/toolbox-proxy-url, .../ports/{port}/preview-url,
 *       .../ports/{port}/signed-preview-url?expiresInSeconds, .../signing-key,
 *       .../telemetry/metrics
 *   POST /api/sandbox/{id}/signing-key/rotate
 *   POST /api/sandbox/{id}/fork; GET /api/sandbox/{id}/forks, .../parent, .../ancestors
 *   POST /api/sandbox/{id}/snapshot; GET /api/snapshots; GET, DELETE /api/snapshots/{id}
 *   POST /api/snapshots, /api/snapshots/{id}/activate; GET /api/snapshots/{id}/build-logs-url,
 *       .../build-logs?follow  see daytona_image.h
 *   GET /api/config
 *   GET /api/socket.io/                      see daytona_events.c
 *   GET, POST /api/secret; GET, PATCH, DELETE /api/secret/{id}; see daytona_secret.c
 *   GET, POST /api/volumes; GET, DELETE /api/volumes/{id}; GET /api/volumes/by-name/{name}
 *
 * {id} is an id or a name. A sandbox that is stopped, by call or for being idle, has its files
 * (core's SANDBOX_TIER_FILES); with autoDeleteInterval 0 it is gone then. With ttlMinutes it is
 * gone at that time, in any state.
 *
 * Sandboxes are the same for all dialects: one that was made by another is shown, changed and ended
 * here too. Labels are E2B's metadata; the last setting of a sandbox's way out is in force, from
 * either API.
 *
 * Sources: openapi-specs/api.json of github.com/daytona/clients at d94a128; what npm @daytonaio/sdk
 * 0.218.0 and PyPI daytona 0.226.1 send; daytonaio/daytona at b5a5d9e78 for errors and defaults. */

#include "api/api.h"
#include "api/mounts.h"

#define DAYTONA_PREFIX         "/api/"
#define DAYTONA_EVENTS_PATH    "/api/socket.io/"
#define DAYTONA_STORAGE_PATH   "/api/object-storage/s3" /* cayd/storage.h */
#define DAYTONA_STORAGE_BUCKET "builds"
#define DAYTONA_TARGET         "local" /* the one region that there is */
#define DAYTONA_SNAPSHOT       "base"  /* of a create that names none */
#define DAYTONA_MINUTE_MS      60000
#define DAYTONA_GIB            (1024ull * 1024u * 1024u)
#define DAYTONA_IDLE_DEFAULT_MINUTES \
    15                              /* autoStopInterval of one with neither that nor ttlMinutes */
#define DAYTONA_SIGNED_DEFAULT_S 60 /* a signed address, as upstream's */
#define DAYTONA_SIGNED_MAX_S     86400u
#define DAYTONA_PAGE_MAX         200
#define DAYTONA_PAGES_MAX        1000000
#define DAYTONA_LABELS_BYTES     16384u /* of a list's filter */

extern const struct api_dialect daytona_dialect; /* daytona_routes.c */

/* -- daytona.c --------------------------------------------------------------------------------- */

/* Daytona's name of a state, and of the state of a sandbox, which may be archived. */
const char *daytona_state_name(enum sandbox_state state);
const char *daytona_state(const struct sandbox *s);

/* A new reference; NULL: memory is out. An item of a list has no environment, which is how clients
 * tell. host: as the client has named this server. */
json_t *daytona_sandbox_json_of(struct core *core, const struct api *api, const char *host,
                                const struct sandbox *s, bool item);
json_t *daytona_sandbox_json(struct api_call *call, const struct sandbox *s, bool item);

void daytona_no_sandbox(struct api_call *call);

/* ERR_INVALID: so many cores or GiB are beyond what the operator gives a sandbox. */
enum err_code daytona_too_much(const char *name, int64_t n, uint64_t unit, uint64_t most,
                               struct err *e);

/* A new reference: n in whole units, as clients insist on; a part of one counts as one. */
json_t *daytona_whole(uint64_t n, uint64_t unit);

/* The sandbox of the path's first part; it counts as used, where the key may write. NULL: the call
 * was answered. daytona_find.c */
const struct sandbox *daytona_find(struct api_call *call);

/* An autoStopInterval as what core takes; ERR_INVALID above the server's longest life. */
enum err_code daytona_idle_ms(struct api_call *call, int64_t minutes, int64_t *out, struct err *e);

/* An autoArchiveInterval as what core takes: 0, and any longer, is 30 days. */
int64_t daytona_archive_ms(int64_t minutes);

/* A core_sandbox_cb that answers with the sandbox; arg is the call. */
void daytona_sandbox_done(void *arg, const struct sandbox *s, const struct err *why);

/* -- daytona_volume.c -------------------------------------------------------------------------- */

extern const struct api_route daytona_volume_routes[];

/* "volumes" of a create, added to out. ERR_INVALID. */
enum err_code daytona_volumes_read(const json_t *body, struct mounts *out, struct err *e);

/* Those of a sandbox: a new array; NULL: memory is out. */
json_t *daytona_volumes_json(const struct sandbox *s);

/* -- daytona_secret.c -------------------------------------------------------------------------- */

extern const struct api_route daytona_secret_routes[];

/* -- daytona_fields.c -------------------------------------------------------------------------- */

/* "name" of a body; NULL: it has none. ERR_INVALID. */
enum err_code daytona_name_read(const json_t *body, const char **out, struct err *e);

/* -- daytona_snapshot.c ------------------------------------------------------------------------ */

extern const struct api_route daytona_snapshot_routes[];

/* -- daytona_fork.c ---------------------------------------------------------------------------- */

extern const struct api_route daytona_fork_routes[];

/* -- handlers ---------------------------------------------------------------------------------- */

void daytona_get(struct api_call *call);
void daytona_remove(struct api_call *call);
void daytona_set_network(struct api_call *call);
void daytona_set_secrets(struct api_call *call);
void daytona_sandbox_create(struct api_call *call);
void daytona_sandbox_list(struct api_call *call);
void daytona_sandbox_paginated(struct api_call *call);

void daytona_start(struct api_call *call);
void daytona_stop(struct api_call *call);
void daytona_pause(struct api_call *call);
void daytona_archive(struct api_call *call);
void daytona_resize(struct api_call *call);
void daytona_recover(struct api_call *call);
void daytona_backup(struct api_call *call);

/* Ends s and answers with what it was. */
void daytona_sandbox_delete(struct api_call *call, const struct sandbox *s);

void daytona_set_labels(struct api_call *call);
void daytona_set_auto_stop(struct api_call *call);
void daytona_set_auto_pause(struct api_call *call);
void daytona_set_auto_archive(struct api_call *call);
void daytona_set_auto_delete(struct api_call *call);
void daytona_set_ttl(struct api_call *call);
void daytona_activity(struct api_call *call);
void daytona_toolbox_url(struct api_call *call);
void daytona_preview_url(struct api_call *call);
void daytona_signed_preview_url(struct api_call *call);
void daytona_end_signed(struct api_call *call);
void daytona_set_public(struct api_call *call);
void daytona_signing_key(struct api_call *call);
void daytona_replace_signing_key(struct api_call *call);
void daytona_metrics(struct api_call *call);
void daytona_config(struct api_call *call);
void daytona_events(struct api_call *call);
void daytona_push_access(struct api_call *call);

/* A new reference: where the toolbox is, as the client has named this server. */
json_t *daytona_toolbox_address(const struct api_call *call);
