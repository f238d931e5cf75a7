#pragma once
/* Bytes on a TCP connection that the other end has no room for, so that the kernel holds them
 * unsent. CRIU keeps them, but sends them in a restore before the other end is there, or where, as
 * outside, there is none any more: the connection is reset, and the memory of the sandbox would be
 * lost. */

#include <linux/inet_diag.h>
#include <stdbool.h>
#include <stddef.h>

/* Does the kernel's answer of that length, with the attributes behind it, tell of such? */
bool unsent_is_on(const struct inet_diag_msg *m, size_t len);

/* Any in the network namespace of this process? 0 and *found, or -errno. */
int unsent_find(bool *found);
