#pragma once
/* A sandbox that is ended at a time that its owner has set, in any state: also one that is stopped,
 * paused or archived then. It has its end (core_sandbox_set_ttl, its idle time) beside that, and
 * the first of them counts. */

#include "core/core.h"
#include "core/timers.h"

struct sandbox_obj;

/* From now on it is ended after_ms later. 0: not by that any more. ERR_INVALID below 0 or beyond
 * CORE_AUTO_DELETE_MAX_MS. Written through. */
enum err_code core_sandbox_set_auto_destroy(struct core *c, const char *tenant, const char *id,
                                            int64_t after_ms, const struct sandbox **out,
                                            struct err *e);

/* (Re-)arms its timer from destroy_real_ms. */
void auto_destroy_arm(struct sandbox_obj *o);
void auto_destroy_on_timer(struct timer *t);
