#pragma once
/* A TLS end as a descriptor for plain bytes: TLS (or nothing) on a socket, and what is in it on one
 * end of a socketpair, whose other end is handed on. Requests of sandboxes need none (forward.h): it is
 * for the connections that this program makes for itself. Handshakes are tlshand.c's.
 *
 * Pull-based: what one side does not take is not read from the other; each direction holds at most
 * what one read gave and what a filter keeps back. An announced end (close_notify) becomes a
 * half-close and the reverse; a connection that is lost closes the other side after what came
 * before it.
 *
 * A pipe owns both descriptors and itself: it ends when both sides have, or when the plain end is
 * closed. Everything is on one loop; nothing blocks, nothing is called back from inside a call. */

#include "base/buf.h"
#include "egress/tls/tls_endpoint.h"
#include "egress/tls/turns.h"

#include <uv.h>

#define TLSPIPE_HELD_BYTES ((size_t)2 * 1024 * 1024)

struct tlspipes;
struct tlspipe;

/* Stands in both directions of a pipe. outward: from the plain end to the socket; inward the
 * reverse. Each appends to out what is to go on; negative cuts the connection. inward_end: no more
 * comes; clean: it was announced (or the socket is plain). A filter that is not active passes bytes
 * as they are, without being called. */
struct tlspipe_filter {
    bool (*active)(void *arg);
    int (*outward)(void *arg, const char *data, size_t n, struct buf *out);
    int (*inward)(void *arg, const char *data, size_t n, struct buf *out);
    /* Has it more for what was taken? Called when all of out has left; out stays empty where it has
     * none. May be NULL. */
    int (*inward_more)(void *arg, struct buf *out);
    int (*inward_end)(void *arg, bool clean, struct buf *out);
    /* After how long without bytes from the socket inward_pause is to be called, in ms; 0: not at
     * all. stalled: the reader had to be waited for, so that the sender may have had to. Both may
     * be NULL. */
    unsigned (*inward_pause_ms)(void *arg, bool stalled);
    int (*inward_pause)(void *arg, struct buf *out);
    void (*free)(void *arg);
};

struct tlspipe_options {
    struct tls_endpoint end; /* taken over on success */
    bool server;             /* towards a client: what it still sends is read to its end */
    uint64_t owner;          /* whose share of the loop's time it has (turns.h) */
    /* Bytes of contents so far, from the socket and to it. May be NULL. */
    void (*on_moved)(void *arg, uint64_t read, uint64_t written);
    void (*on_end)(void *arg); /* the last call about it; may be NULL */
    void *arg;
};

/* All pipes of a loop. */
int tlspipes_new(uv_loop_t *loop, struct tlspipes **out);

/* Time, and what filters cost, is shared out from now on; t outlives all. Without it each read is
 * passed on at once. */
void tlspipes_set_turns(struct tlspipes *all, struct turns *t);

/* Closes every pipe; freed when the loop has turned. */
void tlspipes_free(struct tlspipes *all);
size_t tlspipes_count(const struct tlspipes *all);

/* *plain is the plain end, the caller's. *out (may be NULL) is valid until on_end. 0 or -errno. */
int tlspipe_start(struct tlspipes *all, const struct tlspipe_options *o, int *plain,
                  struct tlspipe **out);

void tlspipe_close(struct tlspipe *p);

/* The pipe whose plain end that descriptor is, or NULL. */
struct tlspipe *tlspipe_of(struct tlspipes *all, int plain);

/* f is static; arg is freed by f->free with the pipe. One filter for each pipe. */
void tlspipe_set_filter(struct tlspipe *p, const struct tlspipe_filter *f, void *arg);
void *tlspipe_filter_arg(const struct tlspipe *p);
