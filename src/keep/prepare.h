#pragma once
/* Makes, before anything is started, directories, the lock, the listener and the log. Each function
 * sets why to a sentence on failure. */

#include "keep/options.h"

#include <sys/types.h>

#define PREPARE_WHY_SIZE 512

struct prepared {
    uid_t uid; /* of cayd's user */
    gid_t gid;
    int pid_fd;  /* locked as long as it is open */
    int uids_fd; /* likewise, over the ranges of ids; -1: none */
    int listen_fd;
    int listen_second_fd; /* on ::1 beside 127.0.0.1; -1: none */
    uid_t egress_uid;     /* with egress_processes */
    gid_t egress_gid;
    int egress_fds[OPTIONS_EGRESS_MAX]; /* listeners for cayd's control channel to each */
    char pid_path[256];
};

/* 0, or an exit status of keep.h. */
int prepare_all(const struct options *o, struct prepared *out, char why[static PREPARE_WHY_SIZE]);

/* Removes what prepare_all left in the run directory: the lock's file and the control sockets. */
void prepare_remove(const struct options *o, const struct prepared *p);

/* Writes the calling process's number. 0 or -errno. */
int prepare_write_pid(const struct prepared *p);

/* Standard error becomes the log file (opened again at each call), standard output too. 0 or
 * -errno. */
int prepare_log(const struct options *o);
