#pragma once
/* A parsed HTTP/1 message head, and what frames its body.
 *
 * Made only by the strict gate and llhttp together (gate.h): a head that any two parsers could read
 * differently is refused, so what is in here may be forwarded. All strings are NUL-terminated, live
 * in the head's own storage and die with it. Sources: RFC 9110, RFC 9112. */

#include "base/util.h"

#include <stdbool.h>
#include <sys/types.h>

#define HTTP_MAX_HEADERS    100
#define HTTP_MAX_HEAD_BYTES (32u * 1024u)

struct http_header {
    const char *name;  /* as sent; compare without case */
    const char *value; /* trimmed of white space; no CR, LF or NUL */
};

enum http_framing {
    HTTP_BODY_NONE,
    HTTP_BODY_LENGTH,
    HTTP_BODY_CHUNKED,
    HTTP_BODY_UNTIL_CLOSE /* responses only */
};

struct http_head {
    /* requests */
    const char *method;
    const char *target;    /* raw request target: origin form only (or "*" for OPTIONS) */
    const char *path;      /* target before '?', still percent-encoded; starts with '/' */
    const char *query;     /* after '?', or "" */
    const char *host;      /* Host header's value, or "" in HTTP/1.0 without it */
    const char *authority; /* of a target in absolute form, which is cut to its origin form in
                            * `target`; "" otherwise. Only where gate_proxy_request read it. */
    /* responses */
    int status;
    /* both */
    int minor; /* HTTP/1.minor: 0 or 1 */
    bool keep_alive;
    bool upgrade; /* Connection: upgrade with an Upgrade header */
    enum http_framing framing;
    uint64_t content_length; /* with HTTP_BODY_LENGTH */
    size_t header_count;
    struct http_header headers[HTTP_MAX_HEADERS];
};

/* The value of the first header of that name (no case), or NULL. */
const char *http_head_get(const struct http_head *h, const char *name);

/* Would a server take one for the other? Without case, and '_' and every other sign as '-': servers
 * that hand headers to programs as environment variables (CGI, WSGI, PHP) make none of '_',
 * and lighttpd none of any. */
bool http_name_like(const char *a, const char *b);

/* Percent-decodes into out (NUL-terminated; size includes it). A '+' stays unless plus_is_space.
 * Length, or -EINVAL (bad escape, NUL byte), -EMSGSIZE. */
ssize_t http_percent_decode(const char *in, size_t n, bool plus_is_space, char *out, size_t size);

/* The decoded value of the first parameter of that name in a query string ('+' is a space). Length,
 * -ENOENT, -EINVAL or -EMSGSIZE. */
ssize_t http_query_get(const char *query, const char *name, char *out, size_t size);

/* "Not Found" for 404; "" for what has no name. */
const char *http_status_text(int status);
