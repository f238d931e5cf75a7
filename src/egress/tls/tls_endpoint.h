#pragma once
/* The socket of a side with its TLS, or a plain one: bytes in and out, after the handshake
 * (tlshand.h). The holder owns descriptor and layer. Nothing blocks. */

#include "http/layer.h"

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define TLS_ENDPOINT_READ_BYTES ((size_t)64 * 1024) /* the most that one read may give */

struct tls_endpoint {
    int fd;           /* connected, non-blocking; -1: none */
    void *tls;        /* a layer of http/tls_conn.h; NULL: plain */
    bool clean;       /* the peer has announced its end (on a plain socket: has ended) */
    bool wants_write; /* the last read goes on when the socket is writable */
    bool shut;        /* our own end is announced */
};

/* n is at least HTTP_LAYER_READ_BYTES. > 0, 0 at the end, -EAGAIN, another -errno: lost.
 * clean may be set beside bytes: these were the last. */
ssize_t tls_endpoint_read(struct tls_endpoint *t, void *out, size_t n);

/* How many were taken, -EAGAIN, or another -errno: lost. The rest is to be offered again, no less
 * of it. */
ssize_t tls_endpoint_write(struct tls_endpoint *t, const void *data, size_t n);

/* No more from here: close_notify and the socket's own end. True when it is out; else again when
 * the socket is writable. */
bool tls_endpoint_shut(struct tls_endpoint *t);

/* Closes it without waiting for anything; a close_notify is tried where `announce`. */
void tls_endpoint_close(struct tls_endpoint *t, bool announce);
