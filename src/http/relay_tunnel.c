/* After a 101 that the request asked for the exchange becomes a tunnel. Bytes go both ways as they
 * come, under the same back-pressure as contents; each side's end is passed on by itself, and both
 * end the relay. */

#include "http/relay_tunnel.h"

#include "http/relay_end.h"
#include "http/relay_head.h"
#include "http/relay_internal.h"
#include "http/response.h"

static void on_tunnel_data(struct http_exchange *x, const char *data, size_t len)
{
    struct relay *r = x->inner;

    if (!r)
        return;
    if (r->wire.write_broken) {
        http_exchange_abort(x);
        return;
    }
    relay_arm(r);
    relay_request_data(x, data, len);
}

void relay_tunnel_end(struct relay *r)
{
    struct http_exchange *x = relay_detach(r);

    wire_close(&r->wire, false);
    http_response_end(x);
}

static void on_tunnel_end(struct http_exchange *x)
{
    struct relay *r = x->inner;

    if (!r)
        return;
    r->client_ended = true;
    wire_shut(&r->wire);
    if (r->up_ended && r->wire.out.len == 0)
        relay_tunnel_end(r);
    else
        relay_arm(r);
}

void relay_tunnel_up_ended(struct relay *r)
{
    r->up_ended = true;
    wire_want_read(&r->wire, false);
    response_shut(r->x);
    if (r->client_ended && r->wire.out.len == 0)
        relay_tunnel_end(r);
    else
        relay_arm(r);
}

void relay_tunnel_data(struct relay *r, const char *data, size_t n)
{
    relay_arm(r);
    if (n > 0 && http_response_write(r->x, data, n) == 1)
        relay_set_behind(r, true);
}

void relay_tunnel_start(struct relay *r)
{
    struct buf *b = relay_response_head(r);

    response_put(b, "Connection: Upgrade\r\n");
    if (http_head_get(&r->head, "upgrade"))
        response_put_header(b, "Upgrade", http_head_get(&r->head, "upgrade"));
    response_put(b, "\r\n");
    r->tunnel = true;
    relay_arm(r);
    response_tunnel(r->x, b->data, b->len, on_tunnel_data, on_tunnel_end);
    if (r->o.filter && r->wire.out.len > 0)
        relay_window_full(r);
    relay_tunnel_data(r, r->in.data, r->in.len);
    buf_free(&r->in);
}
