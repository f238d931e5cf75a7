#pragma once
/* TLS that is passed on unread, until its name is certain. A server may answer the first
 * ClientHello with a HelloRetryRequest (RFC 8446 4.1.4), and the client sends a second one: there
 * are servers (OpenSSL's) that serve the name which that one says. So the first is sent on alone,
 * the start of the answer is looked at, and when it asks for another, that is held until its name
 * was read too. */

#include <stddef.h>
#include <sys/types.h>

struct flow;

/* Takes the flow over from protocol_detect.c: f->up_fd is dialled, wire_bytes of f->fd are the
 * checked ClientHello's, unread; f->sni is its name, or NULL. Goes on to tunnel.c, or refuses. */
void retry_start(struct flow *f, size_t wire_bytes);

/* Is p[0..n) the start of a HelloRetryRequest? 1, 0, or -EAGAIN: more bytes tell. */
int retry_is_requested(const unsigned char *p, size_t n);

/* Where the second ClientHello begins in what the client has sent after its first: behind the
 * records that may stand before it (change_cipher_spec, early data). Its offset; -EAGAIN;
 * -EPROTO. */
ssize_t retry_hello_at(const unsigned char *p, size_t n);
