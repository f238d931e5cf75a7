#pragma once
/* Sandboxes that a create asked for with an image (buildInfo): core builds a template of it, or
 * finds the one that an earlier create had made (core/build_of_create.h), and the sandbox is there
 * when that is (core/create_later.h). Until then its id shows a record, in state pending_build (the
 * create's own answer), building_snapshot, creating, build_failed or error. */

#include "api/daytona_image.h"
#include "core/build_of_create.h"
#include "core/create_later.h"

/* "buildInfo" of a create, which leaves the body: its steps and its hash. spec: for
 * build_spec_free or core_build_of_create. ERR_INVALID; ERR_UNIMPLEMENTED. */
enum err_code daytona_build_info_take(json_t *body, struct build_spec *spec,
                                      uint8_t hash[static CORE_IMAGE_HASH_SIZE], struct err *e);

/* A new reference; NULL: memory is out. */
json_t *daytona_later_json(struct api_call *call, const struct core_create_later *l, bool item);

/* Of the path's first part; NULL: there is none. */
const struct core_create_later *daytona_later_find(struct api_call *call);

/* The call is answered: a sandbox whose image is being built cannot be changed, or is gone. */
void daytona_later_refuse(struct api_call *call, const struct core_create_later *l);
void daytona_later_remove(struct api_call *call, const struct core_create_later *l);

/* Those with these labels are added to items: how many. */
size_t daytona_later_list(struct api_call *call, const json_t *labels, bool item, json_t *items);

/* GET /api/sandbox/{id}/build-logs-url */
void daytona_sandbox_logs_url(struct api_call *call);
