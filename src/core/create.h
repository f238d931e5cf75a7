#pragma once
/* A create under way: CREATE to privd, then its agent's /init. It fails as a whole. */

#include "core/core.h"

struct sandbox_obj;

/* Sends CREATE for o, on what is kept by that number (0: on nothing): its own files, or, where
 * snapshot is not NULL, a copy of that snapshot's. The sequence number or -errno. */
int64_t create_send(struct sandbox_obj *o, uint32_t template_number, uint32_t kept,
                    const char *snapshot);

/* The body of /init: a new object; output_bytes: of its commands, in a second. NULL: memory is
 * out. */
json_t *create_init_body(const struct sandbox_obj *o, json_t *env, uint64_t output_bytes);

/* "limits" of a request to an agent: a new object. NULL: memory is out. */
json_t *create_limits(const struct privsep_limits *l);

/* The text of it for o, with the sandbox's own variables and what else its agent has to know:
 * malloc'd; NULL: memory is out. */
char *create_make_init(struct sandbox_obj *o);

/* A CREATE that waited (o->held) is sent, or refused for a reason. */
void create_send_held(struct sandbox_obj *o);
void create_held_refused(struct sandbox_obj *o, const struct err *why);

/* The deadline of a create has passed. */
void create_on_deadline(struct sandbox_obj *o);
