#pragma once
/* A sandbox_obj from a request or from a row of the store, and its end. */

#include "core/core.h"

struct sandbox_obj;

/* The requested limits, and d's where none is requested (0). */
struct privsep_limits sandbox_limits_or(const struct privsep_limits *requested,
                                        const struct privsep_limits *d);

/* The limits that it gets: no field is 0. */
struct privsep_limits sandbox_limits(const struct core *c, const struct sandbox_request *r,
                                     const struct template_info *requested);

/* Makes one from a request (checked, defaults filled in) and puts it into the registry,
 * CREATING. */
enum err_code sandbox_make(struct core *c, const struct sandbox_request *r,
                           const struct template_info *requested, const struct template_info *used,
                           struct sandbox_obj **out, struct err *e);

/* Makes one from a row of the store; takes over the references in s. NULL: memory is out. */
struct sandbox_obj *sandbox_adopt(struct core *c, const struct sandbox *s);

/* Takes it out of everything and frees it. Nothing may wait for it any more. */
void sandbox_free(struct sandbox_obj *o);
