#pragma once
/* A response: its head, its body, and what the relay sends as it is. */

#include "http/exchange.h"

/* Parts of a head; bad names and values abort, see server.h. */
void response_put(struct buf *b, const char *s);
void response_put_number(struct buf *b, uint64_t value);
void response_put_header(struct buf *b, const char *name, const char *value);

/* Must the connection end with this response? */
bool response_must_close(const struct http_exchange *x);

/* Refuses what is no exchange (a bad head): queues a whole response that ends the connection. */
void response_refuse(struct conn *c, int status, const char *why);

/* To a client that begins a TLS handshake where none is spoken: it would take an answer for a
 * broken one. */
void response_refuse_tls(struct conn *c);

/* http_response_write of several pieces as one chunk; n <= 4. */
int response_writev(struct http_exchange *x, const struct iovec *iov, int n);

/* For the relay: a head made elsewhere; then http_response_write sends bytes as they are. close:
 * the connection ends after it. no_body as in struct http_exchange. */
void response_begin_raw(struct http_exchange *x, const char *head, size_t n, bool close,
                        bool no_body);
/* As http_response_write, of what the pipe holds; after conn_may_pass. 1: wait for on_drain, which
 * comes when nothing is queued any more, so that the next bytes can pass as well. */
int response_pass(struct http_exchange *x, struct pass *p);
/* An interim response (1xx) as it is. */
void response_interim(struct http_exchange *x, const char *head, size_t n);
/* After 101: bytes both ways. on_end is called at the client's end of stream. */
void response_tunnel(struct http_exchange *x, const char *head, size_t n,
                     void (*on_data)(struct http_exchange *, const char *, size_t),
                     void (*on_end)(struct http_exchange *));
/* Tunnel: no more bytes will be written; the client's may go on. */
void response_shut(struct http_exchange *x);
