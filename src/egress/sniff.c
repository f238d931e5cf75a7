#include "egress/sniff.h"

#include "base/util.h"

#include <string.h>
#include <strings.h>

#define FIRST_LINE_MAX 8192u /* a longer one that begins like a request is one */

/* RFC 8446 5.1: a handshake record, whose version's first byte is 3, with a ClientHello in it. */
static enum sniff as_tls(const unsigned char *p, size_t n, bool end)
{
    if (n >= 2 && p[1] != 3)
        return SNIFF_OPAQUE;
    if (n >= 6)
        return p[5] == 1 ? SNIFF_TLS : SNIFF_OPAQUE;
    return end ? SNIFF_OPAQUE : SNIFF_MORE;
}

/* Methods that real clients begin with: only for them is a line waited for that has begun. */
static const char *const methods[] = {
    "GET",   "POST",   "PUT",       "HEAD",      "DELETE", "OPTIONS", "PATCH",  "TRACE", "CONNECT",
    "COPY",  "LOCK",   "MKCOL",     "MOVE",      "UNLOCK", "SEARCH",  "REPORT", "PURGE", "PROPFIND",
    "MERGE", "NOTIFY", "PROPPATCH", "SUBSCRIBE", "QUERY",  "SOURCE",  "BIND",   "LINK",  "M-SEARCH",
};

/* The method that p[0..n) begins with in whatever case, or is the start of; 0 when there is none. */
static size_t method_length(const char *p, size_t n)
{
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        size_t len = strlen(methods[i]);

        if (strncasecmp(p, methods[i], MIN(n, len)) == 0 &&
            (n <= len || p[len] == ' ' || p[len] == '\t'))
            return len;
    }
    return 0;
}

/* Does a word of it say HTTP and a version, in whatever way? A response begins with that: not meant. */
static bool says_http(const char *line, size_t n)
{
    for (size_t i = 1; i + 6 <= n; i++)
        if (strncasecmp(line + i, "http/", 5) == 0 && line[i + 5] >= '0' && line[i + 5] <= '9')
            return true;
    return false;
}

/* "GET /path" without a version: there are servers that answer, and read header lines too. */
static bool is_versionless(const char *line, size_t n)
{
    size_t at = method_length(line, n);

    if (at == 0 || at >= n)
        return false;
    while (at < n && (line[at] == ' ' || line[at] == '\t'))
        at++;
    return at < n &&
           (line[at] == '/' || (n - at >= 7 && strncasecmp(line + at, "http://", 7) == 0));
}

/* What some server could take for a request is one: whoever reads it strictly then refuses it, while
 * unread it would carry another Host to a server that is less strict. HTTP/2 begins with a line of its
 * own, and is carried as it is. */
static enum sniff line_is_http(const char *line, size_t n, bool to_listener)
{
    static const char http2[] = "PRI * HTTP/2.0";

    if (n > 0 && line[n - 1] == '\r')
        n--;
    if (n == sizeof(http2) - 1 && memcmp(line, http2, n) == 0)
        return SNIFF_OPAQUE;
    if (!says_http(line, n) && !is_versionless(line, n))
        return SNIFF_OPAQUE;
    if (n > 8 && memcmp(line, "CONNECT ", 8) == 0)
        return to_listener ? SNIFF_CONNECT : SNIFF_OPAQUE;
    return SNIFF_HTTP;
}

static bool is_space(char c)
{
    return c == '\r' || c == '\n' || c == ' ' || c == '\t';
}

static enum sniff as_http(const char *p, size_t n, bool end, bool to_listener)
{
    bool full = n >= FIRST_LINE_MAX;
    const char *lf;

    for (; n > 0 && is_space(*p); n--) /* as servers do before a request */
        p++;
    lf = memchr(p, '\n', MIN(n, (size_t)FIRST_LINE_MAX));
    if (lf)
        return line_is_http(p, (size_t)(lf - p), to_listener);
    if (n > 0 && method_length(p, n) == 0)
        return SNIFF_OPAQUE;
    if (full)
        return SNIFF_HTTP;
    return end ? SNIFF_OPAQUE : SNIFF_MORE;
}

enum sniff sniff_bytes(const void *data, size_t n, bool end, bool to_listener)
{
    const unsigned char *p = data;

    if (n == 0)
        return end ? SNIFF_OPAQUE : SNIFF_MORE;
    if (p[0] == 0x16)
        return as_tls(p, n, end);
    if (p[0] == 5 && to_listener)
        return SNIFF_SOCKS5;
    return as_http(data, n, end, to_listener);
}
