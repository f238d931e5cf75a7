#include "egress/h2.h"

#include "egress/h2_internal.h"

#include <errno.h>
#include <string.h>

#define SWEEP_MS 1000u

struct h2s {
    uv_loop_t *loop;
    uv_timer_t sweep; /* while there are lines */
    struct turns *turns;
    struct h2 *first;
    size_t count;
    size_t grown_bytes; /* of all windows */
    bool freeing;
    char scratch[TLSEND_READ_BYTES]; /* one loop: used within a call */
};

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
    for (struct h2 *line = all->first, *next; line; line = next) {
        next = line->next;
        h2_close(line);
    }
    all->freeing = true;
    free_when_empty(all);
}

size_t h2s_count(const struct h2s *all)
{
    return all->count;
}

static bool has_work(const struct h2 *line, bool unzips)
{
    const struct h2_stream *s = line->streams;

    while (s && !(unzips ? (void *)s->unzip : (void *)s->redact))
        s = s->next;
    return s;
}

bool line_may(struct h2 *line, bool unzip)
{
    if (turns_may(line->all->turns, &line->turn) || !has_work(line, unzip))
        return true;
    turns_wait(line->all->turns, &line->turn);
    return false;
}

void line_searched(struct h2 *line, size_t n)
{
    turns_spend(line->all->turns, n);
}

/* -- what is held ------------------------------------------------------------------------------ */

bool line_hold(struct h2 *line, size_t n)
{
    line->held_bytes += n;
    if (!line->o.share)
        return false;
    line->o.share->held_bytes += n;
    return line->o.share->held_bytes <= H2_SHARE_BYTES;
}

void line_release(struct h2 *line, size_t n)
{
    line->held_bytes -= n;
    if (line->o.share)
        line->o.share->held_bytes -= n;
}

bool line_grow(struct h2 *line, size_t n)
{
    struct h2_share *share = line->o.share;
    size_t all = line->all->grown_bytes + n;
    size_t most = all > H2_GROWN_ALL_BYTES / 2 ? H2_GROWN_FAIR_BYTES : H2_GROWN_BYTES;

    if (!share || share->grown_bytes + n > most || all > H2_GROWN_ALL_BYTES)
        return false;
    line->all->grown_bytes += n;
    line->grown_bytes += n;
    share->grown_bytes += n;
    return true;
}

void line_shrink(struct h2 *line, size_t n)
{
    line->all->grown_bytes -= n;
    line->grown_bytes -= n;
    if (line->o.share)
        line->o.share->grown_bytes -= n;
}

static void leave_share(struct h2 *line)
{
    struct h2_share *share = TAKE_PTR(line->o.share);

    if (!share)
        return;
    share->held_bytes -= line->held_bytes;
    share->grown_bytes -= line->grown_bytes;
    share->lines--;
}

/* -- the end ----------------------------------------------------------------------------------- */

static void handle_closed(struct h2 *line)
{
    struct h2s *all = line->all;

    if (--line->handles > 0)
        return;
    *(line->prev ? &line->prev->next : &all->first) = line->next;
    if (line->next)
        line->next->prev = line->prev;
    all->count--;
    if (all->count == 0)
        uv_timer_stop(&all->sweep);
    free(line);
    free_when_empty(all);
}

static void on_closed(uv_handle_t *h)
{
    handle_closed(((struct h2_end *)h->data)->line);
}

static void on_pause_closed(uv_handle_t *h)
{
    handle_closed(h->data);
}

/* Not from inside a callback of nghttp2. */
static void destroy(struct h2 *line)
{
    if (line->closed)
        return;
    line->closed = true;
    turns_leave(line->all->turns, &line->turn);
    uv_close((uv_handle_t *)&line->pause, on_pause_closed);
    for (int i = 0; i < H2_SIDES; i++) {
        struct h2_end *e = &line->end[i];

        if (e->has_poll)
            uv_close((uv_handle_t *)&e->poll, on_closed);
        end_close(e);
    }
    while (line->streams)
        stream_free(line->streams);
    leave_share(line);
}

void h2_close(struct h2 *line)
{
    leave_share(line);
    line->dead = true;
    if (!line->pumping)
        destroy(line);
}

static void tell_moved(struct h2 *line)
{
    if (line->o.on_moved)
        line->o.on_moved(line->o.arg, line->end[H2_CLIENT].read_bytes,
                         line->end[H2_CLIENT].written_bytes);
}

static void die(struct h2 *line)
{
    tell_moved(line);
    if (line->closed) /* whoever was told has closed it */
        return;
    destroy(line);
    line->o.on_end(line->o.arg);
}

/* -- the server's side is over ----------------------------------------------------------------- */

/* What it has not answered is answered here; what it has begun to answer breaks off. */
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

static void lose_server(struct h2 *line)
{
    struct h2_end *e = &line->end[H2_SERVER];

    uv_close((uv_handle_t *)&e->poll, on_closed);
    e->has_poll = false;
    end_close(e);
    for (struct h2_stream *s = line->streams, *next; s; s = next) {
        next = s->next;
        fail_stream(s);
    }
    line_drain(line, NGHTTP2_NO_ERROR);
}

static bool is_over(const struct h2_end *e)
{
    return e->broken ||
           (e->out.len == 0 && (e->ended || (!nghttp2_session_want_read(e->session) &&
                                             !nghttp2_session_want_write(e->session))));
}

/* -- the client's ------------------------------------------------------------------------------ */

void line_drain(struct h2 *line, uint32_t code)
{
    if (line->draining)
        return;
    line->draining = true;
    line->drain_code = code;
}

/* Tells the client to come again on another connection: after the answers that are whole, since some clients
 * read nothing after it. True when that is to be sent now. */
static bool say_goodbye(struct h2 *line)
{
    nghttp2_session *client = line->end[H2_CLIENT].session;

    if (!line->draining || line->announced)
        return false;
    for (const struct h2_stream *s = line->streams; s; s = s->next)
        if (s->open[H2_CLIENT] && s->to[H2_CLIENT].ended && !s->to[H2_CLIENT].left)
            return false;
    line->announced = true;
    (void)nghttp2_submit_goaway(client, NGHTTP2_FLAG_NONE,
                                nghttp2_session_get_last_proc_stream_id(client), line->drain_code,
                                NULL, 0);
    return true;
}

/* All is said. What the client still sends is read and forgotten, or a reset would take the last words with
 * it. True when it is over. */
static bool linger(struct h2 *line)
{
    struct h2_end *e = &line->end[H2_CLIENT];

    if (line->linger_ms == 0)
        line->linger_ms = uv_now(line->all->loop);
    return e->ended || e->broken || (tlsend_shut(&e->io) && e->ended);
}

static bool is_finished(struct h2 *line)
{
    struct h2_end *e = &line->end[H2_CLIENT];

    if (e->ended || e->broken || line->linger_ms)
        return line->linger_ms ? linger(line) : true;
    if (is_over(e) || (line->draining && line->stream_count == 0 && e->out.len == 0 &&
                       !nghttp2_session_want_write(e->session)))
        return linger(line);
    return false;
}

void line_pump(struct h2 *line)
{
    struct h2_end *server = &line->end[H2_SERVER];
    bool more = true;

    line->pumping = true;
    while (more && !line->dead) {
        more = end_flush(&line->end[H2_CLIENT]);
        more |= end_flush(server);
        if (server->session && is_over(server)) {
            lose_server(line);
            more = true;
        }
        more |= say_goodbye(line);
    }
    line->pumping = false;
    if (line->dead) {
        destroy(line);
    } else if (is_finished(line)) {
        die(line);
    } else {
        end_watch(&line->end[H2_CLIENT]);
        end_watch(server);
    }
}

/* -- events ------------------------------------------------------------------------------------ */

static void read_some(struct h2_end *e)
{
    struct h2 *line = e->line;
    char *data = line->all->scratch;
    ssize_t n = tlsend_read(&e->io, data, TLSEND_READ_BYTES);

    if (n == -EAGAIN)
        return;
    line->moved_ms = uv_now(line->all->loop);
    e->ended |= n <= 0 || e->io.clean;
    if (n <= 0)
        return;
    e->read_bytes += (size_t)n;
    if (e->side == H2_CLIENT && line->linger_ms)
        return;
    line->pumping = true;
    if (!end_take(e, data, (size_t)n))
        e->broken = true;
    line->pumping = false;
    if (e->side == H2_SERVER) /* it may have said what it was told */
        explicit_bzero(data, (size_t)n);
}

void line_event(uv_poll_t *poll, int status, int events)
{
    struct h2_end *e = poll->data;

    if (status < 0) { /* an error waits in the socket, perhaps after bytes; libuv has stopped */
        e->events = 0;
        events = UV_READABLE | UV_WRITABLE;
    }
    if ((events & UV_READABLE || e->io.wants_write) && !e->ended &&
        (e->side == H2_CLIENT || line_may(e->line, false)))
        read_some(e);
    line_pump(e->line);
}

static void on_turn(void *arg)
{
    struct h2 *line = arg;
    struct h2_end *server = &line->end[H2_SERVER];

    line_pump(line); /* what waits to be decompressed comes before what waits in the socket */
    if (line->closed || !server->session || !(server->events & UV_READABLE) || server->ended ||
        !line_may(line, false))
        return;
    read_some(server);
    line_pump(line);
}

static bool is_stuck(const struct h2_end *e, uint64_t now)
{
    return e->session && e->out.len > 0 && now - e->took_ms > H2_STUCK_MS;
}

static void sweep_one(struct h2 *line, uint64_t now)
{
    uint64_t idle = now - line->moved_ms;

    tell_moved(line);
    if (line->closed)
        return;
    for (struct h2_stream *s = line->streams; s; s = s->next)
        stream_hush(s, now);
    end_watch(&line->end[H2_CLIENT]);
    if ((line->linger_ms && now - line->linger_ms > H2_LINGER_MS) ||
        is_stuck(&line->end[H2_CLIENT], now) || is_stuck(&line->end[H2_SERVER], now) ||
        (line->stream_count > 0 && line->o.idle_ms && idle > line->o.idle_ms)) {
        die(line);
    } else if (line->stream_count == 0 && idle > H2_IDLE_MS) {
        line_drain(line, NGHTTP2_NO_ERROR);
        line_pump(line);
    }
}

static void on_sweep(uv_timer_t *t)
{
    struct h2s *all = t->data;
    uint64_t now = uv_now(all->loop);

    for (struct h2 *line = all->first, *next; line; line = next) {
        next = line->next; /* lines leave the list in a later turn only */
        if (!line->closed)
            sweep_one(line, now);
    }
}

/* -- start ------------------------------------------------------------------------------------- */

static int open_side(struct h2 *line, enum side side, const struct tlsend *io)
{
    struct h2_end *e = &line->end[side];
    int rc = uv_poll_init(line->all->loop, &e->poll, io->fd);

    if (rc < 0)
        return rc;
    e->poll.data = e;
    e->has_poll = true;
    line->handles++;
    return end_open(e, line, side, io);
}

static void link_line(struct h2 *line)
{
    struct h2s *all = line->all;

    if (all->count++ == 0)
        uv_timer_start(&all->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    line->next = all->first;
    if (line->next)
        line->next->prev = line;
    all->first = line;
}

int h2_start(struct h2s *all, const struct h2_options *o, struct h2 **out)
{
    struct h2 *line = calloc(1, sizeof(*line));
    int rc;

    if (!line)
        return -ENOMEM;
    line->all = all;
    line->o = *o;
    line->moved_ms = uv_now(all->loop);
    line->turn = (struct turn){.go = on_turn, .arg = line, .owner = (uintptr_t)o->share};
    for (int i = 0; i < H2_SIDES; i++)
        line->end[i] = (struct h2_end){.line = line, .io.fd = -1};
    uv_timer_init(all->loop, &line->pause);
    line->pause.data = line;
    line->handles = 1;
    rc = open_side(line, H2_CLIENT, &o->client);
    if (rc == 0 && o->server.fd >= 0)
        rc = open_side(line, H2_SERVER, &o->server);
    link_line(line);
    if (rc < 0) { /* the descriptors are still the caller's */
        line->end[H2_CLIENT].io = line->end[H2_SERVER].io = (struct tlsend){.fd = -1};
        line->o.share = NULL;
        h2_close(line);
        return rc;
    }
    end_watch(&line->end[H2_CLIENT]);
    end_watch(&line->end[H2_SERVER]);
    *out = line;
    return 0;
}

/* -- other rules ------------------------------------------------------------------------------- */

void h2_recheck(struct h2 *line,
                bool (*still)(void *arg, const struct http_head *head, struct h2_verdict *v))
{
    for (struct h2_stream *s = line->streams; s; s = s->next) {
        struct h2_verdict v = {.status = 0};

        if (!s->head || (!s->open[H2_SERVER] && !s->job))
            continue; /* it was answered here */
        buf_init(&v.body, (size_t)16 * 1024);
        if (!still(line->o.arg, s->head, &v)) {
            if (s->begun)
                stream_cut(s, NGHTTP2_CANCEL);
            else
                response_here(s, &v);
        }
        buf_free(&v.body);
    }
    end_watch(&line->end[H2_CLIENT]); /* what is to be said of it leaves in the next turn */
    end_watch(&line->end[H2_SERVER]);
}
