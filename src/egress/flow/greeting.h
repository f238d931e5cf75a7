#pragma once
/* Connections in which the server speaks first: ssh, mail, databases. Its words pass, and what the
 * client says first is looked at all the same, for a client can wait for a server's words before it
 * says anything: HTTP/2 servers say theirs (SETTINGS) as soon as they are connected to. */

#include <stdbool.h>
#include <stddef.h>

struct flow;

/* p[0..n) is the start of what a server says. 1: a SETTINGS frame of HTTP/2 (RFC 9113 3.4, 6.5); 0:
 * not; -EAGAIN: more bytes tell. Pure. */
int greeting_is_http2(const unsigned char *p, size_t n);

/* Looks at the first unread bytes of f->fd, in a tunnel whose server has spoken. end: no more will
 * come. 0: they may pass, and all behind them; -EAGAIN: more of them tell; -EACCES: they must not,
 * the flow is cut and noted. */
int greeting_inspect(struct flow *f, bool end);
