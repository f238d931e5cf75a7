#include "egress/h2/h2_head.h"

#include "http/gate.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define FIRST_BYTES ((size_t)4096) /* of a head: most need no more */

/* -- what came --------------------------------------------------------------------------------- */

/* An answer's may have what is not to come back. */
static void wipe(struct buf *b)
{
    if (b->base)
        explicit_bzero(b->base, b->cap);
    buf_free(b);
}

void h2_fields_reset(struct h2_fields *f)
{
    wipe(&f->text);
    buf_init(&f->text, (size_t)2 * H2_LIST_BYTES_MAX);
    f->count = f->list_bytes = 0;
    f->over = false;
}

void h2_fields_free(struct h2_fields *f)
{
    wipe(&f->text);
    f->count = 0;
}

static int put(struct buf *b, const uint8_t *s, size_t n, uint32_t *at)
{
    int rc;

    *at = (uint32_t)b->len;
    rc = buf_append(b, s, n);
    return rc < 0 ? rc : buf_append(b, "", 1);
}

int h2_fields_add(struct h2_fields *f, const uint8_t *name, size_t name_len, const uint8_t *value,
                  size_t value_len)
{
    int rc;

    f->list_bytes += name_len + value_len + 32;
    if (f->over || f->count == H2_FIELDS_MAX || f->list_bytes > H2_LIST_BYTES_MAX ||
        memchr(name, 0, name_len) || memchr(value, 0, value_len)) {
        f->over = true;
        return 0;
    }
    rc = f->text.base ? 0 : buf_reserve(&f->text, FIRST_BYTES);
    if (rc == 0)
        rc = put(&f->text, name, name_len, &f->at[f->count].name);
    if (rc == 0)
        rc = put(&f->text, value, value_len, &f->at[f->count].value);
    f->count += rc == 0;
    return rc;
}

const char *h2_fields_name(const struct h2_fields *f, size_t i)
{
    return f->text.data + f->at[i].name;
}

const char *h2_fields_value(const struct h2_fields *f, size_t i)
{
    return f->text.data + f->at[i].value;
}

const char *h2_fields_get(const struct h2_fields *f, const char *name)
{
    for (size_t i = 0; i < f->count; i++)
        if (strcmp(h2_fields_name(f, i), name) == 0)
            return h2_fields_value(f, i);
    return NULL;
}

int h2_fields_status(const struct h2_fields *f)
{
    const char *s = h2_fields_get(f, ":status");

    if (!s || strlen(s) != 3 || strspn(s, "0123456789") != 3 || s[0] < '1' || s[0] > '5')
        return 0;
    return (s[0] - '0') * 100 + (s[1] - '0') * 10 + (s[2] - '0');
}

/* -- a request --------------------------------------------------------------------------------- */

bool h2_is_hop(const char *name)
{
    static const char *const names[] = {"connection",        "keep-alive", "proxy-connection",
                                        "transfer-encoding", "upgrade",    "proxy-authorization",
                                        "http2-settings"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcasecmp(names[i], name) == 0)
            return true;
    return false;
}

/* Crumbs of one cookie header are one again: RFC 9113 8.2.3. */
static int put_cookies(const struct h2_fields *f, struct buf *b)
{
    const char *between = "cookie: ";
    int rc = 0;

    for (size_t i = 0; i < f->count && rc == 0; i++) {
        if (strcmp(h2_fields_name(f, i), "cookie") != 0)
            continue;
        rc = buf_printf(b, "%s%s", between, h2_fields_value(f, i));
        between = "; ";
    }
    return rc == 0 ? buf_append(b, "\r\n", 2) : rc;
}

/* The lines after the first. -EBADMSG: what HTTP/2 does not have. */
static int put_lines(const struct h2_fields *f, struct buf *b)
{
    bool cookies = false;
    int rc = 0;

    for (size_t i = 0; i < f->count && rc == 0; i++) {
        const char *name = h2_fields_name(f, i), *value = h2_fields_value(f, i);

        if (name[0] == ':')
            continue;
        if (strpbrk(name, ": \t\r\n") || strpbrk(value, "\r\n") ||
            (h2_is_hop(name) && strcmp(name, "proxy-authorization") != 0))
            return -EBADMSG;
        if (strcmp(name, "cookie") == 0) {
            rc = cookies ? 0 : put_cookies(f, b);
            cookies = true;
        } else {
            rc = buf_printf(b, "%s: %s\r\n", name, value);
        }
    }
    return rc == 0 ? buf_append(b, "\r\n", 2) : rc;
}

/* The head in the words of HTTP/1.1. */
static int put_head(const struct h2_fields *f, const char *method, const char *path,
                    const char *authority, struct buf *b)
{
    int rc;

    if (strpbrk(method, " \t\r\n") || strpbrk(path, " \t\r\n") || strpbrk(authority, "\r\n"))
        return -EBADMSG;
    rc = buf_printf(b, "%s %s HTTP/1.1\r\n", method, path);
    if (rc == 0 && !h2_fields_get(f, "host"))
        rc = buf_printf(b, "host: %s\r\n", authority);
    return rc == 0 ? put_lines(f, b) : rc;
}

static void set_framing(struct http_head *h, bool ends)
{
    if (ends)
        h->framing = HTTP_BODY_NONE;
    else if (!http_head_get(h, "content-length"))
        h->framing = HTTP_BODY_CHUNKED;
}

static int pass_gate(const struct buf *b, const char *authority, struct arena *a,
                     struct http_head **out, const char **why)
{
    char *storage = arena_alloc(a, gate_storage_bytes(b->len));
    struct http_head *h = arena_alloc(a, sizeof(*h));
    int status;

    *why = "out of memory";
    if (!storage || !h)
        return 503;
    status = gate_request(b->data, b->len, storage, h, why);
    if (status != 0)
        return status;
    h->authority = arena_strdup(a, authority);
    *out = h;
    return h->authority ? 0 : 503;
}

static int refuse(const char **why, int status, const char *text)
{
    *why = text;
    return status;
}

/* As llhttp would have it, and the rules name them: servers that take "delete" for DELETE are not
 * to be asked what a rule of DELETE decides. */
static bool is_method(const char *s)
{
    return *s && s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-_")] == '\0';
}

int h2_head_request(const struct h2_fields *f, bool ends, struct arena *a, struct http_head **out,
                    const char **why)
{
    const char *method = h2_fields_get(f, ":method"), *path = h2_fields_get(f, ":path"),
               *authority = h2_fields_get(f, ":authority"), *host = h2_fields_get(f, "host"),
               *scheme = h2_fields_get(f, ":scheme");
    bool connect = method && strcmp(method, "CONNECT") == 0;
    CLEANUP_BUF struct buf b;
    int rc;

    buf_init(&b, (size_t)2 * HTTP_MAX_HEAD_BYTES);
    if (method && !is_method(method))
        return refuse(why, 400, "the request's :method is not in capital letters");
    if (f->over)
        return refuse(why, 431, "the request's headers are too many or too large");
    if (!method || (!connect && (!path || !scheme || strcmp(scheme, "https") != 0)))
        return refuse(why, 400, "the request has not :method, :path and the :scheme https");
    if ((!authority && !host) || (authority && !gate_is_authority(authority)))
        return refuse(why, 400,
                      "the request has no :authority that is a host with an optional port");
    /* The gate serves no CONNECT; here it is evaluated as a request like any other. */
    rc = put_head(f, connect ? "OPTIONS" : method, connect ? "/" : path,
                  authority ? authority : host, &b);
    if (rc < 0)
        return refuse(why, rc == -ENOMEM ? 503 : 400, "the request's head is not well-formed");
    rc = pass_gate(&b, authority ? authority : "", a, out, why);
    if (rc != 0)
        return rc;
    set_framing(*out, ends);
    if (connect)
        (*out)->method = "CONNECT";
    return 0;
}

/* -- what goes --------------------------------------------------------------------------------- */

void h2_lines_add(struct h2_lines *l, const char *name, const char *value, bool secret)
{
    if (l->count == H2_LINES_MAX) {
        l->over = true;
        return;
    }
    l->list[l->count++] = (nghttp2_nv){.name = (uint8_t *)name,
                                       .value = (uint8_t *)value,
                                       .namelen = strlen(name),
                                       .valuelen = strlen(value),
                                       .flags = secret ? NGHTTP2_NV_FLAG_NO_INDEX
                                                       : NGHTTP2_NV_FLAG_NONE};
}
