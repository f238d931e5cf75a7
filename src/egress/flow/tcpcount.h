#pragma once
/* How many bytes were read from a TCP socket, and how many of those sent were acknowledged. Apart,
 * because the kernel's struct tcp_info and the C library's older one exclude each other. */

#include <stdint.h>

/* 0 or -errno (it is no TCP socket). */
int tcpcount_get(int fd, uint64_t *taken, uint64_t *acked);
