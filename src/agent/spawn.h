#pragma once
/* Starts one program in the sandbox: from cay-init's credentials to the user's, and no further.
 *
 * What the child may never take along: a descriptor but 0 to 2, a capability beyond the bounding set
 * of the template, a blocked or ignored signal, cay-init's cgroup.
 *
 * Nothing waits for the child: its own cgroup may be frozen or out of memory, its user may stop it
 * before it has called exec, and a cold disk takes its time. How it went comes through a pipe. */

#include "agent/agent.h"

#define SPAWN_CANDIDATES_MAX 64

/* Where a start failed. */
enum spawn_step { SPAWN_CGROUP, SPAWN_SETUP, SPAWN_CREDENTIALS, SPAWN_CWD, SPAWN_EXEC };

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

/* Forks the child, which will be in a session of its own. 0 with *pid (as seen inside) and *status_fd,
 * which becomes readable when it is known how it went, or -errno of the fork. What r points to may go
 * after it. */
int spawn_begin(const struct agent_spawn *s, const struct spawn_request *r, pid_t *pid,
                int *status_fd);

/* 1: not known yet. 0: the program runs, or was killed before it could. -errno with *why: it does not,
 * and the child is gone or going. Never blocks. */
int spawn_result(int status_fd, struct spawn_failure *why);
