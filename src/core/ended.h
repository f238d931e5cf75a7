#pragma once
/* Why sandboxes have ended, for their tenant: written with the step to ENDING, so that a cayd that
 * is killed in the middle of an end tells its reason afterwards. The last ENDED_OF_A_TENANT of a
 * tenant, for ENDED_LIFE_MS.
 *
 * Control loop only. */

#include "core/core.h"

#define ENDED_OF_A_TENANT 256                      /* the oldest is forgotten for one more */
#define ENDED_LIFE_MS     (7LL * 24 * 3600 * 1000) /* then it is forgotten */

struct core_ended {
    const char *id, *template_id;
    const char *reason; /* a word of docs/events.md */
    int64_t started_real_ms, ended_real_ms;
};

/* -- for api ----------------------------------------------------------------------------------- */

/* Calls fn for the tenant's, the newest first, limit at most. */
enum err_code core_ended_each(struct core *c, const char *tenant, size_t limit,
                              void (*fn)(void *arg, const struct core_ended *one), void *arg,
                              struct err *e);

/* Sets e to why there is no sandbox of that id: ERR_NOT_FOUND, with the reason and time of its end
 * where it was one of the tenant's (NULL: not asked for). Another tenant's has the text of none. */
enum err_code core_sandbox_absent(struct core *c, const char *tenant, const char *id,
                                  struct err *e);

/* -- for core ---------------------------------------------------------------------------------- */

struct sandbox_obj;

/* Once for a sandbox that a client may know of; the reason is o->end_reason. */
void ended_write(struct sandbox_obj *o);

/* Of one that was ending when this cayd started: the reason that was written then. */
void ended_take_up(struct sandbox_obj *o);
