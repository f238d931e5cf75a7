#pragma once
/* Capabilities as 64-bit masks, by the system calls themselves. All act on the calling thread. */

#include "base/util.h"

#include <linux/capability.h>

#define CAPS_BIT(cap) (UINT64_C(1) << (cap))

/* The highest capability that this kernel knows. */
int caps_last(void);

/* Drops everything that is not in keep from the bounding set. Needs CAP_SETPCAP. 0 or -errno. */
int caps_bound(uint64_t keep) WARN_UNUSED;

/* Sets effective, permitted and inheritable. 0 or -errno. */
int caps_set(uint64_t effective, uint64_t permitted, uint64_t inheritable) WARN_UNUSED;

/* Effective and permitted of the calling thread. 0 or -errno. */
int caps_get(uint64_t *effective, uint64_t *permitted) WARN_UNUSED;

/* Changes to uid and gid without groups and keeps exactly the capabilities in caps, also over
 * execve (ambient), while nothing else can ever be gained by what is started: the bounding set
 * becomes caps too. Those in until_exec stay as well, and the next execve drops them.
 * Needs them all, and CAP_SETPCAP, CAP_SETUID, CAP_SETGID. 0 or -errno. */
int caps_become(uid_t uid, gid_t gid, uint64_t caps, uint64_t until_exec) WARN_UNUSED;
