/* Classifies a connection's first bytes: TLS, HTTP/1, HTTP/2, CONNECT, SOCKS5, or opaque. Pure:
 * protocol_detect.c peeks at the bytes and asks again while the answer is SNIFF_MORE. The rule is
 * that bytes which some server could take for a request or for TLS are named so, since a strict
 * reader then refuses it, while unread bytes would reach that server with another Host or name than
 * the policy saw. Each exception names the server that made it necessary. */

#include "egress/flow/sniff.h"

#include "base/util.h"
#include "http/gate.h"

#include <string.h>
#include <strings.h>

#define FIRST_LINE_MAX 8192u /* a longer one that begins like a request is one */

/* -- TLS --------------------------------------------------------------------------------------- */

#define RECORD_HEAD_BYTES 5u
#define RECORD_BYTES_MAX  (16384u + 2048u) /* RFC 5246 6.2.3 */
#define MAJOR_LENIENT_MAX 0x0f /* of a first record: what crypto/tls and GnuTLS take or skip */

enum record { CHANGE_CIPHER_SPEC = 0x14, ALERT, HANDSHAKE, APPLICATION_DATA };

static bool is_record_type(unsigned char c)
{
    return c >= CHANGE_CIPHER_SPEC && c <= APPLICATION_DATA;
}

/* A record of a version that TLS never had, which some servers take all the same: Go's crypto/tls
 * looks at no more of a first record's version than that it is below 16.0. Length and content tell
 * it from the length prefixes of other protocols. */
static enum sniff as_odd_record(const unsigned char *p, size_t n, bool end)
{
    size_t len;

    if (p[1] > MAJOR_LENIENT_MAX || (p[0] != HANDSHAKE && p[0] != ALERT))
        return SNIFF_OPAQUE;
    if (n <= RECORD_HEAD_BYTES)
        return end ? SNIFF_OPAQUE : SNIFF_MORE;
    len = (size_t)p[3] << 8 | p[4];
    if (p[0] == ALERT)
        return len == 2 && (p[5] == 1 || p[5] == 2) ? SNIFF_TLS : SNIFF_OPAQUE;
    return len > 0 && len <= RECORD_BYTES_MAX && p[5] == 1 ? SNIFF_TLS : SNIFF_OPAQUE;
}

/* RFC 8446 5.1: any record of version 3.x is TLS, and clienthello.c says which records may stand
 * before and in a ClientHello: servers skip empty records (OpenSSL), warnings (Go) and more. */
static enum sniff as_tls(const unsigned char *p, size_t n, bool end)
{
    if (n < 2)
        return end ? SNIFF_OPAQUE : SNIFF_MORE;
    return p[1] == 3 ? SNIFF_TLS : as_odd_record(p, n, end);
}

/* A ClientHello in the framing of SSL 2.0 (RFC 5246 E.2): two bytes of length, type 1, version
 * 3.x. */
static bool is_v2_hello(const unsigned char *p, size_t n)
{
    return p[0] & 0x80 && (n < 3 || p[2] == 1) && (n < 4 || p[3] == 3);
}

/* -- HTTP -------------------------------------------------------------------------------------- */

/* The methods of llhttp and of WebDAV: with them a line is a request even without a version, in any
 * case. */
static const char *const methods[] = {
    "GET",      "POST",     "PUT",           "HEAD",          "DELETE",      "OPTIONS",
    "PATCH",    "TRACE",    "CONNECT",       "COPY",          "LOCK",        "MKCOL",
    "MOVE",     "UNLOCK",   "SEARCH",        "REPORT",        "PURGE",       "PROPFIND",
    "MERGE",    "NOTIFY",   "PROPPATCH",     "SUBSCRIBE",     "UNSUBSCRIBE", "QUERY",
    "SOURCE",   "BIND",     "REBIND",        "UNBIND",        "LINK",        "UNLINK",
    "ACL",      "M-SEARCH", "CHECKOUT",      "MKACTIVITY",    "MKCALENDAR",  "DESCRIBE",
    "ANNOUNCE", "SETUP",    "PLAY",          "PAUSE",         "TEARDOWN",    "REDIRECT",
    "RECORD",   "FLUSH",    "GET_PARAMETER", "SET_PARAMETER", "PRI",
};

/* Bytes that some servers take for white space: RFC 9112 3, and str.split() of Python's
 * http.server. */
bool sniff_is_blank(char c)
{
    return (c && strchr(" \t\n\v\f\r\x1c\x1d\x1e\x1f", c)) || c == '\x85' || c == '\xa0';
}

static size_t token_length(const char *p, size_t n)
{
    size_t at = 0;

    while (at < n && gate_is_token((unsigned char)p[at]))
        at++;
    return at;
}

static size_t skip_blanks(const char *p, size_t n, size_t at)
{
    while (at < n && sniff_is_blank(p[at]))
        at++;
    return at;
}

static bool is_known(const char *method, size_t n)
{
    for (size_t i = 0; i < ARRAY_SIZE(methods); i++)
        if (strlen(methods[i]) == n && strncasecmp(method, methods[i], n) == 0)
            return true;
    return false;
}

static bool all_of(const char *p, size_t n, const char *chars)
{
    for (size_t i = 0; i < n; i++)
        if (!p[i] || !strchr(chars, p[i]))
            return false;
    return n > 0;
}

#define CAPITALS "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_"
#define LETTERS  CAPITALS "abcdefghijklmnopqrstuvwxyz"

/* Does a word of it say HTTP and a version, in whatever way? Node's llhttp serves RTSP and ICE as
 * HTTP. A response begins with that: not meant. */
static bool says_http(const char *line, size_t n)
{
    static const char *const names[] = {"http/", "rtsp/", "ice/"};

    for (size_t i = 1; i < n; i++)
        for (size_t k = 0; k < ARRAY_SIZE(names); k++)
            if (n - i >= strlen(names[k]) && strncasecmp(line + i, names[k], strlen(names[k])) == 0)
                return true;
    return false;
}

static bool has_scheme(const char *p, size_t n)
{
    size_t at = 0;

    while (at < n && strchr(LETTERS, p[at]) && p[at])
        at++;
    return at > 0 && n - at >= 3 && memcmp(p + at, "://", 3) == 0;
}

/* "GET /path" without a version: there are servers that answer, and read header lines too. llhttp
 * does so after any method that it knows, also with "*" or nothing for a target, and CONNECT with
 * any. */
static bool is_versionless(const char *line, size_t n)
{
    size_t method = token_length(line, n), at = skip_blanks(line, n, method);
    bool known = is_known(line, method);

    if (at == method || (!known && !all_of(line, method, CAPITALS)))
        return false;
    if (at == n || line[at] == '*' || (method == 7 && strncasecmp(line, "CONNECT", 7) == 0))
        return known;
    return line[at] == '/' || has_scheme(line + at, n - at);
}

/* Bytes that some server could take for a request are one: a strict reader then refuses them, while
 * unread it would carry another Host to a server that is less strict. So with CONNECT to a server
 * outside: there are those that refuse it and read the next request. */
static enum sniff line_is_http(const char *line, size_t n, bool to_listener)
{
    if (n > 0 && line[n - 1] == '\r')
        n--;
    if (n >= 6 && memcmp(line, "PROXY ", 6) == 0)
        return SNIFF_PROXY_HEADER;
    if (!says_http(line, n) && !is_versionless(line, n))
        return SNIFF_OPAQUE;
    if (n > 8 && memcmp(line, "CONNECT ", 8) == 0 && to_listener)
        return SNIFF_CONNECT;
    return SNIFF_HTTP;
}

/* Could a line that has begun so become a request? A control byte ends that, but for a method that
 * servers know; so does a target that begins as none does. Else binary messages would be waited
 * for: LDAP's first byte is a '0', git's first packet is a token, a blank and a path, and has no
 * line end. */
static bool may_become_request(const char *p, size_t n)
{
    size_t method = token_length(p, n), at;

    if (method == n)
        return true;
    at = skip_blanks(p, n, method);
    if (method == 0 || at == method)
        return false;
    if (at < n && strchr("<>{}|^`\"()", p[at]))
        return p[at] == '\0' && all_of(p, method, LETTERS);
    for (; at < n; at++)
        if (((unsigned char)p[at] < 0x20 || p[at] == 0x7f) && !sniff_is_blank(p[at]))
            return all_of(p, method, LETTERS);
    return true;
}

static enum sniff as_http(const char *p, size_t n, bool end, bool to_listener)
{
    bool full = n >= FIRST_LINE_MAX;
    size_t at = skip_blanks(p, n, 0); /* as servers do before a request */
    const char *lf;

    p += at;
    n -= at;
    lf = memchr(p, '\n', MIN(n, (size_t)FIRST_LINE_MAX));
    if (lf || end)
        return line_is_http(p, lf ? (size_t)(lf - p) : n, to_listener);
    if (n > 0 && !may_become_request(p, n))
        return SNIFF_OPAQUE;
    return full ? SNIFF_HTTP : SNIFF_MORE;
}

/* Starts that are known by heart: HTTP/2's (RFC 9113 3.4), and the second form of the PROXY
 * protocol, which says another origin than the true one and hides the first message behind it. */
static bool begins(const char *p, size_t n, const char *start, size_t len, bool *whole)
{
    *whole = n >= len;
    return memcmp(p, start, MIN(n, len)) == 0;
}

static enum sniff as_preface(const char *p, size_t n, bool end)
{
    static const char http2[] = "PRI * HTTP/2.0\r\n", proxy[] = "\r\n\r\n\0\r\nQUIT\n";
    bool whole;

    if (begins(p, n, http2, sizeof(http2) - 1, &whole) && (whole || !end))
        return whole ? SNIFF_HTTP2 : SNIFF_MORE;
    if (begins(p, n, proxy, sizeof(proxy) - 1, &whole) && (whole || !end))
        return whole ? SNIFF_PROXY_HEADER : SNIFF_MORE;
    return SNIFF_OPAQUE;
}

enum sniff sniff_bytes(const void *data, size_t n, bool end, bool to_listener)
{
    const unsigned char *p = data;
    enum sniff preface;

    if (n == 0)
        return end ? SNIFF_OPAQUE : SNIFF_MORE;
    if (is_record_type(p[0]))
        return as_tls(p, n, end);
    if (is_v2_hello(p, n))
        return n >= 4 ? SNIFF_TLS : end ? SNIFF_OPAQUE : SNIFF_MORE;
    if (p[0] == 5 && to_listener)
        return SNIFF_SOCKS5;
    preface = as_preface(data, n, end);
    return preface == SNIFF_OPAQUE ? as_http(data, n, end, to_listener) : preface;
}
