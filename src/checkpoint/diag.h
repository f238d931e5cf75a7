#pragma once
/* Questions to the kernel about all sockets of this process's network namespace (sock_diag(7)). */

#include <linux/rtnetlink.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Tells of an answer's payload, of len bytes, whether it is of a socket that is looked for. */
typedef bool (*diag_is_one)(const void *arg, const void *answer, size_t len);

/* Whether there is a socket of which is_one says so, among TCP sockets of both families or Unix
 * sockets in one of the states (bits by the kernel's numbers). more: what answers are to have
 * beside their head, idiag_ext or udiag_show. 0 and *found, or -errno. */
int diag_find_tcp(uint32_t states, uint8_t more, diag_is_one is_one, bool *found);
int diag_find_unix(uint32_t states, uint32_t more, diag_is_one is_one, const void *arg,
                   bool *found);

/* Calls each for the attributes behind an answer's head until it answers false. An answer that is
 * shorter than its head has none. */
void diag_each_attribute(const void *answer, size_t len, size_t head,
                         bool (*each)(void *arg, const struct rtattr *a), void *arg);
