#include "egress/sniff.h"

#include "http/gate.h"

#include <string.h>

#define METHOD_MAX     24u
#define FIRST_LINE_MAX 8192u /* a longer one is not told apart from something else */

/* RFC 8446 5.1: a handshake record, whose version's first byte is 3, with a ClientHello in it. */
static enum sniff as_tls(const unsigned char *p, size_t n, bool end)
{
    if (n >= 2 && p[1] != 3)
        return SNIFF_OPAQUE;
    if (n >= 6)
        return p[5] == 1 ? SNIFF_TLS : SNIFF_OPAQUE;
    return end ? SNIFF_OPAQUE : SNIFF_MORE;
}

static enum sniff line_is_http(const char *line, size_t n, bool to_listener)
{
    static const char version[] = " HTTP/1.";
    size_t tail = sizeof(version) - 1 + 1; /* and one digit */

    if (n > 0 && line[n - 1] == '\r')
        n--;
    if (n < tail + 2 || memcmp(line + n - tail, version, tail - 1) != 0 || line[n - 1] < '0' ||
        line[n - 1] > '9')
        return SNIFF_OPAQUE;
    if (n > 8 && memcmp(line, "CONNECT ", 8) == 0)
        return to_listener ? SNIFF_CONNECT : SNIFF_OPAQUE;
    return SNIFF_HTTP;
}

/* Methods that real clients begin with: only for them is a line waited for that has begun. */
static const char *const methods[] = {
    "GET",   "POST",   "PUT",       "HEAD",      "DELETE", "OPTIONS", "PATCH",  "TRACE", "CONNECT",
    "COPY",  "LOCK",   "MKCOL",     "MOVE",      "UNLOCK", "SEARCH",  "REPORT", "PURGE", "PROPFIND",
    "MERGE", "NOTIFY", "PROPPATCH", "SUBSCRIBE", "QUERY",  "SOURCE",  "BIND",   "LINK",  "M-SEARCH",
};

/* Is p[0..n) the start of such a method, or that and a space and more? */
static bool begins_like_http(const char *p, size_t n)
{
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++) {
        size_t len = strlen(methods[i]);

        if (memcmp(p, methods[i], MIN(n, len)) == 0 && (n <= len || p[len] == ' '))
            return true;
    }
    return false;
}

static enum sniff as_http(const char *p, size_t n, bool end, bool to_listener)
{
    size_t method = 0;
    const char *lf = memchr(p, '\n', MIN(n, (size_t)FIRST_LINE_MAX));

    if (!lf)
        return !end && n < FIRST_LINE_MAX && begins_like_http(p, n) ? SNIFF_MORE : SNIFF_OPAQUE;
    while (method < n && method < METHOD_MAX && gate_is_token((unsigned char)p[method]))
        method++;
    if (method == 0 || p[method] != ' ')
        return SNIFF_OPAQUE;
    return line_is_http(p, (size_t)(lf - p), to_listener);
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
