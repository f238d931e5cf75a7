#pragma once
/* The variables of a sandbox that runs. Its agent alone has them; programs that are started from
 * then on have what was changed, those that run do not. They stay over pauses and restarts, and its
 * forks have them. */

#include "core/core.h"

/* Sets `set` ({"NAME": "value"}) after `unset` (an array of names) was taken away; both may be
 * NULL. The variables that say which sandbox it is stay. The agent makes each change in one step,
 * so that of two at once none is lost. done when the agent has them; ERR_NOT_FOUND, ERR_CONFLICT:
 * it does not run, or began before agents had this; ERR_EXHAUSTED; ERR_INVALID: there would be too
 * many; ERR_UNAVAILABLE. */
void core_sandbox_change_env(struct core *c, const char *tenant, const char *id, json_t *set,
                             json_t *unset, core_done_cb done, void *arg);
