#pragma once
/* A packet with its descriptors, as both ends send and receive it. Never blocks (MSG_DONTWAIT).
 */

#include "contract/proto.h"

#include <sys/types.h>

struct privsep_packet {
    struct privsep_msg msg;
    int fds[PRIVSEP_MAX_FDS];
    size_t n_fds; /* how many of fds are held; privsep_packet_close closes them */
};

/* Receives one packet. 1: p holds it, descriptors included (they are close-on-exec). 0: the other
 * side has closed. -EAGAIN: nothing there. -EPROTO: a packet of another size, cut, or with more
 * descriptors than fit or other ancillary data; its descriptors are closed. Other -errno. */
int privsep_packet_recv(int fd, struct privsep_packet *p);

/* Sends one. 0, -EAGAIN when the socket is full, other -errno. The descriptors stay the caller's.
 */
int privsep_packet_send(int fd, const struct privsep_packet *p);

/* Closes what p holds. */
void privsep_packet_close(struct privsep_packet *p);
