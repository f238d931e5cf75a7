#pragma once
/* Why a command of a session was killed, where that was the memory limit. Its shell knows only that
 * it was (137): the number of the sandbox's processes that were killed so far stands in the
 * command's folder from its start (SESSION_KILLS), and is compared with the agent's. The sandbox
 * may write anything there: it changes what its owner is told of itself, and nothing else. */

#include <stdint.h>

struct toolbox_call;

#define SESSION_KILLS  "kills"
#define SESSION_KILLED 137

/* The number now, for a command that is to start; 0 where it is not to be had. done is called
 * once, perhaps from inside; not after the client went. */
void session_oom_count(struct toolbox_call *c, void (*done)(void *arg, uint64_t kills), void *arg);

/* Of a command (folder: "SESSION/COMMAND") whose status is SESSION_KILLED. done as above; text:
 * "out of memory: ...", or NULL. */
void session_oom_check(struct toolbox_call *c, const char *folder,
                       void (*done)(void *arg, const char *text), void *arg);
