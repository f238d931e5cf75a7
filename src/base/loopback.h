#pragma once
/* The way to a port of a sandbox, with a socket that privd made in its network namespace. */

#include <stdint.h>

/* connect(2) to 127.0.0.1:port. 0 connected, 1 under way (the socket does not block), or -errno. */
int loopback_connect(int fd, uint16_t port);
