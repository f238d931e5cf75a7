/* A rewrite as the filter of a relay, for one request and its answer. The cost of answers is shared
 * out: a read waits for its owner's turn (turns.h), and with each call the memory is counted that
 * the answer takes here and in the relay (http/held_answer.h). Bytes that are kept back pass when
 * nothing came for some time, which a timer tells; while the reader is behind or the turn is waited
 * for it is not the sender that pauses. */

#include "egress/http/rewrite_internal.h"
#include "egress/tls/turns.h"

#include <errno.h>

struct rewrite_relay {
    struct rewrite *w;
    struct turns *turns;
    struct turn turn;
    struct held_answer held;
    size_t least_bytes; /* of a read: behind TLS a record is whole */
    uv_timer_t timer;
    void (*wake)(void *relay);
    void *relay;
    bool behind;    /* the reader has to be waited for, */
    bool stalled;   /* and had to since the last pause */
    bool pause_due; /* bytes that are kept back are to be given */
};

static void start(void *arg, void (*wake)(void *relay), void *relay)
{
    struct rewrite_relay *p = arg;

    p->wake = wake;
    p->relay = relay;
}

static int outward(void *arg, const char *data, size_t n, struct buf *out)
{
    struct rewrite_relay *p = arg;

    return rewrite_outward(p->w, data, n, out);
}

static size_t most(void *arg)
{
    struct rewrite_relay *p = arg;

    if (!rewrite_is_active(p->w))
        return SIZE_MAX;
    if (turns_may(p->turns, &p->turn))
        return MAX(turns_bytes(p->turns), p->least_bytes);
    turns_wait(p->turns, &p->turn);
    return 0;
}

static void on_timer(uv_timer_t *t);

static void await_pause(struct rewrite_relay *p)
{
    unsigned ms = rewrite_inward_pause_ms(p->w, p->stalled);

    if (ms > 0)
        uv_timer_start(&p->timer, on_timer, ms, 0);
    else
        uv_timer_stop(&p->timer);
}

/* p may be gone after its wake. */
static void on_timer(uv_timer_t *t)
{
    struct rewrite_relay *p = t->data;

    if (p->behind || p->turn.waiting) {
        await_pause(p);
        return;
    }
    p->pause_due = true;
    p->wake(p->relay);
}

static void on_turn(void *arg)
{
    struct rewrite_relay *p = arg;

    p->wake(p->relay);
}

/* rc < 0: as it is. */
static int count_held(struct rewrite_relay *p, const struct buf *out, int rc)
{
    size_t bytes = rc < 0 ? 0 : out->cap + rewrite_held(p->w, false);

    if (rc == 0 && bytes > HELD_ANSWER_FREE_BYTES)
        bytes = out->cap + rewrite_held(p->w, true);
    return rc < 0 ? rc : held_answer_count(&p->held, bytes);
}

static int inward(void *arg, const char *data, size_t n, struct buf *out)
{
    struct rewrite_relay *p = arg;
    bool active = rewrite_is_active(p->w);
    size_t before = out->len;
    int rc = rewrite_inward(p->w, data, n, out);

    if (active) /* it may have been decompressed */
        turns_spend(p->turns, MAX(n, out->len - MIN(before, out->len)));
    await_pause(p);
    return count_held(p, out, rc);
}

static int inward_more(void *arg, struct buf *out)
{
    struct rewrite_relay *p = arg;
    int rc;

    if (p->pause_due) {
        p->pause_due = p->stalled = false;
        return count_held(p, out, rewrite_inward_pause(p->w, out));
    }
    rc = rewrite_inward_more(p->w, out);
    turns_spend(p->turns, out->len);
    return count_held(p, out, rc);
}

static int inward_end(void *arg, struct buf *out)
{
    struct rewrite_relay *p = arg;

    uv_timer_stop(&p->timer);
    p->pause_due = false;
    return count_held(p, out, rewrite_inward_end(p->w, out));
}

static void wait_for_reader(void *arg, bool on)
{
    struct rewrite_relay *p = arg;

    p->behind = on;
    p->stalled |= on;
}

static void on_closed(uv_handle_t *h)
{
    free(h->data);
}

static void drop(void *arg)
{
    struct rewrite_relay *p = arg;

    turns_leave(p->turns, &p->turn);
    held_answer_close(&p->held);
    rewrite_free(p->w);
    uv_close((uv_handle_t *)&p->timer, on_closed);
}

static const struct http_relay_filter filter = {.start = start,
                                                .outward = outward,
                                                .most = most,
                                                .inward = inward,
                                                .inward_more = inward_more,
                                                .inward_end = inward_end,
                                                .wait = wait_for_reader,
                                                .free = drop};

int rewrite_relay(const struct rewrite_share *share, uv_loop_t *loop, struct rewrite_job *job,
                  struct redact *redact, struct http_relay_options *o)
{
    struct rewrite_relay *p = calloc(1, sizeof(*p));
    struct rewrite *w = rewrite_new();

    if (!p || !w || held_answer_open(&p->held, share->answers, share->like) < 0) {
        free(p);
        rewrite_free(w);
        rewrite_job_free(job);
        redact_free(redact);
        return -ENOMEM;
    }
    rewrite_set(w, job, redact);
    p->w = w;
    p->turns = share->turns;
    p->least_bytes = o->layer ? HTTP_LAYER_READ_BYTES : 1;
    p->turn = (struct turn){.go = on_turn, .arg = p, .owner = share->owner};
    uv_timer_init(loop, &p->timer);
    p->timer.data = p;
    o->filter = &filter;
    o->filter_arg = p;
    return 0;
}
