#pragma once
/* Work for the next turn of core's loop: answers that must not be given from inside the call that
 * they answer. core_free gives what is still waiting. */

#include "core/core.h"

struct deferred {
    struct deferred *next;
    void (*fn)(void *arg);
    void *arg;
};

/* c->loop is set. */
void deferred_init(struct core *c);

/* The core stops: now, what was deferred and what that defers. */
void deferred_run_all(struct core *c);

/* fn(arg) in the next turn of the loop, or from core_free. */
void core_defer(struct core *c, void (*fn)(void *arg), void *arg);

/* Answers a core_sandbox_cb in the next turn with an error. */
void core_defer_error(struct core *c, core_sandbox_cb done, void *arg, const struct err *why);

/* One of the handles that core_free counted is closed. */
void core_handle_closed(struct core *c);

/* ERR_UNAVAILABLE with what to do, when requests cannot be served. */
enum err_code core_check_ready(const struct core *c, struct err *e);
