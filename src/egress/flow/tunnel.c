/* A tunnel has two halves, each a descriptor to read, a pipe that bytes are in only while the
 * other side is full, and a descriptor to write. An event pumps both halves as far as its
 * sandbox's turn allows; edge-triggered epoll tells again when something changed, so a half
 * remembers that it may go on. The end of one side is passed on as it came (a shut half, or a
 * reset); both ended, an error or an idle time end the flow. */

#include "egress/flow/tunnel.h"

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/greeting.h"
#include "egress/flow/registry.h"
#include "egress/flow/sandbox.h"
#include "egress/tls/turns.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <uv.h>

#define PIPE_BYTES        (256u * 1024u)
#define POOL_MAX          64u
#define SMALL_BYTES       4096u              /* a page: any empty pipe takes that */
#define BULK_BYTES        (4u * SMALL_BYTES) /* in a row: then it is a stream */
#define EVENTS            256
#define LIMITED_BYTES     (64u * 1024u)        /* at a time, where a sandbox's bytes are limited */
#define TURN_BYTES        (4u * 1024u * 1024u) /* of one direction, before others get their turn */
#define CHECK_EVERY_BYTES (32u * 1024u)        /* between looks at whether its time is over */
#define SWEEP_MS          5000
#define HALF_IDLE_MS      300000u /* one direction has ended, and nothing moves in the other */
#define HALF_CROWDED_MS   10000u /* the same, while more than half of all flows' places are taken */

/* A client that ended its side may wait for an answer, or have gone: over TCP both look the same
 * until it is sent something. One that has gone answers probes for as long as its kernel remembers
 * it, a minute. */
#define PROBE_IDLE_S  10
#define PROBE_AGAIN_S 10
#define PROBE_TIMES   3

struct pipe {
    int in, out;
};

/* One direction. */
struct half {
    int from, to;
    struct pipe pipe; /* -1 while it is empty */
    size_t held;      /* bytes in it */
    size_t run;       /* bytes since there was nothing to read */
    uint64_t *count;
    struct flow *greeting_flow; /* whose first bytes are looked at before they pass, or NULL */
    bool readable, writable;    /* as far as is known: until EAGAIN */
    bool bulk;                  /* splice(2) is worth its pipe */
    bool ending;                /* the kernel has told of an end or an error behind the bytes */
    bool eof, shut;
};

struct tunnel {
    struct flow *flow;
    struct half half[2]; /* 0: from the client */
    struct tunnel *older, *newer;
    uint64_t moved_ms;
    struct turn turn; /* its next, where there is more to move */
};

struct tunnels {
    struct egress *egress;
    int epoll_fd;
    uv_poll_t poll;
    uv_timer_t sweep;
    struct pipe pool[POOL_MAX];
    size_t pooled;
    struct tunnel *oldest, *newest; /* by when they last moved */
    unsigned handles;
};

/* -- pipes ------------------------------------------------------------------------------------- */

static int pipe_get(struct tunnels *t, struct pipe *p)
{
    if (t->pooled > 0) {
        *p = t->pool[--t->pooled];
        return 0;
    }
    return io_big_pipe(&p->in, &p->out, PIPE_BYTES);
}

static void pipe_close(struct pipe *p)
{
    util_close(&p->in);
    util_close(&p->out);
}

/* Only an empty pipe is used again: no flow's bytes reach another flow. */
static void pipe_put(struct tunnels *t, struct half *h)
{
    if (h->pipe.in < 0)
        return;
    if (h->held == 0 && t->pooled < POOL_MAX)
        t->pool[t->pooled++] = h->pipe;
    else
        pipe_close(&h->pipe);
    h->pipe = (struct pipe){-1, -1};
    h->held = 0;
}

/* -- order of age ------------------------------------------------------------------------------ */

static void unlink_age(struct tunnels *t, struct tunnel *u)
{
    *(u->older ? &u->older->newer : &t->oldest) = u->newer;
    *(u->newer ? &u->newer->older : &t->newest) = u->older;
}

static void link_age(struct tunnels *t, struct tunnel *u)
{
    u->older = t->newest;
    u->newer = NULL;
    *(t->newest ? &t->newest->newer : &t->oldest) = u;
    t->newest = u;
}

static void moved(struct tunnels *t, struct tunnel *u)
{
    u->moved_ms = uv_now(t->egress->loop);
    if (t->newest == u)
        return;
    unlink_age(t, u);
    link_age(t, u);
}

/* -- moving ------------------------------------------------------------------------------------ */

/* 1 it moved, 0 nothing to do now, -errno. */
static int drain(struct half *h)
{
    ssize_t n;

    if (h->held == 0 || !h->writable)
        return 0;
    n = splice(h->pipe.out, NULL, h->to, NULL, h->held, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n < 0 && errno == EAGAIN) {
        h->writable = false;
        return 0;
    }
    if (n < 0)
        return errno == EINTR ? 1 : -errno;
    h->held -= (size_t)n;
    *h->count += (uint64_t)n;
    return 1;
}

static void nothing_to_read(struct half *h)
{
    h->readable = false;
    h->bulk = h->run >= BULK_BYTES;
    h->run = 0;
}

/* What the other side did not take of a small message waits in the pipe. */
static int keep(struct tunnels *t, struct half *h, const char *bytes, size_t n)
{
    int rc = h->pipe.in < 0 ? pipe_get(t, &h->pipe) : 0;

    if (rc < 0)
        return rc;
    if (write(h->pipe.in, bytes, n) != (ssize_t)n)
        return -EIO;
    h->held = n;
    return 1;
}

/* A message that fits a page is copied: two calls, where splice(2) takes three that each cost more.
 * Results as those of drain(). */
static int carry_small(struct tunnels *t, struct half *h)
{
    static char bytes[SMALL_BYTES]; /* nothing stays in it from one call to the next */
    ssize_t n = recv(h->from, bytes, sizeof(bytes), MSG_DONTWAIT), sent;

    if (n < 0 && errno == EAGAIN) {
        nothing_to_read(h);
        return 0;
    }
    if (n < 0)
        return errno == EINTR ? 1 : -errno;
    h->eof = n == 0;
    h->run += (size_t)n;
    h->bulk = n == sizeof(bytes);
    /* epoll(7): less than was asked for is all there was; what comes now is an event. */
    if (n > 0 && !h->bulk && !h->ending)
        nothing_to_read(h);
    sent = n > 0 ? send(h->to, bytes, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) : 0;
    if (sent < 0 && errno != EAGAIN && errno != EINTR)
        return -errno;
    if (sent < n)
        h->writable = sent >= 0 || errno == EINTR;
    sent = MAX(sent, (ssize_t)0);
    *h->count += (uint64_t)sent;
    return sent < n ? keep(t, h, bytes + sent, (size_t)(n - sent)) : 1;
}

/* The client's first bytes behind a server's greeting. 1: they may pass; 0: not yet; -errno:
 * never. */
static int pass_first(struct half *h)
{
    int rc = greeting_inspect(h->greeting_flow, h->ending);

    if (rc == -EAGAIN)
        h->readable = false; /* more of them is an event */
    if (rc < 0)
        return rc == -EAGAIN ? 0 : rc;
    h->greeting_flow->greeted = false;
    h->greeting_flow = NULL;
    return 1;
}

/* room: bytes that the sandbox may still move. */
static int fill(struct tunnels *t, struct half *h, uint64_t allowance)
{
    /* What several connections hold between their ends is not counted yet. */
    size_t most = allowance == UINT64_MAX ? PIPE_BYTES
                                          : (size_t)MIN(allowance, (uint64_t)LIMITED_BYTES);
    ssize_t n;

    if (h->held > 0 || !h->readable || h->eof)
        return 0;
    if (h->greeting_flow) {
        int rc = pass_first(h);

        if (rc <= 0)
            return rc;
    }
    if (!h->bulk && h->writable && allowance >= SMALL_BYTES)
        return carry_small(t, h);
    if (h->pipe.in < 0) {
        int rc = pipe_get(t, &h->pipe);

        if (rc < 0)
            return rc;
    }
    most = MIN(most, turns_piece(t->egress->turns));
    n = splice(h->from, NULL, h->pipe.in, NULL, most, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
    if (n < 0 && errno == EAGAIN) {
        nothing_to_read(h);
        return 0;
    }
    if (n < 0)
        return errno == EINTR ? 1 : -errno;
    if (n == 0)
        h->eof = true;
    h->held += (size_t)n;
    h->run += (size_t)n;
    return 1;
}

static void probe(int fd)
{
    int one = 1, idle = PROBE_IDLE_S, again = PROBE_AGAIN_S, times = PROBE_TIMES;

    (void)!setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
    (void)!setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &again, sizeof(again));
    (void)!setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof(times));
    (void)!setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
}

/* 1: its turn is over and there may be more; 0: all is done for now; -errno. */
static int pump_half(struct tunnels *t, struct half *h, const struct sandbox *s)
{
    uint64_t end = *h->count + TURN_BYTES, check = *h->count + CHECK_EVERY_BYTES, allowance;
    bool over = false;
    int a, b = 0;

    do {
        allowance = registry_bytes_left(s);
        a = allowance > 0 ? fill(t, h, allowance) : 0; /* with none left the caller cuts */
        if (a >= 0)
            b = drain(h);
        if (a < 0 || b < 0)
            return a < 0 ? a : b;
        if (*h->count >=
            check) { /* a look at the clock costs a question and its answer something */
            check = *h->count + CHECK_EVERY_BYTES;
            over = *h->count >= end || turns_is_over(t->egress->turns);
        }
    } while ((a > 0 || b > 0) && !over);
    if (h->held == 0)
        pipe_put(t, h);
    if (h->eof && h->held == 0 && !h->shut) {
        h->shut = true;
        shutdown(h->to, SHUT_WR);
        probe(h->from);
    }
    return over && (a > 0 || b > 0);
}

static void set_reset(const struct flow *f)
{
    struct linger reset = {.l_onoff = 1, .l_linger = 0};

    (void)!setsockopt(f->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    (void)!setsockopt(f->up_fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
}

/* What one side said with a reset, the other side is to see likewise. */
static void end_with_reset(struct tunnel *u)
{
    set_reset(u->flow);
    flow_end(u->flow);
}

static void pump(struct tunnels *t, struct tunnel *u)
{
    uint64_t before = u->flow->up_bytes + u->flow->down_bytes;
    int a = pump_half(t, &u->half[0], u->flow->sandbox);
    int b = a < 0 ? 0 : pump_half(t, &u->half[1], u->flow->sandbox);

    if (a < 0 || b < 0) {
        end_with_reset(u);
        return;
    }
    if (u->half[0].shut && u->half[1].shut) {
        flow_end(u->flow);
        return;
    }
    if (u->flow->up_bytes + u->flow->down_bytes != before)
        moved(t, u);
    if (registry_over_bytes(
            u->flow->sandbox)) { /* another of its connections may have moved them */
        flow_cut(u->flow, NULL, "limit", FLOW_BYTES_REASON);
        end_with_reset(u);
        return;
    }
    if (a > 0 || b > 0)
        turns_wait(t->egress->turns, &u->turn);
}

/* -- events ------------------------------------------------------------------------------------ */

static void on_turn(void *arg)
{
    struct tunnel *u = arg;

    pump(u->flow->egress->tunnels, u);
}

/* At once, if its sandbox has time left: what is known to be readable or writable stays so. */
static void pump_or_wait(struct tunnels *t, struct tunnel *u)
{
    struct turns *turns = t->egress->turns;

    if (u->turn.waiting)
        return;
    if (!turns_enter_once(turns, u->turn.owner)) {
        turns_wait(turns, &u->turn);
        return;
    }
    pump(t, u);
    turns_exit(turns);
}

static void on_event(struct tunnels *t, const struct epoll_event *ev)
{
    uint64_t id = ev->data.u64 >> 1;
    unsigned side = ev->data.u64 & 1; /* 0 the client's socket */
    struct flow *f = flow_find(t->egress, id);
    struct tunnel *u = f && f->state == FLOW_TUNNELED ? f->user : NULL;

    if (!u)
        return; /* ended by an event before this one */
    if (ev->events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        u->half[side].readable = true;
    if (ev->events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        u->half[side].ending = true;
    if (ev->events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
        u->half[1 - side].writable = true;
    pump_or_wait(t, u);
}

static void on_poll(uv_poll_t *p, int status, int events)
{
    struct tunnels *t = p->data;
    struct epoll_event ev[EVENTS];
    int n = epoll_wait(t->epoll_fd, ev, EVENTS, 0);

    for (int i = 0; i < n; i++)
        on_event(t, &ev[i]);
}

static void on_sweep(uv_timer_t *timer)
{
    struct tunnels *t = timer->data;
    uint64_t now = uv_now(t->egress->loop);
    struct tunnel *u = t->oldest;
    uint64_t half = registry_is_crowded(t->egress) ? HALF_CROWDED_MS : HALF_IDLE_MS;

    while (u) {
        struct tunnel *next = u->newer;
        uint64_t idle = now - u->moved_ms;

        if (idle < MIN(half, t->egress->config.idle_timeout_ms))
            break;
        if (idle >= t->egress->config.idle_timeout_ms || u->half[0].shut || u->half[1].shut)
            flow_end(u->flow);
        u = next;
    }
}

/* -- life -------------------------------------------------------------------------------------- */

static void on_flow_end(struct flow *f)
{
    struct tunnels *t = f->egress->tunnels;
    struct tunnel *u = f->user;

    if (f->cut) /* a part must not pass for the whole, where an end says that it is */
        set_reset(f);
    pipe_put(t, &u->half[0]);
    pipe_put(t, &u->half[1]);
    unlink_age(t, u);
    turns_leave(f->egress->turns, &u->turn);
    free(u); /* its sockets leave the epoll when the flow closes them */
    f->user = NULL;
}

static int watch(struct tunnels *t, int fd, uint64_t id, unsigned side)
{
    struct epoll_event ev = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
                             .data.u64 = id << 1 | side};
    int one = 1;

    (void)!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    return epoll_ctl(t->epoll_fd, EPOLL_CTL_ADD, fd, &ev) < 0 ? -errno : 0;
}

static int watch_both(struct tunnels *t, const struct flow *f)
{
    int rc = watch(t, f->fd, f->id, 0);

    if (rc < 0)
        return rc;
    rc = watch(t, f->up_fd, f->id, 1);
    if (rc < 0 && epoll_ctl(t->epoll_fd, EPOLL_CTL_DEL, f->fd, NULL) < 0)
        abort(); /* it was added a moment ago: another flow would get its events */
    return rc;
}

int tunnel_start(struct flow *f)
{
    struct tunnels *t = f->egress->tunnels;
    struct tunnel *u = calloc(1, sizeof(*u));
    int rc;

    if (!u)
        return -ENOMEM;
    u->flow = f;
    u->turn = (struct turn){.go = on_turn, .arg = u, .owner = registry_owner(f->sandbox)};
    u->half[0] = (struct half){f->fd, f->up_fd, {-1, -1}, .count = &f->up_bytes};
    u->half[0].greeting_flow = f->greeted ? f : NULL;
    u->half[1] = (struct half){f->up_fd, f->fd, {-1, -1}, .count = &f->down_bytes};
    rc = watch_both(t, f);
    if (rc < 0) {
        free(u);
        return rc;
    }
    u->moved_ms = uv_now(t->egress->loop);
    link_age(t, u);
    f->state = FLOW_TUNNELED;
    f->user = u;
    f->on_end = on_flow_end;
    /* The first message is there already, as a rule. */
    u->half[0].readable = u->half[0].writable = true;
    u->half[1].readable = u->half[1].writable = true;
    pump_or_wait(t, u);
    return 0;
}

int tunnels_new(struct egress *eg, struct tunnels **out)
{
    struct tunnels *t = calloc(1, sizeof(*t));

    if (!t)
        return -ENOMEM;
    t->egress = eg;
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (t->epoll_fd < 0 || uv_poll_init(eg->loop, &t->poll, t->epoll_fd) < 0) {
        util_close(&t->epoll_fd);
        free(t);
        return -EMFILE;
    }
    uv_timer_init(eg->loop, &t->sweep);
    t->poll.data = t->sweep.data = t;
    t->handles = 2;
    uv_poll_start(&t->poll, UV_READABLE, on_poll);
    uv_timer_start(&t->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    *out = t;
    return 0;
}
