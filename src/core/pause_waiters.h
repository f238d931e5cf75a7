#pragma once
/* Those who wait for a sandbox to be paused, or to run: lists of its sandbox_obj (pausers,
 * resumers), in the order of coming. */

#include "core/core.h"

struct pause_waiter;
struct sandbox_obj;

void pause_waiters_add(struct core *c, struct pause_waiter **list, core_sandbox_cb done, void *arg);

/* Each is told, now, and the list is empty. why NULL: it is so. */
void pause_waiters_notify(struct sandbox_obj *o, struct pause_waiter **list, const struct err *why);

/* The same in the next turn: the caller may be inside a loop over sandboxes. */
void pause_waiters_fail_later(struct sandbox_obj *o, struct pause_waiter **list,
                              const struct err *why);

/* It is not to boot anew any more. */
void pause_forget_reboot(struct sandbox_obj *o);

/* The wishes of callers that resume it are dropped: they do not hold for the next resume. */
void pause_forget_wishes(struct sandbox_obj *o);

/* It ends, or the server does: those who wait are told why not. */
void pause_fail(struct sandbox_obj *o, const struct err *why);
