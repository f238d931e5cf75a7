#include "http/relay_head.h"

#include "http/relay_internal.h"
#include "http/response.h"

#include <string.h>
#include <strings.h>

/* Fields that concern one connection only, or are written anew. RFC 9110 7.6.1. */
static bool hop_by_hop(const struct http_head *h, const char *name)
{
    static const char *const names[] = {"connection", "keep-alive",          "proxy-connection",
                                        "te",         "transfer-encoding",   "upgrade",
                                        "expect",     "proxy-authorization", "http2-settings"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcasecmp(names[i], name) == 0)
            return true;
    for (size_t i = 0; i < h->header_count; i++)
        if (strcasecmp(h->headers[i].name, "connection") == 0 &&
            gate_list_has(h->headers[i].value, name))
            return true;
    return false;
}

/* Announces trailers, which the request has no more. */
static bool announces_dropped(const struct relay *r, const char *name)
{
    return r->o.drop_trailers && strcasecmp(name, "trailer") == 0;
}

static bool replaced(const struct http_relay_options *o, const char *name)
{
    for (size_t i = 0; i < o->add_count; i++)
        if (http_name_like(o->add[i].name, name))
            return true;
    for (size_t i = 0; o->remove && o->remove[i]; i++)
        if (http_name_like(o->remove[i], name))
            return true;
    return false;
}

/* HTTP/2 by upgrade would be a second protocol behind the checks made here; it is obsolete too. */
static bool may_upgrade(const struct http_relay_options *o, const struct http_head *h)
{
    const char *to = http_head_get(h, "upgrade");

    if (o->websocket_only && to && strcasecmp(to, "websocket") != 0)
        return false;
    return h->upgrade && h->framing == HTTP_BODY_NONE && to && !gate_list_has(to, "h2c") &&
           strncasecmp(to, "h2", 2) != 0;
}

void relay_request_head(struct relay *r, struct buf *b)
{
    const struct http_head *h = &r->x->head;
    const char *host = r->o.host ? r->o.host : h->host[0] ? h->host : "localhost";

    response_put(b, h->method);
    response_put(b, " ");
    response_put(b, h->target);
    response_put(b, " HTTP/1.1\r\n");
    response_put_header(b, "Host", host);
    for (size_t i = 0; i < h->header_count; i++) {
        const char *name = h->headers[i].name;

        if (strcasecmp(name, "host") != 0 && !hop_by_hop(h, name) && !replaced(&r->o, name) &&
            !announces_dropped(r, name))
            response_put_header(b, name, h->headers[i].value);
    }
    for (size_t i = 0; i < r->o.add_count; i++)
        response_put_header(b, r->o.add[i].name, r->o.add[i].value);
    if (h->framing == HTTP_BODY_CHUNKED)
        response_put(b, "Transfer-Encoding: chunked\r\n");
    r->upgrade_requested = may_upgrade(&r->o, h);
    if (r->upgrade_requested) {
        response_put(b, "Connection: Upgrade\r\n");
        response_put_header(b, "Upgrade", http_head_get(h, "upgrade"));
    } else if (!r->o.on_reusable) {
        response_put(b, "Connection: close\r\n");
    }
    response_put(b, "\r\n");
}

static void response_headers(struct relay *r, struct buf *b)
{
    const struct http_head *h = &r->head;
    static const char cors[] = "access-control-allow-origin";
    bool no_length = h->status < 200 || h->status == 204 || h->framing == HTTP_BODY_CHUNKED;

    for (size_t i = 0; i < h->header_count; i++) {
        const char *name = h->headers[i].name;

        if (hop_by_hop(h, name) || (no_length && strcasecmp(name, "content-length") == 0) ||
            (r->o.add_cors && strcasecmp(name, cors) == 0))
            continue;
        response_put_header(b, name, h->headers[i].value);
    }
    if (r->o.add_cors)
        response_put(b, "Access-Control-Allow-Origin: *\r\n");
}

struct buf *relay_response_head(struct relay *r)
{
    struct buf *b = &r->x->conn->server->scratch;

    buf_clear(b);
    response_put(b, "HTTP/1.1 ");
    response_put_number(b, (uint64_t)r->head.status);
    response_put(b, " ");
    response_put(b, http_status_text(r->head.status));
    response_put(b, "\r\n");
    response_headers(r, b);
    return b;
}
