/* Two ends, two directions. Each event moves one read's worth, through the filter where there
 * is one, and settle() then decides from what waits where: which events are wanted, whether a
 * half-close can be passed on, whether all is done. Bytes wait in at most one buffer for each
 * direction; the side that is full is not read for. A filter that has more work than its turn
 * allows goes on in a turn of its own (turns.h). Any function that moves bytes may close the
 * pipe, and says so. */

#include "egress/tls/tlspipe.h"

#include "base/log.h"
#include "base/util.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define BUCKETS   1024u /* a power of two */
#define LINGER_MS 2000u

struct tlspipes {
    uv_loop_t *loop;
    struct turns *turns; /* NULL: filters cost what they cost */
    struct tlspipe *first;
    struct tlspipe *by_cookie[BUCKETS];
    size_t count;
    bool freeing;
    char scratch[TLS_ENDPOINT_READ_BYTES]; /* one loop: used within a call */
};

struct tlspipe {
    struct tlspipes *all;
    struct tlspipe *prev, *next, *hash_next;
    uint64_t cookie; /* of the plain end that was handed on */
    uv_poll_t outer_poll, inner_poll;
    uv_timer_t timer; /* for pauses; for lingering when the plain end is gone */
    struct tls_endpoint outer;
    int inner, outer_events, inner_events;
    unsigned handles;
    bool closed;    /* handles are on their way out */
    bool has_inner; /* inner_poll is there */
    bool outer_ended;
    bool inner_ended, inner_gone, inner_shut;
    bool end_told; /* to the filter */
    bool stalled;  /* the plain end did not take all, since the last pause */
    struct buf to_outer, to_inner;
    uint64_t read_bytes, written_bytes;
    const struct tlspipe_filter *filter;
    void *filter_arg;
    struct turn turn; /* of the filter's work inward */
    uint32_t outer_round, inner_round;
    struct tlspipe_options o;
};

/* -- all of them ------------------------------------------------------------------------------- */

int tlspipes_new(uv_loop_t *loop, struct tlspipes **out)
{
    struct tlspipes *all = calloc(1, sizeof(*all));

    if (!all)
        return -ENOMEM;
    all->loop = loop;
    *out = all;
    return 0;
}

void tlspipes_free(struct tlspipes *all)
{
    if (!all)
        return;
    for (struct tlspipe *p = all->first, *next; p; p = next) {
        next = p->next;
        tlspipe_close(p);
    }
    all->freeing = true;
    if (all->count == 0)
        free(all);
}

void tlspipes_set_turns(struct tlspipes *all, struct turns *t)
{
    all->turns = t;
}

size_t tlspipes_count(const struct tlspipes *all)
{
    return all->count;
}

static void list_add(struct tlspipe *p)
{
    struct tlspipes *all = p->all;

    p->next = all->first;
    if (p->next)
        p->next->prev = p;
    all->first = p;
    all->count++;
}

static void list_remove(struct tlspipe *p)
{
    if (p->prev)
        p->prev->next = p->next;
    else
        p->all->first = p->next;
    if (p->next)
        p->next->prev = p->prev;
    p->all->count--;
}

static struct tlspipe **bucket(struct tlspipes *all, uint64_t cookie)
{
    return &all->by_cookie[cookie & (BUCKETS - 1)];
}

static void hash_remove(struct tlspipe *p)
{
    struct tlspipe **at = bucket(p->all, p->cookie);

    while (*at && *at != p)
        at = &(*at)->hash_next;
    if (*at)
        *at = p->hash_next;
}

/* A socket's own number in the kernel, which is never used twice, as descriptors are. */
static int get_cookie(int fd, uint64_t *out)
{
    socklen_t n = sizeof(*out);

    return getsockopt(fd, SOL_SOCKET, SO_COOKIE, out, &n) < 0 ? -errno : 0;
}

struct tlspipe *tlspipe_of(struct tlspipes *all, int plain)
{
    struct tlspipe *p;
    uint64_t cookie;

    if (get_cookie(plain, &cookie) < 0)
        return NULL;
    for (p = *bucket(all, cookie); p && (p->cookie != cookie || p->closed); p = p->hash_next)
        ;
    return p;
}

/* -- ends -------------------------------------------------------------------------------------- */

static void wipe(struct buf *b)
{
    if (b->base)
        explicit_bzero(b->base, b->cap);
    buf_free(b);
}

static void on_closed(uv_handle_t *h)
{
    struct tlspipe *p = h->data;
    struct tlspipes *all = p->all;

    if (--p->handles > 0)
        return;
    list_remove(p);
    wipe(&p->to_outer);
    wipe(&p->to_inner);
    free(p);
    if (all->freeing && all->count == 0)
        free(all);
}

static void close_handles(struct tlspipe *p)
{
    uv_close((uv_handle_t *)&p->timer, on_closed);
    uv_close((uv_handle_t *)&p->outer_poll, on_closed);
    if (p->has_inner)
        uv_close((uv_handle_t *)&p->inner_poll, on_closed);
}

void tlspipe_close(struct tlspipe *p)
{
    if (p->closed)
        return;
    p->closed = true;
    turns_leave(p->all->turns, &p->turn);
    hash_remove(p);
    close_handles(p);
    tls_endpoint_close(&p->outer, true);
    util_close(&p->inner);
    if (p->filter)
        p->filter->free(p->filter_arg);
    if (p->o.on_end)
        p->o.on_end(p->o.arg);
}

static void on_linger(uv_timer_t *t)
{
    tlspipe_close(t->data);
}

/* The reader of the plain end is gone. What came from it is still sent; a server's last bytes would
 * be lost if its socket were closed with unread ones in it, so those are read and forgotten. */
static void inner_is_gone(struct tlspipe *p)
{
    if (p->inner_gone)
        return;
    p->inner_gone = p->inner_ended = p->inner_shut = true;
    buf_clear(&p->to_inner);
    if (!p->o.server && p->to_outer.len == 0)
        tlspipe_close(p);
    else
        uv_timer_start(&p->timer, on_linger, LINGER_MS, 0);
}

/* -- moving ------------------------------------------------------------------------------------ */

static bool filtered(const struct tlspipe *p)
{
    return p->filter && p->filter->active(p->filter_arg);
}

/* May the filter work on more that comes in? Else it goes on in a turn of its own. */
static bool may_filter(struct tlspipe *p)
{
    if (!filtered(p) || turns_may(p->all->turns, &p->turn))
        return true;
    turns_wait(p->all->turns, &p->turn);
    return false;
}

/* Sends what waits. False when the pipe is closed. */
static bool flush_outer(struct tlspipe *p)
{
    while (p->to_outer.len > 0) {
        ssize_t n = tls_endpoint_write(&p->outer, p->to_outer.data, p->to_outer.len);

        if (n == -EAGAIN)
            return true;
        if (n < 0) {
            tlspipe_close(p);
            return false;
        }
        p->written_bytes += (uint64_t)n;
        buf_consume(&p->to_outer, (size_t)n);
    }
    if (p->to_outer.base) /* a filter may have put a secret there */
        wipe(&p->to_outer);
    return true;
}

/* What a filter has more, where all that there was has left. False: it cuts. */
static bool fill_inner(struct tlspipe *p)
{
    int rc = 0;

    if (p->to_inner.len == 0 && filtered(p) && p->filter->inward_more && may_filter(p)) {
        rc = p->filter->inward_more(p->filter_arg, &p->to_inner);
        turns_spend(p->all->turns, p->to_inner.len);
    }
    if (rc < 0) {
        log_debug("TLS pipe: cut: %s", strerror(-rc));
        tlspipe_close(p);
    }
    return rc == 0;
}

static bool flush_inner(struct tlspipe *p)
{
    while (!p->inner_gone) {
        ssize_t n;

        if (!fill_inner(p))
            return false;
        if (p->to_inner.len == 0)
            break;
        n = send(p->inner, p->to_inner.data, p->to_inner.len, MSG_DONTWAIT | MSG_NOSIGNAL);

        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            p->stalled = true;
            return true;
        }
        if (n < 0) {
            inner_is_gone(p);
            return !p->closed;
        }
        buf_consume(&p->to_inner, (size_t)n);
    }
    if (p->to_inner.len == 0)
        buf_free(&p->to_inner);
    return true;
}

/* Passes n bytes on at once as far as they go, and keeps the rest. */
static int pass(struct tlspipe *p, bool inward, const char *data, size_t n)
{
    struct buf *b = inward ? &p->to_inner : &p->to_outer;
    size_t before = b->len;
    ssize_t sent = 0;
    int rc;

    if (filtered(p)) {
        rc = (inward ? p->filter->inward : p->filter->outward)(p->filter_arg, data, n, b);
        if (inward) /* it may have been decompressed */
            turns_spend(p->all->turns, MAX(n, b->len - MIN(before, b->len)));
        return rc;
    }
    if (b->len == 0)
        sent = inward ? send(p->inner, data, n, MSG_DONTWAIT | MSG_NOSIGNAL)
                      : tls_endpoint_write(&p->outer, data, n);
    if (sent > 0 && !inward)
        p->written_bytes += (uint64_t)sent;
    if (sent < 0)
        sent = 0; /* what is wrong will be found out by the flush of the rest */
    return buf_append(b, data + sent, n - (size_t)sent);
}

static int end_inward(struct tlspipe *p)
{
    if (p->end_told || !filtered(p))
        return 0;
    p->end_told = true;
    return p->filter->inward_end(p->filter_arg, p->outer.clean, &p->to_inner);
}

static void on_pause(uv_timer_t *t);

/* A filter may pass on what it keeps back if nothing comes for some time. */
static void await_pause(struct tlspipe *p)
{
    unsigned ms = 0;

    if (p->inner_gone) /* the timer is for lingering */
        return;
    if (!p->outer_ended && filtered(p) && p->filter->inward_pause_ms)
        ms = p->filter->inward_pause_ms(p->filter_arg, p->stalled);
    if (ms > 0)
        uv_timer_start(&p->timer, on_pause, ms, 0);
    else
        uv_timer_stop(&p->timer);
}

/* From the socket to the plain end, one read's worth. False when the pipe is closed. */
static bool move_inward(struct tlspipe *p)
{
    char *data = p->all->scratch;
    size_t most = filtered(p) ? TURNS_BYTES : TLS_ENDPOINT_READ_BYTES;
    ssize_t n = tls_endpoint_read(&p->outer, data, most);
    int rc = 0;

    if (n == -EAGAIN)
        return true;
    if (n > 0) {
        bool secret = filtered(p);

        p->read_bytes += (uint64_t)n;
        if (!p->inner_gone)
            rc = pass(p, true, data, (size_t)n);
        if (secret) /* a server may send back what the filter has told it */
            explicit_bzero(data, (size_t)n);
    }
    if (n <= 0 || p->outer.clean) {
        p->outer_ended = true;
        if (rc == 0 && !p->inner_gone)
            rc = end_inward(p);
    }
    if (rc < 0) {
        log_debug("TLS pipe: cut: %s", strerror(-rc));
        tlspipe_close(p);
        return false;
    }
    if (!flush_inner(p))
        return false;
    await_pause(p);
    return true;
}

static bool move_outward(struct tlspipe *p)
{
    char *data = p->all->scratch;
    ssize_t n = recv(p->inner, data, TLS_ENDPOINT_READ_BYTES, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0) {
        p->inner_ended = true;
        if (n < 0)
            inner_is_gone(p);
        return !p->closed;
    }
    if (pass(p, false, data, (size_t)n) < 0) {
        tlspipe_close(p);
        return false;
    }
    return flush_outer(p);
}

/* -- half-closes and what to wait for ---------------------------------------------------------- */

static void pass_ends_on(struct tlspipe *p)
{
    if (p->outer_ended && p->to_inner.len == 0 && !p->turn.waiting && !p->inner_shut) {
        shutdown(p->inner, SHUT_WR);
        p->inner_shut = true;
    }
    if (p->inner_ended && p->to_outer.len == 0)
        (void)tls_endpoint_shut(&p->outer);
}

static void watch(uv_poll_t *poll, int *now, int want, uv_poll_cb cb)
{
    if (*now == want)
        return;
    *now = want;
    if (want)
        uv_poll_start(poll, want, cb);
    else
        uv_poll_stop(poll);
}

static void on_outer(uv_poll_t *h, int status, int events);
static void on_inner(uv_poll_t *h, int status, int events);

static bool wants_outer(const struct tlspipe *p)
{
    return !p->outer_ended && (p->to_inner.len == 0 || p->inner_gone);
}

static void watch_both(struct tlspipe *p)
{
    int outer = 0, inner = 0;

    if (wants_outer(p) && !p->turn.waiting)
        outer |= UV_READABLE;
    if (p->to_outer.len > 0 || p->outer.wants_write || (p->inner_ended && !p->outer.shut))
        outer |= UV_WRITABLE;
    if (!p->inner_ended && p->to_outer.len == 0)
        inner |= UV_READABLE;
    if (p->to_inner.len > 0)
        inner |= UV_WRITABLE;
    if (p->inner_ended && !p->inner_gone)
        inner |= UV_PRIORITIZED; /* comes with a hang-up only: it was closed, not just shut */
    watch(&p->outer_poll, &p->outer_events, outer, on_outer);
    watch(&p->inner_poll, &p->inner_events, p->inner_gone ? 0 : inner, on_inner);
}

/* Nothing is left to be carried. */
static bool done(const struct tlspipe *p)
{
    bool lost = p->outer_ended && !p->outer.clean;

    if (p->inner_gone)
        return p->outer_ended || (!p->o.server && p->to_outer.len == 0);
    return p->inner_shut && (lost || p->outer.shut);
}

/* After anything has moved. */
static void settle(struct tlspipe *p)
{
    pass_ends_on(p);
    if (p->o.on_moved)
        p->o.on_moved(p->o.arg, p->read_bytes, p->written_bytes);
    if (done(p))
        tlspipe_close(p);
    else
        watch_both(p);
}

/* The plain end: ours is inner, *other is handed on. 0 or -errno. */
static int open_inner(struct tlspipe *p, int *other)
{
    CLEANUP_CLOSE int mine = -1, theirs = -1;
    int pair[2], rc;

    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) < 0)
        return -errno;
    mine = pair[0];
    theirs = pair[1];
    rc = get_cookie(theirs, &p->cookie);
    if (rc == 0)
        rc = uv_poll_init(p->all->loop, &p->inner_poll, mine);
    if (rc < 0)
        return rc;
    p->inner_poll.data = p;
    p->has_inner = true;
    p->handles++;
    p->inner = TAKE_FD(mine);
    *other = TAKE_FD(theirs);
    p->hash_next = *bucket(p->all, p->cookie);
    *bucket(p->all, p->cookie) = p;
    return 0;
}

/* -- events ------------------------------------------------------------------------------------ */

static void outer_event(struct tlspipe *p, int status, int events)
{
    if (status < 0) { /* an error waits in the socket, perhaps after bytes; libuv has stopped */
        p->outer_events = 0;
        events = UV_READABLE | UV_WRITABLE;
    }
    if (events & UV_WRITABLE && !flush_outer(p))
        return;
    if ((events & UV_READABLE || p->outer.wants_write) && wants_outer(p) && may_filter(p) &&
        !move_inward(p))
        return;
    settle(p);
}

/* Errors, of which libuv does not tell again, are not left for another turn. */
static void on_outer(uv_poll_t *h, int status, int events)
{
    struct tlspipe *p = h->data;
    struct turns *turns = p->all->turns;
    bool entered = turns_enter(turns, p->turn.owner, &p->outer_round);

    if (entered || status < 0)
        outer_event(p, status, events);
    if (entered)
        turns_exit(turns);
}

/* First what the filter has of what came before; then one read. */
static void on_turn(void *arg)
{
    struct tlspipe *p = arg;

    if (!flush_inner(p))
        return;
    if (!p->turn.waiting && wants_outer(p) && may_filter(p) && !move_inward(p))
        return;
    settle(p);
}

static void inner_event(struct tlspipe *p, int status, int events)
{
    if (status < 0) { /* as above: what was sent before it was closed is still there */
        p->inner_events = 0;
        events = UV_READABLE | UV_WRITABLE;
    }
    if (events & UV_PRIORITIZED)
        inner_is_gone(p);
    if (p->closed)
        return;
    if (events & UV_WRITABLE && !flush_inner(p))
        return;
    if (events & UV_READABLE && !p->inner_ended && p->to_outer.len == 0 && !move_outward(p))
        return;
    settle(p);
}

static void on_inner(uv_poll_t *h, int status, int events)
{
    struct tlspipe *p = h->data;
    struct turns *turns = p->all->turns;
    bool entered = turns_enter(turns, p->turn.owner, &p->inner_round);

    if (entered || status < 0)
        inner_event(p, status, events);
    if (entered)
        turns_exit(turns);
}

/* While the plain end is behind, or the filter waits for its turn, it is not the sender that
 * pauses. */
static void on_pause(uv_timer_t *t)
{
    struct tlspipe *p = t->data;
    int rc;

    if (p->to_inner.len > 0 || p->turn.waiting) {
        await_pause(p);
        return;
    }
    rc = p->filter->inward_pause(p->filter_arg, &p->to_inner);
    p->stalled = false;
    if (rc < 0)
        tlspipe_close(p);
    else if (flush_inner(p))
        settle(p);
}

/* -- start ------------------------------------------------------------------------------------- */

static struct tlspipe *make(struct tlspipes *all, const struct tlspipe_options *o)
{
    struct tlspipe *p = calloc(1, sizeof(*p));

    if (!p)
        return NULL;
    if (uv_poll_init(all->loop, &p->outer_poll, o->end.fd) < 0) {
        free(p);
        return NULL;
    }
    uv_timer_init(all->loop, &p->timer);
    p->handles = 2;
    p->outer_poll.data = p->timer.data = p;
    p->turn = (struct turn){.go = on_turn, .arg = p, .owner = o->owner};
    p->all = all;
    p->o = *o;
    p->outer = o->end;
    p->inner = -1;
    buf_init(&p->to_outer, TLSPIPE_HELD_BYTES);
    buf_init(&p->to_inner, TLSPIPE_HELD_BYTES);
    list_add(p);
    return p;
}

int tlspipe_start(struct tlspipes *all, const struct tlspipe_options *o, int *plain,
                  struct tlspipe **out)
{
    struct tlspipe *p = make(all, o);
    int rc;

    if (!p)
        return -ENOMEM;
    rc = open_inner(p, plain);
    if (rc < 0) {
        p->outer = (struct tls_endpoint){.fd = -1}; /* still the caller's, and so is arg */
        p->o.on_end = NULL;
        tlspipe_close(p);
        return rc;
    }
    watch_both(p);
    if (out)
        *out = p;
    return 0;
}

void tlspipe_set_filter(struct tlspipe *p, const struct tlspipe_filter *f, void *arg)
{
    p->filter = f;
    p->filter_arg = arg;
}

void *tlspipe_filter_arg(const struct tlspipe *p)
{
    return p->filter_arg;
}
