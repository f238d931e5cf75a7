#pragma once
/* A connection's bytes, through its layer (layer.h) or not. */

#include "http/conn.h"

/* As read(2) and sendmsg(2), or -errno; -EAGAIN when nothing can be done now. */
ssize_t layer_read(struct conn *c, void *out, size_t n);
ssize_t layer_write(struct conn *c, const struct iovec *iov, int n);

/* No more bytes from here, in the layer's words and the socket's. False: again when it is
 * writable. */
bool layer_shut(struct conn *c);

/* CONN_NEW: looks at the first byte. True: it is plain HTTP, to be read now. */
bool layer_is_plain(struct conn *c);

/* CONN_BEGINNING: goes on with the handshake. True when it is done. */
bool layer_step(struct conn *c);
void layer_close(struct conn *c);
