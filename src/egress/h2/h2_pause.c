#include "egress/h2/h2_pause.h"

#include "egress/h2/h2_internal.h"
#include "egress/h2/h2_response.h"
#include "egress/h2/h2_stream.h"

/* Where the client is behind, its server may have had to wait for it: that is no pause of the
 * server's. */
static uint64_t due_ms(const struct h2_stream *s)
{
    return s->arrived_ms + (s->stalled ? REDACT_STALL_MS : s->pause_ms);
}

static bool awaits(const struct h2_stream *s)
{
    return s->pause_ms > 0 && s->redact && !s->to[H2_CLIENT].ended && s->open[H2_CLIENT] &&
           redact_holds(s->redact);
}

static void start(struct h2 *conn, uint64_t ms)
{
    if (!uv_is_active((const uv_handle_t *)&conn->pause) || uv_timer_get_due_in(&conn->pause) > ms)
        uv_timer_start(&conn->pause, pause_over, ms, 0);
}

void pause_await(struct h2_stream *s)
{
    s->arrived_ms = uv_now(s->conn->pause.loop);
    if (awaits(s))
        start(s->conn, due_ms(s) - s->arrived_ms);
}

/* Of one stream. Returns after how long it is to be looked at again, or 0. */
static uint64_t release_when_paused(struct h2_stream *s, uint64_t now)
{
    if (!awaits(s))
        return 0;
    s->stalled |= s->to[H2_CLIENT].bytes.len > 0;
    if (s->to[H2_CLIENT].bytes.len > 0 || s->conn->turn.waiting)
        s->arrived_ms = now;
    if (due_ms(s) > now)
        return due_ms(s) - now;
    s->stalled = false;
    if (response_paused(s) < 0)
        stream_cut(s, NGHTTP2_INTERNAL_ERROR);
    return 0;
}

void pause_over(uv_timer_t *t)
{
    struct h2 *conn = t->data;
    uint64_t now = uv_now(t->loop);

    if (!h2_conn_may_go_on(conn)) {
        if (!conn->closed)
            start(conn, 1);
        return;
    }
    for (struct h2_stream *s = conn->streams; s; s = s->next) {
        uint64_t ms = release_when_paused(s, now);

        if (ms > 0)
            start(conn, ms);
    }
    h2_conn_pump(conn);
}
