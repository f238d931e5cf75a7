#pragma once
/* System call filters (seccomp) of sandboxes: an allow list, and a second filter for arguments.
 *
 * Built once by libseccomp into plain BPF programs; installing them is one system call each and
 * allocates nothing, so that set-up code in a fresh child may do it. Two filters, because an allow
 * list can only say which values are allowed and some rules are easier to get right the other way
 * round ("any ioctl but these", on the 32 bits that the kernel looks at); the kernel takes the
 * strictest answer of both. */

#include "base/util.h"
#include "sys/filter_netlink.h"

#include <linux/filter.h>
#include <stdbool.h>

#define FILTER_PROGRAMS 2

struct filter {
    struct sock_fprog programs[FILTER_PROGRAMS];
    uint32_t reserved_id;
    bool notifies; /* the listener says whether a tenant's program may have a filter of its own */
    uint32_t netlink_pass[2]; /* filter_netlink.h */
};

/* reserved_id: a uid and gid that no process may take on (the agent's own). asks: SET_MODE_FILTER
 * waits for the listener's answer instead of being EINVAL. 0 or -errno. */
int filter_build(uint32_t reserved_id, bool notifies, struct filter *out) WARN_UNUSED;
void filter_free(struct filter *f);

/* Installs both on the calling thread, for good. Needs CAP_SYS_ADMIN in the own user namespace, and
 * deliberately not no_new_privs: set-uid programs of the sandbox go on working.
 * *listener_fd: where the calls that the filter does not decide are waiting, closed at exec; -1:
 * none. 0 or -errno. */
int filter_install(const struct filter *f, int *listener_fd) WARN_UNUSED;

/* Both, as a file for a program that installs them later (scripts/criu.patches): before the
 * instructions of each its flags and their number, 32 bits each. A descriptor, close-on-exec, at
 * the file's beginning, or -errno. */
int filter_file(const struct filter *f) WARN_UNUSED;
