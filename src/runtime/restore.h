#pragma once
/* From a task of privd to cay-checkpoint, which restores a sandbox's processes. Private to the
 * runtime. */

#include "runtime/inside.h"

/* All descriptors are the calling task's. */
struct restore_context {
    int userns_fd, netns_fd; /* the slot's */
    const char *host_name;
    const char *seconds; /* of cay-checkpoint's */
    int program_fd;      /* cay-checkpoint */
    int work_fd;         /* a directory, empty and that id's */
    int request_fd;      /* gets PID 1 (contract/checkpoint_boot.h) */
    int listener_fd;     /* gets the filters' listener */
    int boot_fd;         /* cay-init's end of the boot socket */
};

/* As a task that is in the slot's control group already, with all of in's trees open: gives up the
 * host's root, builds the sandbox's tree and becomes cay-checkpoint. Does not return but with
 * -errno, and the task has to end then. */
int restore_exec(const struct inside *in, const struct restore_context *context) WARN_UNUSED;
