/* A stream is a request on the client's side and, once it was allowed, the same on the
 * server's. It ends when both sides have: normally, by a reset of one (passed on to the other),
 * or cut by us. Between them bytes wait within a window; bytes that left towards one side give its
 * sender so much credit again, and dropped ones do too. Freed by h2.c outside of nghttp2's
 * callbacks. */

#include "egress/h2/h2_stream.h"

#include "egress/h2/h2_end.h"
#include "egress/h2/h2_held.h"
#include "egress/h2/h2_internal.h"
#include "egress/h2/h2_request.h"
#include "egress/h2/h2_response.h"
#include "egress/h2/h2_share.h"

#include <errno.h>
#include <string.h>

#define ARENA_BYTES   ((size_t)256 * 1024)
#define BODY_HEADROOM ((size_t)64 * 1024)

/* -- life -------------------------------------------------------------------------------------- */

struct h2_stream *stream_new(struct h2 *conn, int32_t id)
{
    struct h2_stream *s;

    if (conn->draining || conn->stream_count >= 2 * H2_STREAMS_MAX)
        return NULL;
    s = calloc(1, sizeof(*s));
    if (!s)
        return NULL;
    s->conn = conn;
    s->id[H2_CLIENT] = id;
    s->open[H2_CLIENT] = true;
    arena_init(&s->arena, ARENA_BYTES);
    for (int i = 0; i < H2_SIDES; i++)
        buf_init(&s->to[i].bytes, 2 * H2_STREAM_MAX_BYTES + BODY_HEADROOM);
    buf_init(&s->collected, (size_t)2 * REWRITE_BODY_MAX);
    s->next = conn->streams;
    if (s->next)
        s->next->prev = s;
    conn->streams = s;
    conn->stream_count++;
    return s;
}

bool stream_hold_head(struct h2_stream *s, size_t n)
{
    n = MIN(n, H2_LIST_BYTES_MAX); /* beyond it nothing is kept */
    if (!h2_conn_take_head(s->conn, n))
        return false;
    s->head_bytes += n;
    return true;
}

static void wipe(struct buf *b)
{
    if (b->base)
        explicit_bzero(b->base, b->cap);
    buf_free(b);
}

/* -- windows ----------------------------------------------------------------------------------- */

/* n bytes have gone on to that side. Where half a window has, and not much of it waits here, its
 * sender waits for round trips: it is asked for more at a time. */
static void widen(struct h2_stream *s, enum side to, size_t n)
{
    struct h2_body *b = &s->to[to];
    enum side from = OTHER(to);
    size_t window = b->window ? b->window : H2_STREAM_BYTES,
           more = MIN(3 * window, H2_STREAM_MAX_BYTES - window);

    b->passed += n;
    if (b->passed < window / 2 || b->unsent > window / 2 || b->ended || !s->open[from])
        return;
    b->passed = 0;
    if (more == 0 || !h2_conn_grow(s->conn, more))
        return;
    b->window = window + more;
    end_set_window(&s->conn->end[from], s->id[from], b->window, window);
}

/* Half of what there is to grow by is left to streams that take much. */
void stream_begin_wide(struct h2_stream *s)
{
    struct h2_body *b = &s->to[H2_CLIENT];
    const struct h2_share *share = s->conn->o.share;
    size_t more = H2_STREAM_WIDE_BYTES - H2_STREAM_BYTES;

    if (b->window || b->ended || !share || share->grown_bytes + more > H2_GROWN_BYTES / 2 ||
        !h2_conn_grow(s->conn, more))
        return;
    b->window = H2_STREAM_WIDE_BYTES;
    end_set_window(&s->conn->end[H2_SERVER], s->id[H2_SERVER], b->window, H2_STREAM_BYTES);
}

/* No more comes from that side. */
static void narrow(struct h2_stream *s, enum side from)
{
    struct h2_body *b = &s->to[OTHER(from)];
    size_t window = b->window;

    if (!window)
        return;
    b->window = 0;
    h2_conn_shrink(s->conn, window - H2_STREAM_BYTES);
    end_set_window(&s->conn->end[from], 0, H2_STREAM_BYTES, window);
}

/* -- what has left ----------------------------------------------------------------------------- */

/* n bytes have left towards that side, or were thrown away: their sender may send more. */
static void pay(struct h2_stream *s, enum side to, size_t n)
{
    struct h2_body *b = &s->to[to];
    enum side from = OTHER(to);
    size_t connection;

    n = MIN(n, b->unsent); /* bytes that were made here have no sender */
    connection = MIN(n, b->owed);
    b->unsent -= n;
    b->owed -= connection;
    h2_conn_release(s->conn, n);
    end_credit(&s->conn->end[from], s->open[from] ? s->id[from] : 0, n, connection);
}

void stream_pay(struct h2_stream *s, enum side to, size_t n)
{
    pay(s, to, n);
}

/* Bytes on their way to that side do not go on. */
static void drop(struct h2_stream *s, enum side to)
{
    struct h2_body *b = &s->to[to];

    pay(s, to, b->unsent);
    wipe(&b->bytes);
}

void stream_forget_job(struct h2_stream *s)
{
    if (s->job && s->job->collect)
        s->conn->collecting -= s->job->body_bytes;
    rewrite_job_free(TAKE_PTR(s->job));
}

void stream_free(struct h2_stream *s)
{
    struct h2 *conn = s->conn;

    *(s->prev ? &s->prev->next : &conn->streams) = s->next;
    if (s->next)
        s->next->prev = s->prev;
    if (conn->unasked == s)
        conn->unasked = s->next;
    conn->stream_count--;
    h2_conn_drop_head(conn, s->head_bytes);
    for (int i = 0; i < H2_SIDES; i++) {
        drop(s, (enum side)i);
        narrow(s, (enum side)i);
        if (s->to[i].trailers)
            h2_fields_free(s->to[i].trailers);
        free(s->to[i].trailers);
    }
    stream_forget_job(s);
    wipe(&s->collected);
    held_body_return(&s->held);
    redact_free(TAKE_PTR(s->redact));
    unzip_free(TAKE_PTR(s->unzip));
    h2_held_drop(s);
    credential_use_free(s->use);
    arena_free(&s->arena);
    free(s);
}

static void go_on(struct h2_stream *s, enum side to)
{
    if (s->open[to] && s->conn->end[to].session)
        (void)nghttp2_session_resume_data(s->conn->end[to].session, s->id[to]);
}

/* -- ends -------------------------------------------------------------------------------------- */

void stream_give_up(struct h2_stream *s)
{
    s->discarding_body = true;
    stream_forget_job(s);
    wipe(&s->collected);
    drop(s, H2_SERVER);
}

/* The part of it that came before goes to the client first. */
static void break_answer(struct h2_stream *s, uint32_t code)
{
    struct h2_body *b = &s->to[H2_CLIENT];

    if (response_ended(s) == 0 && b->bytes.len > 0)
        b->broken = code;
    else
        end_reset(&s->conn->end[H2_CLIENT], s->id[H2_CLIENT], code);
    go_on(s, H2_CLIENT);
}

static void server_closed(struct h2_stream *s, uint32_t code)
{
    struct h2_body *answer = &s->to[H2_CLIENT];

    if (!answer->ended) {
        if (s->head && !s->discarding_body && s->conn->o.on_break)
            s->conn->o.on_break(s->conn->o.arg, s->head,
                                "the server broke off before its answer was whole");
        break_answer(s, code ? code : NGHTTP2_INTERNAL_ERROR);
        return;
    }
    if (!s->to[H2_SERVER].left)
        stream_give_up(s); /* it has answered without hearing all of it */
}

static void client_closed(struct h2_stream *s, uint32_t code)
{
    bool complete = s->to[H2_SERVER].ended && s->to[H2_CLIENT].ended && code == NGHTTP2_NO_ERROR;

    drop(s, H2_CLIENT);
    if (complete)
        return; /* the server may still read the last of it */
    end_reset(&s->conn->end[H2_SERVER], s->id[H2_SERVER], code ? code : NGHTTP2_CANCEL);
    stream_give_up(s);
}

void stream_closed(struct h2_stream *s, enum side side, uint32_t code)
{
    s->open[side] = false;
    narrow(s, side);
    if (!s->open[OTHER(side)])
        stream_free(s);
    else if (side == H2_SERVER)
        server_closed(s, code);
    else
        client_closed(s, code);
}

void stream_cut(struct h2_stream *s, uint32_t code)
{
    for (int i = 0; i < H2_SIDES; i++)
        if (s->open[i])
            end_reset(&s->conn->end[i], s->id[i], code);
    stream_give_up(s);
    drop(s, H2_CLIENT);
}

void stream_hush(struct h2_stream *s, uint64_t now)
{
    if (!s->discarding_body || s->left_ms == 0 || s->to[H2_SERVER].ended)
        return;
    if (s->thrown_bytes > H2_DISCARDED_BODY_BYTES || now - s->left_ms > H2_LINGER_MS)
        end_reset(&s->conn->end[H2_CLIENT], s->id[H2_CLIENT], NGHTTP2_NO_ERROR);
}

/* -- bodies ------------------------------------------------------------------------------------ */

int stream_data(struct h2_stream *s, enum side from, const char *data, size_t n)
{
    enum side to = OTHER(from);
    struct h2_body *b = &s->to[to];
    struct h2_end *source = &s->conn->end[from];
    int rc;

    if ((from == H2_CLIENT && s->discarding_body) || b->ended || !s->open[H2_CLIENT]) {
        s->thrown_bytes += n;
        end_credit(source, s->id[from], n, n);
        stream_hush(s, s->left_ms);
        return 0;
    }
    if (from == H2_CLIENT && s->job) {
        end_credit(source, s->id[from], n, n);
        return request_collect(s, data, n);
    }
    b->unsent += n;
    if (h2_conn_hold(s->conn, n))
        end_credit(source, 0, 0, n);
    else
        b->owed += n;
    rc = from == H2_SERVER ? response_data(s, data, n) : buf_append(&b->bytes, data, n);
    go_on(s, to);
    return rc;
}

int stream_ended(struct h2_stream *s, enum side from)
{
    struct h2_body *b = &s->to[OTHER(from)];
    int rc = 0;

    if (b->ended)
        return 0;
    if (from == H2_SERVER)
        rc = response_ended(s);
    b->ended = true;
    if (from == H2_CLIENT && s->job)
        request_collected(s);
    go_on(s, OTHER(from));
    return rc;
}

int stream_trailers(struct h2_stream *s, enum side from, const struct h2_fields *f)
{
    struct h2_body *b = &s->to[OTHER(from)];

    if (b->ended || b->trailers)
        return 0;
    if (f->over)
        return -EMSGSIZE;
    b->trailers = calloc(1, sizeof(*b->trailers));
    if (!b->trailers)
        return -ENOMEM;
    h2_fields_reset(b->trailers);
    return from == H2_SERVER ? response_trailers(s, f, b->trailers)
                             : request_trailers(s, f, b->trailers);
}

/* After the last byte of the body, in the same call. */
static int put_trailers(struct h2_end *e, struct h2_stream *s, const struct h2_fields *f)
{
    struct h2_lines l = {.count = 0};

    for (size_t i = 0; i < f->count; i++)
        h2_lines_add(&l, h2_fields_name(f, i), h2_fields_value(f, i), false);
    return nghttp2_submit_trailer(e->session, s->id[e->side], l.list, l.count);
}

static ssize_t read_body(nghttp2_session *session, int32_t id, uint8_t *out, size_t size,
                         uint32_t *flags, nghttp2_data_source *source, void *arg)
{
    struct h2_end *e = arg;
    struct h2_stream *s = source->ptr;
    struct h2_body *b = &s->to[e->side];
    bool zipped = s->unzip && e->side == H2_CLIENT; /* response_more has paid */
    size_t n;

    if (zipped && b->bytes.len == 0 && response_more(s) < 0) {
        s->reset_here[e->side] = true; /* by the library, and no fault of its peer */
        return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    n = MIN(size, b->bytes.len);
    if (n == 0 && (!b->ended || (zipped && s->unzip)))
        return NGHTTP2_ERR_DEFERRED;
    if (n > 0) {
        memcpy(out, b->bytes.data, n);
        buf_consume(&b->bytes, n);
    }
    if (n > 0 && !zipped) {
        pay(s, e->side, n);
        widen(s, e->side, n);
    }
    if (b->bytes.len > 0)
        return (ssize_t)n;
    wipe(&b->bytes);
    if (s->unzips && e->side == H2_CLIENT)
        h2_held_drop(s);
    if (b->broken)
        end_reset(e, id, b->broken); /* it leaves behind these bytes */
    if (!b->ended || (zipped && s->unzip))
        return (ssize_t)n;
    b->left = true;
    *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (b->trailers && b->trailers->count > 0) {
        *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
        if (put_trailers(e, s, b->trailers) != 0)
            return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    }
    return (ssize_t)n;
}

nghttp2_data_provider stream_provider(struct h2_stream *s)
{
    return (nghttp2_data_provider){.source = {.ptr = s}, .read_callback = read_body};
}
