#pragma once
/* TCP connections of the sandbox's, as the kernel tells them to a program that requests them by
 * their state: a reader of /proc/net/tcp waits for a walk over the table of the whole machine, 5 ms
 * for each family. */

#include <linux/inet_diag.h>
#include <stdbool.h>

/* Is there something to come by this connection, which one side has ended? Without an inode it is
 * no program's any more, and in no image. The end that the other side sent counts as a byte that
 * was not read. */
bool connections_is_half_closed(const struct inet_diag_msg *m);

/* Is the other side still waited for? CRIU keeps it and cannot restore it: its memory would be
 * lost. */
bool connections_is_begun(const struct inet_diag_msg *m);

/* Any such one in the network namespace of this process? 0 and *found, or -errno. */
int connections_find_half_closed(bool *found);
int connections_find_begun(bool *found);
