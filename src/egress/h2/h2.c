/* A connection lives: started (both sessions greet), serving (streams come and go:
 * h2_stream.c), draining (no new streams; GOAWAY after the answers that are whole), lingering
 * (all is said; later bytes are read and dropped), closed when its handles are. Losing the server
 * answers or breaks off its streams and drains the client's side. nghttp2's callbacks may not
 * destroy anything: they mark, and the turn after them does it. */

#include "egress/h2/h2.h"

#include "egress/h2/h2_end.h"
#include "egress/h2/h2_internal.h"
#include "egress/h2/h2_response.h"
#include "egress/h2/h2_share.h"
#include "egress/h2/h2_stream.h"

#include <errno.h>
#include <string.h>

#define SWEEP_MS 1000u

/* -- all of them ------------------------------------------------------------------------------- */

int h2s_new(uv_loop_t *loop, struct h2s **out)
{
    struct h2s *all = calloc(1, sizeof(*all));

    if (!all)
        return -ENOMEM;
    all->loop = loop;
    uv_timer_init(loop, &all->sweep);
    all->sweep.data = all;
    *out = all;
    return 0;
}

void h2s_set_turns(struct h2s *all, struct turns *t)
{
    all->turns = t;
}

static void on_sweep_closed(uv_handle_t *h)
{
    free(h->data);
}

static void free_when_empty(struct h2s *all)
{
    if (all->freeing && all->count == 0)
        uv_close((uv_handle_t *)&all->sweep, on_sweep_closed);
}

void h2s_free(struct h2s *all)
{
    if (!all)
        return;
    for (struct h2 *conn = all->first, *next; conn; conn = next) {
        next = conn->next;
        h2_close(conn);
    }
    all->freeing = true;
    free_when_empty(all);
}

static bool has_work(const struct h2 *conn, bool unzips)
{
    const struct h2_stream *s = conn->streams;

    while (s && !(unzips ? (void *)s->unzip : (void *)s->redact))
        s = s->next;
    return s;
}

bool h2_conn_may(struct h2 *conn, bool unzip)
{
    if (turns_may(conn->all->turns, &conn->turn) || !has_work(conn, unzip))
        return true;
    turns_wait(conn->all->turns, &conn->turn);
    return false;
}

/* Where another owner is beside, the event is to be short: a record of what is searched. */
static size_t most_to_read(const struct h2_end *e)
{
    size_t piece = turns_piece(e->conn->all->turns);

    if (piece >= TLS_ENDPOINT_READ_BYTES)
        return TLS_ENDPOINT_READ_BYTES;
    return e->side == H2_SERVER && has_work(e->conn, false) ? HTTP_LAYER_READ_BYTES : piece;
}

void h2_conn_searched(struct h2 *conn, size_t n)
{
    turns_spend(conn->all->turns, n);
}

/* -- the end ----------------------------------------------------------------------------------- */

static void handle_closed(struct h2 *conn)
{
    struct h2s *all = conn->all;

    if (--conn->handles > 0)
        return;
    *(conn->prev ? &conn->prev->next : &all->first) = conn->next;
    if (conn->next)
        conn->next->prev = conn->prev;
    all->count--;
    if (all->count == 0)
        uv_timer_stop(&all->sweep);
    free(conn);
    free_when_empty(all);
}

static void on_closed(uv_handle_t *h)
{
    handle_closed(((struct h2_end *)h->data)->conn);
}

static void on_pause_closed(uv_handle_t *h)
{
    handle_closed(h->data);
}

/* Not from inside a callback of nghttp2. */
static void destroy(struct h2 *conn)
{
    if (conn->closed)
        return;
    conn->closed = true;
    turns_leave(conn->all->turns, &conn->turn);
    uv_close((uv_handle_t *)&conn->pause, on_pause_closed);
    for (int i = 0; i < H2_SIDES; i++) {
        struct h2_end *e = &conn->end[i];

        if (e->has_poll)
            uv_close((uv_handle_t *)&e->poll, on_closed);
        end_close(e);
    }
    while (conn->streams)
        stream_free(conn->streams);
    held_answer_close(&conn->held_answer);
    h2_conn_leave_share(conn);
}

void h2_close(struct h2 *conn)
{
    h2_conn_leave_share(conn);
    conn->dead = true;
    if (!conn->pumping)
        destroy(conn);
}

static uint64_t report_moved(struct h2 *conn)
{
    return conn->o.on_moved ? conn->o.on_moved(conn->o.arg, conn->end[H2_CLIENT].read_bytes,
                                               conn->end[H2_CLIENT].written_bytes)
                            : UINT64_MAX;
}

uint64_t h2_conn_may_send(struct h2 *conn)
{
    return conn->dead ? 0 : report_moved(conn);
}

static void die(struct h2 *conn)
{
    (void)report_moved(conn);
    if (conn->closed) /* the callee has closed it */
        return;
    destroy(conn);
    conn->o.on_end(conn->o.arg);
}

/* -- the server's side is over ----------------------------------------------------------------- */

/* A stream without an answer is answered here; one whose answer has begun is reset. */
static void fail_stream(struct h2_stream *s)
{
    if (!s->open[H2_SERVER])
        return; /* it was answered here, or is not sent yet */
    if (s->begun || !s->open[H2_CLIENT]) {
        stream_closed(s, H2_SERVER, NGHTTP2_INTERNAL_ERROR);
        return;
    }
    s->open[H2_SERVER] = false;
    response_fail(s, 502, "the server has closed the connection before it answered");
}

static void lose_server(struct h2 *conn)
{
    struct h2_end *e = &conn->end[H2_SERVER];

    uv_close((uv_handle_t *)&e->poll, on_closed);
    e->has_poll = false;
    end_close(e);
    for (struct h2_stream *s = conn->streams, *next; s; s = next) {
        next = s->next;
        fail_stream(s);
    }
    h2_conn_drain(conn, NGHTTP2_NO_ERROR);
}

static bool is_over(const struct h2_end *e)
{
    return e->broken ||
           (e->out.len == 0 && (e->ended || (!nghttp2_session_want_read(e->session) &&
                                             !nghttp2_session_want_write(e->session))));
}

/* -- the client's ------------------------------------------------------------------------------ */

void h2_conn_drain(struct h2 *conn, uint32_t code)
{
    if (conn->draining)
        return;
    conn->draining = true;
    conn->drain_code = code;
}

/* Tells the client to come again on another connection: after the answers that are whole, since
 * some clients read nothing after it. True when that is to be sent now. */
static bool say_goodbye(struct h2 *conn)
{
    nghttp2_session *client = conn->end[H2_CLIENT].session;

    if (!conn->draining || conn->announced)
        return false;
    for (const struct h2_stream *s = conn->streams; s; s = s->next)
        if (s->open[H2_CLIENT] && s->to[H2_CLIENT].ended && !s->to[H2_CLIENT].left)
            return false;
    conn->announced = true;
    (void)nghttp2_submit_goaway(client, NGHTTP2_FLAG_NONE,
                                nghttp2_session_get_last_proc_stream_id(client), conn->drain_code,
                                NULL, 0);
    return true;
}

/* Everything is sent. Bytes that the client still sends are read and dropped, as a reset would lose
 * the last bytes sent. True when it is over. */
static bool linger(struct h2 *conn)
{
    struct h2_end *e = &conn->end[H2_CLIENT];

    if (conn->linger_ms == 0)
        conn->linger_ms = uv_now(conn->all->loop);
    return e->ended || e->broken || (tls_endpoint_shut(&e->io) && e->ended);
}

static bool is_finished(struct h2 *conn)
{
    struct h2_end *e = &conn->end[H2_CLIENT];

    if (e->ended || e->broken || conn->linger_ms)
        return conn->linger_ms ? linger(conn) : true;
    if (is_over(e) || (conn->draining && conn->stream_count == 0 && e->out.len == 0 &&
                       !nghttp2_session_want_write(e->session)))
        return linger(conn);
    return false;
}

void h2_conn_pump(struct h2 *conn)
{
    struct h2_end *server = &conn->end[H2_SERVER];
    bool more = true;

    conn->pumping = true;
    while (more && !conn->dead) {
        more = end_flush(&conn->end[H2_CLIENT]);
        more |= end_flush(server);
        if (server->session && is_over(server)) {
            lose_server(conn);
            more = true;
        }
        more |= say_goodbye(conn);
        more &= !turns_is_over(conn->all->turns); /* the rest waits for its sockets */
    }
    conn->pumping = false;
    if (conn->dead) {
        destroy(conn);
    } else if (is_finished(conn)) {
        die(conn);
    } else {
        end_watch(&conn->end[H2_CLIENT]);
        end_watch(server);
    }
}

/* -- events ------------------------------------------------------------------------------------ */

bool h2_conn_may_go_on(struct h2 *conn)
{
    return !conn->o.may_go_on || conn->o.may_go_on(conn->o.arg);
}

static void read_some(struct h2_end *e)
{
    struct h2 *conn = e->conn;
    char *data = conn->all->scratch;
    ssize_t n = tls_endpoint_read(&e->io, data, most_to_read(e));

    if (n == -EAGAIN)
        return;
    conn->moved_ms = uv_now(conn->all->loop);
    e->ended |= n <= 0 || e->io.clean;
    if (n <= 0)
        return;
    e->read_bytes += (size_t)n;
    if (e->side == H2_CLIENT && conn->linger_ms)
        return;
    conn->pumping = true;
    if ((e->side == H2_SERVER || h2_conn_may_send(conn) > 0) && !end_take(e, data, (size_t)n))
        e->broken = true;
    conn->pumping = false;
    if (e->side == H2_SERVER) /* it may have said what it was told */
        explicit_bzero(data, (size_t)n);
}

static void on_event(struct h2_end *e, int status, int events)
{
    if (status < 0) /* an error waits in the socket, perhaps after bytes */
        events = UV_READABLE | UV_WRITABLE;
    if ((events & UV_READABLE || e->io.wants_write) && !e->ended &&
        (e->side == H2_CLIENT || h2_conn_may(e->conn, false)))
        read_some(e);
    h2_conn_pump(e->conn);
}

void h2_conn_event(uv_poll_t *poll, int status, int events)
{
    struct h2_end *e = poll->data;
    struct turns *turns = e->conn->all->turns;
    bool entered = turns_enter(turns, e->conn->turn.owner, &e->round);

    if (status < 0)
        e->events = 0; /* libuv has stopped */
    if (entered || status < 0) {
        if (h2_conn_may_go_on(e->conn))
            on_event(e, status, events);
        else if (!e->conn->closed)
            end_watch(e);
    }
    if (entered)
        turns_exit(turns);
}

static void on_turn(void *arg)
{
    struct h2 *conn = arg;
    struct h2_end *server = &conn->end[H2_SERVER];

    if (!h2_conn_may_go_on(conn)) {
        if (!conn->closed)
            turns_wait(conn->all->turns, &conn->turn);
        return;
    }
    h2_conn_pump(conn); /* data that waits to be decompressed comes before data in the socket */
    if (conn->closed || !server->session || !(server->events & UV_READABLE) || server->ended ||
        !h2_conn_may(conn, false))
        return;
    read_some(server);
    h2_conn_pump(conn);
}

static bool is_stuck(const struct h2_end *e, uint64_t now)
{
    return e->session && e->out.len > 0 && now - e->took_ms > H2_STUCK_MS;
}

static void sweep_one(struct h2 *conn, uint64_t now)
{
    uint64_t idle = now - conn->moved_ms;

    (void)report_moved(conn);
    if (conn->closed)
        return;
    for (struct h2_stream *s = conn->streams; s; s = s->next)
        stream_hush(s, now);
    end_watch(&conn->end[H2_CLIENT]);
    if ((conn->linger_ms && now - conn->linger_ms > H2_LINGER_MS) ||
        is_stuck(&conn->end[H2_CLIENT], now) || is_stuck(&conn->end[H2_SERVER], now) ||
        (conn->stream_count > 0 && conn->o.idle_ms && idle > conn->o.idle_ms)) {
        die(conn);
    } else if (conn->stream_count == 0 && idle > H2_IDLE_MS) {
        h2_conn_drain(conn, NGHTTP2_NO_ERROR);
        h2_conn_pump(conn);
    }
}

static void on_sweep(uv_timer_t *t)
{
    struct h2s *all = t->data;
    uint64_t now = uv_now(all->loop);

    for (struct h2 *conn = all->first, *next; conn; conn = next) {
        next = conn->next; /* lines leave the list in a later turn only */
        if (!conn->closed)
            sweep_one(conn, now);
    }
}

/* -- start ------------------------------------------------------------------------------------- */

static int open_side(struct h2 *conn, enum side side, const struct tls_endpoint *io)
{
    struct h2_end *e = &conn->end[side];
    int rc = uv_poll_init(conn->all->loop, &e->poll, io->fd);

    if (rc < 0)
        return rc;
    e->poll.data = e;
    e->has_poll = true;
    conn->handles++;
    return end_open(e, conn, side, io);
}

static void link_line(struct h2 *conn)
{
    struct h2s *all = conn->all;

    if (all->count++ == 0)
        uv_timer_start(&all->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    conn->next = all->first;
    if (conn->next)
        conn->next->prev = conn;
    all->first = conn;
}

int h2_start(struct h2s *all, const struct h2_options *o, struct h2 **out)
{
    struct h2 *conn = calloc(1, sizeof(*conn));
    int rc;

    if (!conn || held_answer_open(&conn->held_answer, o->answers, o->like) < 0) {
        free(conn);
        return -ENOMEM;
    }
    conn->all = all;
    conn->o = *o;
    conn->moved_ms = uv_now(all->loop);
    conn->turn = (struct turn){.go = on_turn, .arg = conn, .owner = o->owner};
    for (int i = 0; i < H2_SIDES; i++)
        conn->end[i] = (struct h2_end){.conn = conn, .io.fd = -1};
    uv_timer_init(all->loop, &conn->pause);
    conn->pause.data = conn;
    conn->handles = 1;
    rc = open_side(conn, H2_CLIENT, &o->client);
    if (rc == 0 && o->server.fd >= 0)
        rc = open_side(conn, H2_SERVER, &o->server);
    link_line(conn);
    if (rc < 0) { /* the descriptors are still the caller's */
        conn->end[H2_CLIENT].io = conn->end[H2_SERVER].io = (struct tls_endpoint){.fd = -1};
        conn->o.share = NULL;
        h2_close(conn);
        return rc;
    }
    end_watch(&conn->end[H2_CLIENT]);
    end_watch(&conn->end[H2_SERVER]);
    *out = conn;
    return 0;
}

/* -- other rules ------------------------------------------------------------------------------- */

void h2_recheck_all(struct h2 *conn)
{
    conn->unasked = conn->streams;
}

/* The next that was not answered here. */
static struct h2_stream *take_unasked(struct h2 *conn)
{
    struct h2_stream *s = conn->unasked;

    while (s && (!s->head || (!s->open[H2_SERVER] && !s->job)))
        s = s->next;
    conn->unasked = s ? s->next : NULL;
    return s;
}

bool h2_recheck(struct h2 *conn,
                bool (*still)(void *arg, const struct http_head *head, struct h2_verdict *v))
{
    struct h2_stream *s = take_unasked(conn);
    struct h2_verdict v = {.status = 0};

    if (!s)
        return false;
    buf_init(&v.body, (size_t)16 * 1024);
    if (!still(conn->o.arg, s->head, &v)) {
        if (s->begun)
            stream_cut(s, NGHTTP2_CANCEL);
        else
            response_here(s, &v);
    }
    buf_free(&v.body);
    end_watch(&conn->end[H2_CLIENT]); /* frames about it leave in the next turn */
    end_watch(&conn->end[H2_SERVER]);
    return conn->unasked != NULL;
}
