#pragma once
/* Snapshots that Daytona's clients make of images: builds of templates (core/build.h) by another
 * name. */

#include "api/daytona.h"
#include "core/build.h"

extern const struct api_route daytona_image_routes[];

/* The answer of build-logs-url. daytona_image.c */
void daytona_build_logs_url(struct api_call *call, const struct build *b);

/* -- daytona_snapshot.c ------------------------------------------------------------------------ */

/* A build as the snapshot that it becomes: a new reference; NULL: memory is out. */
json_t *daytona_build_json(struct api_call *call, const struct build *b);

/* The state of the snapshot that it becomes. */
const char *daytona_build_state(const struct build *b);

/* The build that a snapshot's id or name means: the one that a create would take, or the newest.
 * NULL: there is none. */
const struct build *daytona_build_find(struct api_call *call, const char *name);

/* A snapshot or template that a create can name has that name already. */
bool daytona_snapshot_is_taken(struct api_call *call, const char *name);

void daytona_no_snapshot(struct api_call *call);

/* "cpu", "memory" and "disk" of a body: no more than most has, 0 where nothing is said.
 * ERR_INVALID. daytona_create.c */
enum err_code daytona_resources_read(const json_t *body, const struct privsep_limits *most,
                                     struct privsep_limits *out, struct err *e);
