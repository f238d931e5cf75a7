/* TLS of a client whose requests are read: what http's server reads and writes goes through the
 * connection's own layer (http/tls_conn.h), and contents are counted on the way, since the kernel's
 * counts are of records. */
#include "egress/flow/forward_internal.h"

#include "egress/flow/flow.h"
#include "http/tls_conn.h"

static void count(struct client_conn *l)
{
    struct flow *f = flow_find(l->egress, l->flow_id);

    if (!f)
        return;
    f->up_bytes = l->read_bytes;
    f->down_bytes = l->written_bytes;
}

static ssize_t read_contents(void *layer, void *out, size_t n, bool *end)
{
    struct client_conn *l = layer;
    ssize_t got = tls_conn_ops.read(l->layer, out, n, end);

    if (got > 0) {
        l->read_bytes += (uint64_t)got;
        count(l);
    }
    return got;
}

static ssize_t write_contents(void *layer, const struct iovec *iov, int n)
{
    struct client_conn *l = layer;
    ssize_t sent = tls_conn_ops.write(l->layer, iov, n);

    if (sent > 0) {
        l->written_bytes += (uint64_t)sent;
        count(l);
    }
    return sent;
}

static int announce_end(void *layer)
{
    const struct client_conn *l = layer;

    return tls_conn_ops.shut(l->layer);
}

static void close_layer(void *layer)
{
    struct client_conn *l = layer;

    tls_conn_ops.close(l->layer);
    l->layer = NULL;
}

/* open and begin are not called: the handshake was tlshand.c's. */
const struct http_layer_ops forward_client_layer = {
    .read = read_contents, .write = write_contents, .shut = announce_end, .close = close_layer};
