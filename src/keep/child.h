#pragma once
/* A daemon that keep starts, and starts again when it has ended. */

#include "base/util.h"
#include "contract/keep.h"

#include <stdbool.h>
#include <sys/types.h>

#define CHILD_FILES 2

struct child {
    const char *name;
    char **argv;   /* argv[0] is the binary's path */
    int listen_fd; /* becomes KEEP_LISTEN_FD; -1: none */
    int second_fd; /* becomes KEEP_SECOND_FD; -1: none */
    /* Opened anew at each start, before privileges are given up; become KEEP_FILES_FD and those
     * after it. NULL: none. */
    const char *files[CHILD_FILES];
    bool unprivileged; /* runs as uid, gid, without capabilities */
    uid_t uid;
    gid_t gid;

    pid_t pid;    /* 0: does not run */
    int ready_fd; /* reading end; -1: it has said what it had to say */
    bool ready;
    bool was_ever_ready;
    bool expected;                      /* its next end was asked for */
    uint64_t started_ms, restart_at_ms; /* monotonic; the second 0: not planned */
    unsigned failures;                  /* in a row */
    char reason[KEEP_REASON_MAX];       /* its reason when it failed, or "" */
};

/* Starts it. 0 or -errno (no process was made). */
int child_start(struct child *c);

/* Would it start with the files as they are now? Runs the program with --check, which reads them
 * and ends; at once 0 for a child without files. 0, or -EINVAL and why. Blocks until then, 10 s at
 * most. */
int child_check(const struct child *c, char why[static KEEP_REASON_MAX]);

/* Reads what it says on its readiness pipe. */
void child_read_ready(struct child *c);

/* It has ended with this status of waitpid(2): logs it, plans the next start (at once when the end
 * was asked for, else later and later, up to 10 s). */
void child_ended(struct child *c, int status);

/* Sends a signal, if it runs. expected: its end is not a failure. */
void child_signal(struct child *c, int signal, bool expected);
