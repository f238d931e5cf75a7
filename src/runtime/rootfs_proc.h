#pragma once
/* /proc and /sys of a sandbox, and the sysctls that are set through its /proc; of a command sandbox
 * too, which has a /proc of its own (command_sandbox.c). Private to the runtime. */

#include "runtime/rootfs_attach.h"

/* Names below a new /proc that are made read-only, and names that are covered. */
#define ROOTFS_PROC_READ_ONLY 2
#define ROOTFS_PROC_MASKED    28
#define ROOTFS_PROC_BOOT_ID   "sys/kernel/random/boot_id"
extern const char *const rootfs_proc_read_only[ROOTFS_PROC_READ_ONLY];
extern const char *const rootfs_proc_masked[ROOTFS_PROC_MASKED];

/* 0, also where there is no such name, or -errno. */
int rootfs_proc_make_read_only(int dir_fd, const char *path) WARN_UNUSED;

/* Sysctls of the user and network namespace of the process that mounted this /proc. */
int rootfs_proc_set_sysctls(int proc_fd, bool command_sandbox) WARN_UNUSED;

/* Once the root and /dev are there (masks of files are copies of /dev/null): fill proc_fd and
 * sys_fd. In the sandbox's namespaces, as its root. 0 or -errno. */
int rootfs_proc_mount(struct rootfs *b) WARN_UNUSED;
int rootfs_proc_mount_sys(struct rootfs *b) WARN_UNUSED;
