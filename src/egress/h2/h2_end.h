#pragma once
/* A side of an HTTP/2 connection: its socket and its session of nghttp2. */

#include "egress/h2/h2_internal.h"

int end_open(struct h2_end *e, struct h2 *conn, enum side side, const struct tls_endpoint *io);
void end_close(struct h2_end *e);

/* Bytes of its peer, as they came. False: it may not go on. */
bool end_take(struct h2_end *e, const char *data, size_t n);

/* Sends what its session has to say, as far as the socket takes it. True when any left. */
bool end_flush(struct h2_end *e);
void end_watch(struct h2_end *e);

/* Gives the peer back n bytes of the windows: of the stream (id; 0: of none), of the connection. */
void end_credit(struct h2_end *e, int32_t id, size_t stream, size_t connection);

/* Its peer may have so many bytes of the stream on the way; by as many as that is more or less than
 * before, of all streams. */
void end_set_window(struct h2_end *e, int32_t id, size_t window, size_t before);
void end_reset(struct h2_end *e, int32_t id, uint32_t code);
