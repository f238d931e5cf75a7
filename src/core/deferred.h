#pragma once
/* Work for the next turn of core's loop: answers that must not be given from inside the call that
 * they answer. core_free gives what is still waiting. */

#include "core/core.h"

/* A part of what the caller works on (struct ..., `later`), so that to defer needs no memory. It is
 * in no list any more when fn is called, which may free it or defer it again. */
struct deferred {
    struct deferred *next;
    void (*fn)(void *arg);
    void *arg;
};

/* c->loop is set. */
void deferred_init(struct core *c);

/* The core stops: runs all that was deferred, and all that this defers, now. */
void deferred_run_all(struct core *c);

/* fn(arg) in the next turn of the loop, or from core_free. d is not deferred already. */
void core_defer(struct core *c, struct deferred *d, void (*fn)(void *arg), void *arg);

/* Answers a core_sandbox_cb in the next turn with an error. */
void core_defer_error(struct core *c, core_sandbox_cb done, void *arg, const struct err *why);

/* The same for a core_done_cb. */
void core_defer_refusal(struct core *c, core_done_cb done, void *arg, const struct err *why);

/* A handle that core_free counted is closed. */
void core_handle_closed(struct core *c);

/* ERR_UNAVAILABLE with what to do, when requests cannot be served. */
enum err_code core_check_ready(const struct core *c, struct err *e);
