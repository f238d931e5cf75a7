/* The nghttp2 session of a side and its bytes: input is fed in and becomes calls of h2_stream.c,
 * h2_request.c and h2_response.c; what the session wants to send is taken out as the socket takes
 * it, which is what flow control waits for. h2_meter.c limits frames that cost cay-egress more than
 * their sender. */

#include "egress/h2/h2_end.h"

#include "base/log.h"
#include "egress/h2/h2_internal.h"
#include "egress/h2/h2_meter.h"
#include "egress/h2/h2_request.h"
#include "egress/h2/h2_response.h"
#include "egress/h2/h2_stream.h"

#include <errno.h>
#include <malloc.h>
#include <string.h>

#define OUT_BYTES   ((size_t)64 * 1024) /* made ready for a socket at a time */
#define FRAME_BYTES ((size_t)16384 + 9) /* that nghttp2 makes at once, at most */

/* -- nghttp2's callbacks ----------------------------------------------------------------------- */

/* A head that goes on and on in pieces would be held without end. */
static int on_begin_frame(nghttp2_session *session, const nghttp2_frame_hd *hd, void *arg)
{
    struct h2_end *e = arg;

    if (hd->type == NGHTTP2_CONTINUATION && ++e->continued > H2_CONTINUED_MAX)
        return NGHTTP2_ERR_CALLBACK_FAILURE;
    return 0;
}

static struct h2_stream *find(nghttp2_session *session, int32_t id)
{
    return nghttp2_session_get_stream_user_data(session, id);
}

static int on_begin_headers(nghttp2_session *session, const nghttp2_frame *f, void *arg)
{
    struct h2_end *e = arg;
    struct h2_stream *s;

    h2_fields_reset(&e->fields);
    e->continued = 0;
    if (e->side != H2_CLIENT || f->headers.cat != NGHTTP2_HCAT_REQUEST)
        return 0;
    s = stream_new(e->conn, f->hd.stream_id);
    if (!s)
        end_reset(e, f->hd.stream_id, NGHTTP2_REFUSED_STREAM);
    nghttp2_session_set_stream_user_data(session, f->hd.stream_id, s);
    return 0;
}

static int on_header(nghttp2_session *session, const nghttp2_frame *f, const uint8_t *name,
                     size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                     void *arg)
{
    struct h2_end *e = arg;

    if (!find(session, f->hd.stream_id))
        return 0;
    return h2_fields_add(&e->fields, name, name_len, value, value_len) < 0
               ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE
               : 0;
}

/* A request with what no server should see is refused; of an answer that header is left out. */
static int on_invalid_header(nghttp2_session *session, const nghttp2_frame *f, const uint8_t *name,
                             size_t name_len, const uint8_t *value, size_t value_len, uint8_t flags,
                             void *arg)
{
    struct h2_end *e = arg;

    return e->side == H2_CLIENT ? NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE : 0;
}

/* A whole header block. */
static int on_headers(struct h2_end *e, struct h2_stream *s, const nghttp2_frame *f)
{
    bool ends = f->hd.flags & NGHTTP2_FLAG_END_STREAM;
    int rc = 0;

    if (e->side == H2_CLIENT && f->headers.cat == NGHTTP2_HCAT_REQUEST)
        request_begin(s, ends);
    else if (e->side == H2_SERVER && !s->begun)
        rc = response_head(s, ends);
    else
        rc = stream_trailers(s, e->side, &e->fields);
    return rc;
}

static int on_goaway(struct h2_end *e, const nghttp2_goaway *g)
{
    struct h2 *conn = e->conn;

    if (e->side == H2_CLIENT && conn->end[H2_SERVER].session && !conn->client_went)
        (void)nghttp2_submit_goaway(conn->end[H2_SERVER].session, NGHTTP2_FLAG_NONE, 0,
                                    g->error_code, NULL, 0);
    conn->client_went |= e->side == H2_CLIENT;
    h2_conn_drain(conn, e->side == H2_SERVER ? g->error_code : NGHTTP2_NO_ERROR);
    return 0;
}

static int on_frame(nghttp2_session *session, const nghttp2_frame *f, void *arg)
{
    struct h2_end *e = arg;
    struct h2_stream *s;
    int rc = 0;

    meter_frame(e, f);
    if (f->hd.type == NGHTTP2_GOAWAY)
        return on_goaway(e, &f->goaway);
    if (f->hd.type != NGHTTP2_HEADERS && f->hd.type != NGHTTP2_DATA)
        return 0;
    s = find(session, f->hd.stream_id);
    if (s && f->hd.type == NGHTTP2_HEADERS)
        rc = on_headers(e, s, f);
    if (s && rc == 0 && f->hd.flags & NGHTTP2_FLAG_END_STREAM)
        rc = stream_ended(s, e->side);
    if (rc < 0)
        stream_cut(s, NGHTTP2_INTERNAL_ERROR);
    return 0;
}

static int on_data(nghttp2_session *session, uint8_t flags, int32_t id, const uint8_t *data,
                   size_t n, void *arg)
{
    struct h2_end *e = arg;
    struct h2_stream *s = find(session, id);

    if (!s)
        end_credit(e, id, n, n);
    else if (stream_data(s, e->side, (const char *)data, n) < 0)
        stream_cut(s, NGHTTP2_INTERNAL_ERROR);
    return 0;
}

static int on_close(nghttp2_session *session, int32_t id, uint32_t code, void *arg)
{
    struct h2_end *e = arg;
    struct h2_stream *s = find(session, id);

    if (s)
        stream_closed(s, e->side, code);
    return 0;
}

static int on_sent(nghttp2_session *session, const nghttp2_frame *f, void *arg)
{
    struct h2_end *e = arg;
    bool head = f->hd.type == NGHTTP2_HEADERS;
    struct h2_stream *s = f->hd.stream_id > 0 ? find(session, f->hd.stream_id) : NULL;

    if (f->hd.type == NGHTTP2_DATA)
        meter_data_sent(e);
    if (f->hd.type == NGHTTP2_RST_STREAM)
        meter_reset(e, s);
    if (!head && (e->side == H2_SERVER || f->hd.type != NGHTTP2_DATA))
        return 0;
    if (s && e->side == H2_SERVER && f->headers.cat == NGHTTP2_HCAT_REQUEST)
        stream_begin_wide(s);
    if (!s || e->side == H2_SERVER)
        return 0;
    if (head)
        response_head_sent(s, f->headers.nva, f->headers.nvlen);
    if (f->hd.flags & NGHTTP2_FLAG_END_STREAM)
        s->left_ms = uv_now(e->poll.loop);
    return 0;
}

/* -- the session ------------------------------------------------------------------------------- */

/* Requests to a server have secrets in them, and nghttp2 keeps copies: they are wiped when they are
 * freed. */
static void *mem_malloc(size_t n, void *arg)
{
    return malloc(n);
}

static void mem_free(void *p, void *arg)
{
    if (p)
        explicit_bzero(p, malloc_usable_size(p));
    free(p);
}

static void *mem_calloc(size_t n, size_t size, void *arg)
{
    return calloc(n, size);
}

static void *mem_realloc(void *p, size_t n, void *arg)
{
    size_t had = p ? malloc_usable_size(p) : 0;
    void *q;

    if (n <= had)
        return p;
    q = malloc(n);
    if (q && p) {
        memcpy(q, p, had);
        mem_free(p, arg);
    }
    return q;
}

static nghttp2_session_callbacks *callbacks(void)
{
    static nghttp2_session_callbacks *c; /* the same for all, as long as the program lives */

    if (c || nghttp2_session_callbacks_new(&c) != 0)
        return c;
    nghttp2_session_callbacks_set_on_begin_frame_callback(c, on_begin_frame);
    nghttp2_session_callbacks_set_on_begin_headers_callback(c, on_begin_headers);
    nghttp2_session_callbacks_set_on_header_callback(c, on_header);
    nghttp2_session_callbacks_set_on_invalid_header_callback(c, on_invalid_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(c, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(c, on_close);
    nghttp2_session_callbacks_set_on_frame_send_callback(c, on_sent);
    return c;
}

static int make_session(struct h2_end *e, nghttp2_option *option)
{
    static nghttp2_mem wiping = {NULL, mem_malloc, mem_free, mem_calloc, mem_realloc};

    nghttp2_option_set_no_auto_window_update(option, 1);
    nghttp2_option_set_peer_max_concurrent_streams(option, H2_STREAMS_MAX);
    nghttp2_option_set_no_closed_streams(option, 1);
    if (e->side == H2_CLIENT)
        return nghttp2_session_server_new2(&e->session, callbacks(), e, option);
    return nghttp2_session_client_new3(&e->session, callbacks(), e, option, &wiping);
}

static int greet(struct h2_end *e)
{
    static const nghttp2_settings_entry to_client[] = {
        {NGHTTP2_SETTINGS_MAX_CONCURRENT_STREAMS, H2_STREAMS_MAX},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_STREAM_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, H2_LIST_BYTES_MAX}};
    static const nghttp2_settings_entry to_server[] = {
        {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
        {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, H2_STREAM_BYTES},
        {NGHTTP2_SETTINGS_MAX_HEADER_LIST_SIZE, H2_LIST_BYTES_MAX}};
    int rc = nghttp2_submit_settings(e->session, NGHTTP2_FLAG_NONE,
                                     e->side == H2_CLIENT ? to_client : to_server,
                                     ARRAY_SIZE(to_client));

    if (rc == 0)
        rc = nghttp2_session_set_local_window_size(e->session, NGHTTP2_FLAG_NONE, 0,
                                                   H2_WINDOW_BYTES);
    return rc;
}

int end_open(struct h2_end *e, struct h2 *conn, enum side side, const struct tls_endpoint *io)
{
    nghttp2_option *option = NULL;
    int rc;

    e->conn = conn;
    e->side = side;
    e->io = *io;
    meter_begin(e);
    buf_init(&e->out, OUT_BYTES + FRAME_BYTES);
    h2_fields_reset(&e->fields);
    if (!callbacks() || nghttp2_option_new(&option) != 0)
        return -ENOMEM;
    rc = make_session(e, option);
    nghttp2_option_del(option);
    return rc == 0 && greet(e) == 0 ? 0 : -ENOMEM;
}

static void wipe(struct buf *b)
{
    if (b->base)
        explicit_bzero(b->base, b->cap);
    buf_free(b);
}

void end_close(struct h2_end *e)
{
    nghttp2_session_del(e->session);
    e->session = NULL;
    e->ended = e->broken = true;
    tls_endpoint_close(&e->io, true);
    wipe(&e->out);
    h2_fields_free(&e->fields);
}

/* -- bytes ------------------------------------------------------------------------------------- */

bool end_take(struct h2_end *e, const char *data, size_t n)
{
    ssize_t got;

    meter_bytes(e, (const uint8_t *)data, n);
    got = nghttp2_session_mem_recv(e->session, (const uint8_t *)data, n);
    if (got == (ssize_t)n)
        return true;
    log_debug("HTTP/2: a %s is cut: %s", e->side == H2_CLIENT ? "client" : "server",
              got < 0 ? nghttp2_strerror((int)got) : "it says too much");
    return false;
}

static int fill(struct h2_end *e)
{
    const uint8_t *data;
    ssize_t n = 1;

    if (e->out.len == 0)
        e->took_ms = uv_now(e->poll.loop);
    /* All the room that it will need: one that grows leaves copies of secrets behind. */
    if (e->side == H2_SERVER && nghttp2_session_want_write(e->session) &&
        buf_reserve(&e->out, OUT_BYTES + FRAME_BYTES - e->out.len) < 0)
        return -ENOMEM;
    while (e->out.len < OUT_BYTES && (n = nghttp2_session_mem_send(e->session, &data)) > 0)
        if (buf_append(&e->out, data, (size_t)n) < 0)
            return -ENOMEM;
    return n < 0 ? -ENOMEM : 0;
}

/* A piece, as long as its owner has time: a client that opens its windows at once after it held
 * them shut would be sent megabytes in one event. */
static size_t most_to_write(const struct h2_end *e, uint64_t may_send)
{
    size_t n = MIN(e->out.len, turns_piece(e->conn->all->turns));

    return (size_t)MIN((uint64_t)n, MAX(may_send, (uint64_t)H2_PIECE_BYTES));
}

bool end_flush(struct h2_end *e)
{
    bool any = false;
    uint64_t may_send = UINT64_MAX;
    ssize_t n = 0;

    while (e->session && !e->broken && n != -EAGAIN &&
           !(any && turns_is_over(e->conn->all->turns)) &&
           (e->side == H2_SERVER || e->out.len > 0 || h2_conn_may(e->conn, true))) {
        if (fill(e) < 0)
            e->broken = true;
        if (e->broken || e->out.len == 0)
            break;
        if (e->side == H2_CLIENT)
            may_send = h2_conn_may_send(e->conn);
        if (may_send == 0)
            break;
        n = tls_endpoint_write(&e->io, e->out.data, most_to_write(e, may_send));
        if (n < 0) {
            e->broken = n != -EAGAIN;
            continue;
        }
        e->written_bytes += (size_t)n;
        e->took_ms = e->conn->moved_ms = uv_now(e->poll.loop);
        buf_consume(&e->out, (size_t)n);
        any = true;
    }
    if (e->out.len == 0 || e->broken)
        wipe(&e->out);
    return any;
}

static bool is_full(const struct h2_end *e)
{
    return e->session && nghttp2_session_get_outbound_queue_size(e->session) >= H2_QUEUED_MAX;
}

void end_watch(struct h2_end *e)
{
    struct h2 *conn = e->conn;
    bool lingers = e->side == H2_CLIENT && conn->linger_ms;
    int events = 0;

    if (!e->session)
        return;
    if (!e->ended && (lingers || (!is_full(e) && !is_full(&conn->end[OTHER(e->side)]))))
        events |= UV_READABLE;
    if (!e->broken && (e->out.len > 0 || e->io.wants_write ||
                       nghttp2_session_want_write(e->session) || (lingers && !e->io.shut)))
        events |= UV_WRITABLE;
    if (events == e->events)
        return;
    e->events = events;
    if (events)
        uv_poll_start(&e->poll, events, h2_conn_event);
    else
        uv_poll_stop(&e->poll);
}

/* -- windows and resets ------------------------------------------------------------------------ */

void end_credit(struct h2_end *e, int32_t id, size_t stream, size_t connection)
{
    if (!e->session)
        return;
    if (id > 0 && stream > 0)
        (void)nghttp2_session_consume_stream(e->session, id, stream);
    if (connection > 0)
        (void)nghttp2_session_consume_connection(e->session, connection);
}

/* The bytes that nghttp2 adds to each stream's window when the peer acknowledges the settings. */
static size_t unacknowledged(const struct h2_end *e)
{
    return H2_STREAM_BYTES -
           nghttp2_session_get_local_settings(e->session, NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE);
}

void end_set_window(struct h2_end *e, int32_t id, size_t window, size_t before)
{
    e->grown_bytes += window - before; /* modulo: it may be less */
    if (!e->session)
        return;
    if (id > 0)
        (void)nghttp2_session_set_local_window_size(e->session, NGHTTP2_FLAG_NONE, id,
                                                    (int32_t)(window - unacknowledged(e)));
    (void)nghttp2_session_set_local_window_size(e->session, NGHTTP2_FLAG_NONE, 0,
                                                (int32_t)(H2_WINDOW_BYTES + e->grown_bytes));
}

void end_reset(struct h2_end *e, int32_t id, uint32_t code)
{
    struct h2_stream *s;

    if (!e->session || id <= 0)
        return;
    s = find(e->session, id);
    if (s)
        s->reset_here[e->side] = true;
    (void)nghttp2_submit_rst_stream(e->session, NGHTTP2_FLAG_NONE, id, code);
}
