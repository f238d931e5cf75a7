#pragma once
/* A create of a snapshot that has memory (snapshot_memory.h): may it begin with that, and what is
 * done where it cannot. Its programs go on then where those of the sandbox stood that the memory is
 * of. A create that cannot have it begins with the files, and that is told. */

#include "core/core.h"

struct privsep_msg;
struct sandbox_obj;
struct snapshot;

/* Whether o, which is made for r of the snapshot, begins with its memory; the reason is o->fell
 * where it does not. */
bool create_memory_fits(struct sandbox_obj *o, const struct sandbox_request *r,
                        const struct snapshot *s);

/* privd has refused the memory (m: its answer). The snapshot of whose files alone it is to be made;
 * NULL: it had none of a snapshot, or that is gone. */
const struct snapshot *create_memory_refused(struct sandbox_obj *o, int status,
                                             const struct privsep_msg *m);
