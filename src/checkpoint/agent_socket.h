#pragma once
/* Connections of the sandbox's programs to the socket by which cay-privd reaches cay-init
 * (contract/agent_go_on.h). cay-init closes them as soon as it runs, but those that wait for it at
 * a dump would come back with the image: a queue that is full leaves no room for cay-privd's, which
 * has to wait there before cay-init goes on. */

#include <stdbool.h>
#include <stddef.h>

/* Is the answer (struct unix_diag_msg and attributes) of that socket, with connections that wait? A
 * program can bind the same name for another type of socket. */
bool agent_socket_is_awaited(const void *answer, size_t len);

/* In the network namespace of this process. 0 and *found, or -errno. */
int agent_socket_find_waiting(bool *found);
