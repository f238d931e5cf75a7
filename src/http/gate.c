/* A head is found first (gate_head_end), then read once from its first line to its last field
 * into storage that the caller sized by gate_storage_bytes, and refused at the first byte that
 * is not as RFC 9110 and 9112 have it, with a status and a reason. Rules that concern several
 * fields (length, coding, Host, Connection) are checked after the last one. llhttp sees only heads
 * that passed. Pure: nothing is kept between calls. */

#include "http/gate.h"

#include "http/gate_value.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define MAX_METHOD     24
#define MAX_OPTIONS    16
#define MAX_LENGTH_LEN 18 /* digits; fits 63 bits */

ssize_t gate_head_end(const char *data, size_t len, size_t *scanned)
{
    size_t at = *scanned;

    while (at < len) {
        const char *lf = memchr(data + at, '\n', len - at);
        size_t pos;

        if (!lf)
            break;
        pos = (size_t)(lf - data);
        if (pos == 0 || data[pos - 1] != '\r')
            return -EINVAL;
        at = pos + 1;
        if (pos >= 3 && data[pos - 2] == '\n') {
            *scanned = at;
            return (ssize_t)at;
        }
        if (pos == 1) /* an empty line where a message must start */
            return -EINVAL;
    }
    *scanned = len;
    return 0;
}

size_t gate_storage_bytes(size_t n)
{
    return 2 * n + 2; /* the head itself, and the path cut out of the target */
}

/* -- header fields ----------------------------------------------------------------------------- */

/* The fields about connection and body, gathered while they are read. */
struct fields {
    const char *why;
    int status;
    unsigned hosts, lengths, codings, options;
    bool proxy; /* a target in absolute form is understood */
    bool close, keep_alive, upgrade_token, upgrade_field;
};

static int refuse(struct fields *f, int status, const char *why)
{
    f->status = status;
    f->why = why;
    return -EINVAL;
}

/* Names that frame or route a message cannot be declared hop-by-hop. */
static bool never_hop_by_hop(const char *s, size_t n)
{
    return gate_span_is(s, n, "host") || gate_span_is(s, n, "content-length") ||
           gate_span_is(s, n, "transfer-encoding") || gate_span_is(s, n, "content-type") ||
           gate_span_is(s, n, "authorization");
}

static int on_connection(struct fields *f, const char *value)
{
    const char *item;
    size_t n;

    while (gate_list_next(&value, &item, &n)) {
        if (!gate_all_of(item, n, GATE_TOKEN))
            return refuse(f, 400, "a Connection option is not a token");
        if (++f->options > MAX_OPTIONS) /* each header is looked up among them */
            return refuse(f, 400, "too many Connection options");
        if (never_hop_by_hop(item, n))
            return refuse(f, 400, "Connection names a header that cannot be removed");
        f->close |= gate_span_is(item, n, "close");
        f->keep_alive |= gate_span_is(item, n, "keep-alive");
        f->upgrade_token |= gate_span_is(item, n, "upgrade");
    }
    return 0;
}

static int on_length(struct fields *f, struct http_head *h, const char *value)
{
    size_t n = strspn(value, "0123456789");

    if (++f->lengths > 1)
        return refuse(f, 400, "more than one Content-Length");
    if (n == 0 || n > MAX_LENGTH_LEN || value[n] != '\0')
        return refuse(f, 400, "Content-Length is not a number");
    h->content_length = 0;
    for (size_t i = 0; i < n; i++)
        h->content_length = h->content_length * 10 + (uint64_t)(value[i] - '0');
    return 0;
}

static int on_coding(struct fields *f, const char *value)
{
    if (++f->codings > 1)
        return refuse(f, 400, "more than one Transfer-Encoding");
    if (strcasecmp(value, "chunked") != 0)
        return refuse(f, 400, "a Transfer-Encoding other than chunked");
    return 0;
}

static int on_host(struct fields *f, struct http_head *h, const char *value)
{
    if (++f->hosts > 1)
        return refuse(f, 400, "more than one Host");
    if (!gate_is_authority(value))
        return refuse(f, 400, "Host is not a host name with an optional port");
    h->host = value;
    return 0;
}

/* Servers that make no difference between '-' and other signs would frame the message by it. */
static int refuse_spelling(struct fields *f, const struct http_head *h, const char *name)
{
    if (h->method &&
        (http_name_like(name, "content-length") || http_name_like(name, "transfer-encoding")))
        return refuse(f, 400, "Content-Length or Transfer-Encoding spelled with another sign");
    return 0;
}

static int on_field(struct fields *f, struct http_head *h, const char *name, const char *value)
{
    switch (name[0] | 0x20) {
    case 'c':
        if (strcasecmp(name, "content-length") == 0)
            return on_length(f, h, value);
        if (strcasecmp(name, "connection") == 0)
            return on_connection(f, value);
        return refuse_spelling(f, h, name);
    case 't':
        if (strcasecmp(name, "transfer-encoding") == 0)
            return on_coding(f, value);
        return refuse_spelling(f, h, name);
    case 'h': return h->method && strcasecmp(name, "host") == 0 ? on_host(f, h, value) : 0;
    case 'e':
        if (h->method && strcasecmp(name, "expect") == 0 && strcasecmp(value, "100-continue") != 0)
            return refuse(f, 417, "an expectation other than 100-continue");
        return 0;
    case 'u': f->upgrade_field |= strcasecmp(name, "upgrade") == 0; return 0;
    default: return 0;
    }
}

/* A field line, NUL-terminated in place of its CR. */
static int one_line(struct fields *f, struct http_head *h, char *line, size_t n)
{
    char *colon = memchr(line, ':', n);
    char *value, *end = line + n;

    if (!colon || colon == line || !gate_all_of(line, (size_t)(colon - line), GATE_TOKEN))
        return refuse(f, 400, "a header line without a valid name");
    if (h->header_count == HTTP_MAX_HEADERS)
        return refuse(f, 431, "too many header fields");
    value = colon + 1;
    if (!gate_all_of(value, (size_t)(end - value), GATE_VALUE))
        return refuse(f, 400, "a control character in a header value");
    while (value < end && (*value == ' ' || *value == '\t'))
        value++;
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *colon = *end = '\0';
    h->headers[h->header_count++] = (struct http_header){line, value};
    return on_field(f, h, line, value);
}

static int all_lines(struct fields *f, struct http_head *h, char *p, char *end)
{
    while (p < end) {
        char *lf = memchr(p, '\n', (size_t)(end - p));
        size_t n;

        if (!lf || lf == p || lf[-1] != '\r')
            return refuse(f, 400, "a header line without CR LF");
        n = (size_t)(lf - p) - 1;
        if (n == 0)
            return lf + 1 == end ? 0 : refuse(f, 400, "bytes after the head");
        p[n] = '\0';
        if (one_line(f, h, p, n) < 0)
            return -EINVAL;
        p = lf + 1;
    }
    return refuse(f, 400, "a head without its empty line");
}

/* -- first lines ------------------------------------------------------------------------------- */

/* Copies the head into storage and cuts its first line off. */
static int first_line(struct fields *f, const char *data, size_t n, char *storage, char **rest)
{
    char *lf;

    memcpy(storage, data, n);
    storage[n] = '\0';
    lf = memchr(storage, '\n', n);
    if (!lf || lf == storage || lf[-1] != '\r')
        return refuse(f, 400, "a first line without CR LF");
    lf[-1] = '\0';
    *rest = lf + 1;
    if (strlen(storage) != (size_t)(lf - 1 - storage))
        return refuse(f, 400, "a NUL byte in the first line");
    return 0;
}

static int version(struct fields *f, const char *s, int *minor)
{
    if (strcmp(s, "HTTP/1.1") == 0)
        *minor = 1;
    else if (strcmp(s, "HTTP/1.0") == 0)
        *minor = 0;
    else if (strncmp(s, "HTTP/", 5) == 0 && s[5] >= '0' && s[5] <= '9' && s[6] == '.' &&
             s[7] >= '0' && s[7] <= '9' && s[8] == '\0')
        return refuse(f, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    else
        return refuse(f, 400, "a malformed HTTP version");
    return 0;
}

/* http://AUTHORITY/PATH becomes AUTHORITY, moved to the front of the target's room, and /PATH. The
 * rest of the target, or NULL. */
static char *absolute_form(struct fields *f, struct http_head *h, char *s)
{
    static const char scheme[] = "http://";
    size_t skip = sizeof(scheme) - 1, n;
    char *rest;

    if (strncasecmp(s, scheme, skip) != 0) {
        refuse(f, 400, "the request target is neither a path nor an http:// address");
        return NULL;
    }
    n = strcspn(s + skip, "/?");
    rest = s + skip + n;
    memmove(s, s + skip, n);
    s[n] = '\0';
    if (!gate_is_authority(s)) {
        refuse(f, 400, "the request target's host is not a host name with an optional port");
        return NULL;
    }
    if (*rest == '?') {
        refuse(f, 400, "the request target has no path");
        return NULL;
    }
    if (*rest == '\0')
        *--rest = '/'; /* one of the bytes that the authority was moved away from */
    h->authority = s;
    return rest;
}

/* Cuts path and query; the path gets its own copy behind the head in storage. */
static int target(struct fields *f, struct http_head *h, char *s, char *path_space)
{
    char *query;
    size_t n = strlen(s);

    if (strcmp(s, "*") == 0 && strcmp(h->method, "OPTIONS") == 0) {
        h->target = h->path = s;
        h->query = "";
        return 0;
    }
    if (s[0] != '/' && f->proxy) {
        s = absolute_form(f, h, s);
        if (!s)
            return -EINVAL;
        n = strlen(s);
    }
    if (s[0] != '/')
        return refuse(f, 400, "the request target does not start with '/'");
    if (!gate_all_of(s, n, GATE_TARGET))
        return refuse(f, 400, "a byte in the request target that must be escaped");
    query = memchr(s, '?', n);
    h->target = s;
    h->query = query ? query + 1 : "";
    n = query ? (size_t)(query - s) : n;
    memcpy(path_space, s, n);
    path_space[n] = '\0';
    h->path = path_space;
    return 0;
}

static int request_line(struct fields *f, struct http_head *h, char *line, char *path_space)
{
    char *space = strchr(line, ' ');
    char *second = space ? strchr(space + 1, ' ') : NULL;

    if (!second)
        return refuse(f, 400, "a request line without three parts");
    *space = *second = '\0';
    if (space == line || space - line > MAX_METHOD ||
        !gate_all_of(line, (size_t)(space - line), GATE_TOKEN))
        return refuse(f, 400, "a malformed method");
    if (strcmp(line, "CONNECT") == 0)
        return refuse(f, 400, "CONNECT is not served here");
    h->method = line;
    if (version(f, second + 1, &h->minor) < 0)
        return -EINVAL;
    return target(f, h, space + 1, path_space);
}

static int status_line(struct fields *f, struct http_head *h, char *line)
{
    char *s = strchr(line, ' ');

    if (!s)
        return refuse(f, 400, "a status line without a status");
    *s++ = '\0';
    if (version(f, line, &h->minor) < 0)
        return -EINVAL;
    if (strspn(s, "0123456789") != 3 || s[0] < '1' || s[0] > '5' || (s[3] != '\0' && s[3] != ' '))
        return refuse(f, 400, "a malformed status");
    h->status = (s[0] - '0') * 100 + (s[1] - '0') * 10 + (s[2] - '0');
    if (!gate_all_of(s + 3, strlen(s + 3), GATE_VALUE))
        return refuse(f, 400, "a control character in the status line");
    return 0;
}

/* -- whole heads ------------------------------------------------------------------------------- */

static int both_ends(struct fields *f, struct http_head *h)
{
    if (f->codings > 0 && f->lengths > 0)
        return refuse(f, 400, "both Content-Length and Transfer-Encoding");
    if (f->codings > 0 && h->minor == 0)
        return refuse(f, 400, "Transfer-Encoding in HTTP/1.0");
    h->keep_alive = !f->close && (h->minor == 1 || f->keep_alive);
    h->upgrade = h->minor == 1 && f->upgrade_token && f->upgrade_field;
    return 0;
}

static void start(struct http_head *h)
{
    h->method = NULL;
    h->target = h->path = h->query = h->host = h->authority = "";
    h->status = 0;
    h->minor = 0;
    h->keep_alive = h->upgrade = false;
    h->framing = HTTP_BODY_NONE;
    h->content_length = 0;
    h->header_count = 0;
}

static int request(const char *data, size_t n, bool proxy, char *storage, struct http_head *h,
                   const char **why)
{
    struct fields f = {.proxy = proxy};
    char *rest;

    start(h);
    if (first_line(&f, data, n, storage, &rest) < 0 ||
        request_line(&f, h, storage, storage + n + 1) < 0 ||
        all_lines(&f, h, rest, storage + n) < 0 || both_ends(&f, h) < 0)
        goto refused;
    if (h->minor == 1 && f.hosts == 0) {
        refuse(&f, 400, "HTTP/1.1 without Host");
        goto refused;
    }
    if (f.codings > 0)
        h->framing = HTTP_BODY_CHUNKED;
    else if (h->content_length > 0)
        h->framing = HTTP_BODY_LENGTH;
    return 0;
refused:
    *why = f.why;
    return f.status;
}

int gate_request(const char *data, size_t n, char *storage, struct http_head *h, const char **why)
{
    return request(data, n, false, storage, h, why);
}

int gate_proxy_request(const char *data, size_t n, char *storage, struct http_head *h,
                       const char **why)
{
    return request(data, n, true, storage, h, why);
}

/* RFC 9112 6.3 */
static enum http_framing response_framing(const struct fields *f, const struct http_head *h,
                                          const char *request_method)
{
    if (h->status < 200 || h->status == 204 || h->status == 304 ||
        strcmp(request_method, "HEAD") == 0)
        return HTTP_BODY_NONE;
    if (f->codings > 0)
        return HTTP_BODY_CHUNKED;
    if (f->lengths > 0)
        return h->content_length > 0 ? HTTP_BODY_LENGTH : HTTP_BODY_NONE;
    return HTTP_BODY_UNTIL_CLOSE;
}

int gate_response(const char *data, size_t n, const char *request_method, char *storage,
                  struct http_head *h, const char **why)
{
    struct fields f = {0};
    char *rest;

    start(h);
    if (first_line(&f, data, n, storage, &rest) < 0 || status_line(&f, h, storage) < 0 ||
        all_lines(&f, h, rest, storage + n) < 0 || both_ends(&f, h) < 0) {
        *why = f.why;
        return 502;
    }
    h->framing = response_framing(&f, h, request_method);
    if (h->framing == HTTP_BODY_UNTIL_CLOSE)
        h->keep_alive = false;
    return 0;
}
