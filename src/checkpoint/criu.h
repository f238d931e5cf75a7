#pragma once
/* CRIU as a child, with a deadline. */

#include "checkpoint/checkpoint.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define CRIU_DUMP_LOG    "dump.log"
#define CRIU_RESTORE_LOG "restore.log"
#define CRIU_SAYS        "CRIU: " /* before a line of its log */
/* The beginning of a line of a dump's: its action script refuses it, or was ended. */
#define CRIU_SCRIPT_FAILED "Error (criu/action-scripts.c"

/* Words that a dump and a restore of the same image have to have in common: no right on the host is
 * asked for; a file is known by its size, as a build id is read from the file, and cay-init's may
 * not be read. */
#define CRIU_OPTIONS_OF_BOTH                                                             \
    "--unprivileged", "--images-dir", CHECKPOINT_SELF_DIR, "-v1", "--tcp-established",   \
        "--file-locks", "--ext-unix-sk", "--manage-cgroups=ignore", "--file-validation", \
        "filesize"

/* Of cay's changes: CRIU asks at its steps, over a socket, instead of starting a program. */
#define CRIU_STEPS_FD 10 /* in CRIU, above CHECKPOINT_LAST_FD */

struct criu_limits {
    unsigned seconds; /* then CRIU is killed, and what becomes of the sandbox is not known */
    /* The most that one file of the image may have. 0: what CRIU starts keeps its limits, as the
     * processes of a sandbox do, which could not raise them again. */
    uint64_t file_bytes;
    /* Asked again and again: where CRIU will not come to an end by itself it is ended. NULL: it
     * always does. */
    bool (*has_failed)(void);
    /* A restore's: its part in a step of CRIU's, with the number of PID 1. 0: CRIU goes on; -EIO:
     * it is refused, and ends by itself; -ECANCELED: it does not. NULL: there is none. */
    int (*step)(const char *name, pid_t pid);
    const char *log; /* the file of beside_fd in which it says what went wrong */
    int beside_fd;   /* the directory of what it writes beside the image */
};

extern const char *const criu_environment[];

/* In a line of its log that is shown to a tenant: numbers of processes, which are the host's,
 * become "?". The source file's name and line at its beginning stay. */
void criu_hide_numbers(char *text);

/* The line of a log, as far as its end, that says what went wrong: the last, but the first of a
 * restore, where each caller adds one, and that of an action script. NULL: there is none. */
const char *criu_cause(const char *log, bool is_restore);

/* Whether a line of a restore's from that byte on tells of an error. */
bool criu_log_has_error(size_t from);

/* Runs it to its end. 0: it says that all went well. -ETIMEDOUT; -errno with *why. */
int criu_run(char *const *argv, const struct criu_limits *limits, struct checkpoint_why *why);

/* Removes what a dump leaves in the image's directory that is not the image. */
void criu_remove_beside(void);
