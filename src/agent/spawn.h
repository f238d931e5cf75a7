#pragma once
/* Starts one program in the sandbox: from cay-init's credentials to the user's, and no further.
 *
 * What the child may never take along: a descriptor but 0 to 2, a capability beyond the bounding set
 * of the template, a blocked or ignored signal, cay-init's cgroup. Blocks until the child has called
 * exec (vfork): some hundred microseconds. */

#include "agent/agent.h"

#define SPAWN_CANDIDATES_MAX 64

/* Where a start failed. */
enum spawn_step { SPAWN_CGROUP, SPAWN_SETUP, SPAWN_CREDENTIALS, SPAWN_CWD, SPAWN_EXEC, SPAWN_FORK };

struct spawn_request {
    const struct user *user;
    const char *cwd;               /* absolute */
    char *const *argv;             /* ends with NULL */
    char *const *sh_argv;          /* the same with "/bin/sh" and a free second place in front */
    char *const *env;              /* ends with NULL */
    const char *const *candidates; /* what to execute: the first that can be; ends with NULL */
    int fds[3];                    /* become 0, 1, 2; stay the caller's */
    bool terminal;                 /* fds[0] is the terminal that the new session gets */
};

struct spawn_failure {
    enum spawn_step step;
    int err; /* errno, positive */
};

/* Starts it in a session of its own. 0 with *pid (as seen inside), or -errno with *why. */
int spawn_program(const struct agent_spawn *s, const struct spawn_request *r, pid_t *pid,
                  struct spawn_failure *why);
