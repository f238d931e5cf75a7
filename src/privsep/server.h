#pragma once
/* privd's end of the channel: one listener, one peer, no event library.
 *
 * The owner watches privsep_server_fd for reading and calls privsep_server_dispatch when it is
 * ready. The path can be reached by the peer's uid only (mode 0600, owned by it), and SO_PEERCRED
 * is checked besides. A new connection of that uid replaces the old one. A packet that is not
 * exactly a request, or that carries a descriptor, ends its connection; nothing of it reaches the
 * owner. Replies that the socket does not take at once wait in a queue of PRIVSEP_SERVER_MAX_QUEUE
 * packets and PRIVSEP_SERVER_MAX_QUEUED_FDS descriptors; past PRIVSEP_SERVER_PAUSE_QUEUE no request
 * is read until it drains, past the maximum the connection ends. Never blocks. */

#include "contract/proto.h"

#include <sys/types.h>

#define PRIVSEP_SERVER_MAX_QUEUE      32768
#define PRIVSEP_SERVER_MAX_QUEUED_FDS 1024
#define PRIVSEP_SERVER_PAUSE_QUEUE    256
#define PRIVSEP_SERVER_BATCH          64 /* requests handled by one dispatch */

struct privsep_server;

struct privsep_server_events {
    /* A request in sound form. The first of a connection is always HELLO, and only the first. */
    void (*on_request)(void *arg, const struct privsep_msg *m);
    /* A peer is there or is gone; replies to requests of a gone peer are dropped. */
    void (*on_peer)(void *arg, bool there);
    void *arg;
};

/* Binds path (an earlier socket is removed), as root. peer_uid is the only uid that may connect. */
int privsep_server_new(const char *path, uid_t peer_uid, const struct privsep_server_events *ev,
                       struct privsep_server **out);

/* Also removes the path. */
void privsep_server_free(struct privsep_server *s);

/* To be watched for reading by the owner's epoll. */
int privsep_server_fd(const struct privsep_server *s);
void privsep_server_dispatch(struct privsep_server *s);

/* Counts connections: a request that is answered later remembers it, and passes it to
 * privsep_server_send, which drops what belongs to an earlier peer. Never 0 while a peer is there.
 */
uint64_t privsep_server_peer(const struct privsep_server *s);

/* Sends m (version and fds are filled in) with n_fds descriptors to the peer number `peer`; 0 means
 * any. The descriptors are closed in every case. 0, -ENOTCONN when that peer is gone or not there,
 * -ENOBUFS when the queue was full: the connection is then ended. */
int privsep_server_send(struct privsep_server *s, uint64_t peer, const struct privsep_msg *m,
                        const int *fds, size_t n_fds);
