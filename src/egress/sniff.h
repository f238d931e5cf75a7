#pragma once
/* What a connection's first bytes are. Pure. */

#include "egress/egress.h"

enum sniff { SNIFF_MORE, SNIFF_TLS, SNIFF_HTTP, SNIFF_CONNECT, SNIFF_SOCKS5, SNIFF_OPAQUE };

/* data[0..n) is the start of what the client sends; end: it will send no more than that. SNIFF_MORE
 * means that more bytes decide. HTTP is a whole first line, METHOD SP target SP HTTP/1.x: other
 * protocols begin with a word and a space too. explicit: it speaks to the proxy itself, so that
 * CONNECT and SOCKS mean something; elsewhere they are opaque bytes. */
enum sniff sniff_bytes(const void *data, size_t n, bool end, bool to_listener);
