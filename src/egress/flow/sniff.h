#pragma once
/* Classifies a connection's first bytes. Pure. */

#include <stdbool.h>
#include <stddef.h>

enum sniff {
    SNIFF_MORE,
    SNIFF_TLS,     /* a record of TLS, whatever is in it, also where no server should take it */
    SNIFF_HTTP,    /* some server takes it for a request of HTTP/1, malformed ones too */
    SNIFF_HTTP2,   /* without TLS, by its preface */
    SNIFF_CONNECT, /* at the listener only */
    SNIFF_SOCKS5,  /* likewise */
    SNIFF_PROXY_HEADER, /* the PROXY protocol: the true first message comes behind it */
    SNIFF_OPAQUE
};

/* data[0..n) is the start of what the client sends; end: it will send no more than that. SNIFF_MORE
 * means that more bytes decide, which a line without its end does as long as it begins as a
 * request's: n has to reach 8192 before that ends. Bytes that are SNIFF_OPAQUE may be carried
 * unread, their first line followed to its end (first_line.h): no server that gives several names
 * their contents takes it for TLS or a request. to_listener: it speaks to the proxy itself, so that
 * CONNECT and SOCKS mean something. */
enum sniff sniff_bytes(const void *data, size_t n, bool end, bool to_listener);

/* Does some server divide the words of a first line there? */
bool sniff_is_blank(char c);
