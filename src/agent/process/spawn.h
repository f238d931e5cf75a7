#pragma once
/* Starts one program in the sandbox: from cay-init's credentials to the user's, and no further.
 *
 * With a terminal the program leads a session of its own. Without one it leads neither a session
 * nor a process group: setsid(1) forks when its caller leads a group and answers 0 at once, so that
 * a client would lose the exit status of "setsid CMD" (E2B's envd starts commands so, too). It
 * still has a group that no other command is in: "kill 0" ends the command and not its neighbours.
 *
 * Each command has a number, which stands in RLIMIT_LOCKS of the program: a limit that Linux has
 * not enforced since 2.4.25 (getrlimit(2)), that every descendant inherits across fork and exec,
 * and that none can raise again. So all that a command started is found when it is killed
 * (proc_signal.c). A program that lowers the limit of its own accord is no longer found: that harms
 * its owner alone.
 *
 * The child never takes along a descriptor but 0 to 2, a capability beyond the bounding set of the
 * template, a blocked or ignored signal, cay-init's cgroup.
 *
 * Nothing waits for the child: its own cgroup may be frozen or out of memory, its user may stop it
 * before it has called exec, and a cold disk takes its time. How it went comes through a pipe. */

#include "agent/common/agent.h"

#define SPAWN_CANDIDATES_MAX 64

/* Where a start failed. */
enum spawn_step { SPAWN_CGROUP, SPAWN_SETUP, SPAWN_CREDENTIALS, SPAWN_CWD, SPAWN_EXEC };

struct spawn_request {
    const struct user *user;
    const char *cwd;               /* absolute */
    char *const *argv;             /* ends with NULL */
    char *const *sh_argv;          /* the same with "/bin/sh" and a free second place in front */
    char *const *env;              /* ends with NULL */
    const char *const *candidates; /* paths to execute: the first that can be; ends with NULL */
    int fds[3];                    /* become 0, 1, 2; stay the caller's */
    bool terminal;                 /* fds[0] is the terminal that the new session gets */
    uint64_t command;              /* the command's number, not 0 */
};

struct spawned {
    pid_t pid;   /* as seen inside */
    pid_t group; /* its process group */
    uint64_t command;
    int status_fd; /* becomes readable when it is known how it went; the caller's */
};

struct spawn_failure {
    enum spawn_step step;
    int err; /* errno, positive */
};

/* Forks the child. 0 with *child, or -errno of the fork. The data that r points to may be freed
 * after it. */
int spawn_begin(const struct agent_spawn *s, const struct spawn_request *r, struct spawned *child);

/* 1: not known yet. 0: the program runs, or was killed before it could. -errno with *why: it does
 * not, and the child is gone or going. Never blocks. */
int spawn_result(int status_fd, struct spawn_failure *why);
