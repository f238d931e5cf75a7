#pragma once
/* Questions to the kernel about all sockets of this process's network namespace (sock_diag(7)). */

#include <stdbool.h>
#include <stddef.h>

/* Whether there is a socket of which `is_one` says so. `request` begins with a struct nlmsghdr of
 * SOCK_DIAG_BY_FAMILY with NLM_F_DUMP; `is_one` gets each answer's payload. 0 or -errno. */
int diag_find(const void *request, size_t size,
              bool (*is_one)(const void *arg, const void *answer, size_t len), const void *arg,
              bool *found);
