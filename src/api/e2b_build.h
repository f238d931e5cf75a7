#pragma once
/* Templates that a tenant builds by E2B's SDKs, for the tables of e2b_template.c. */

#include "api/api.h"
#include "core/build.h"
#include "core/publish.h"

/* The server's own templates have no builds with ids: the nil UUID says so in the form that clients
 * expect. */
#define E2B_NO_BUILD "00000000-0000-0000-0000-000000000000"

void e2b_build_request(struct api_call *call); /* POST /v3/templates */
void e2b_build_start(struct api_call *call);   /* POST /v2/templates/{id}/builds/{build} */
void e2b_build_status(struct api_call *call);
void e2b_build_files(struct api_call *call);  /* GET /templates/{id}/files/{hash} */
void e2b_build_upload(struct api_call *call); /* PUT, what cayd/upload.h did not take */
void e2b_tags_add(struct api_call *call);
void e2b_tags_drop(struct api_call *call);
void e2b_tags_list(struct api_call *call);

/* As in the list of templates. */
json_t *e2b_build_template_json(struct api_call *call, const struct build *b);
json_t *e2b_build_public_json(struct api_call *call, const struct core_public_template *t);

/* The tenant's templates and those that are published, one entry each, added to out. */
void e2b_build_list(struct api_call *call, json_t *out);

/* By id or name, whatever came of it; NULL: there is none. */
const struct build *e2b_build_of(struct api_call *call, const char *name);

/* {"builds": [...]} of a template, added to out. */
void e2b_build_add_all(struct api_call *call, const char *template_id, json_t *out);
