/* A tunnel has two halves, each a descriptor to read, a pipe that bytes are in only while the
 * other side is full, and a descriptor to write. An event pumps both halves as far as its
 * sandbox's turn allows; edge-triggered epoll tells again when something changed, so a half
 * remembers that it may go on. The end of one side is passed on as it came (a shut half, or a
 * reset); both ended, an error or an idle time end the flow. */

#include "egress/flow/tunnel.h"

#include "base/log.h"
#include "base/util.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/registry.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/tunnel_half.h"
#include "egress/tls/turns.h"

#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <uv.h>

#define EVENTS          256
#define SWEEP_MS        5000
#define RESET_CHECK_MS  50      /* between looks at whether all is taken that came before a reset */
#define HALF_IDLE_MS    300000u /* one direction has ended, and nothing moves in the other */
#define HALF_CROWDED_MS 10000u  /* the same, while more than half of all flows' places are taken */

struct tunnel {
    struct flow *flow;
    struct tunnel_half half[2]; /* 0: from the client */
    struct tunnel *older, *newer;
    struct tunnel *ending_before, *ending_next; /* with `ends` */
    bool ends; /* one side was reset, and the other is going to be, behind what it has to take */
    uint64_t moved_ms;
    struct turn turn; /* its next, where there is more to move */
};

struct tunnels {
    struct egress *egress;
    int epoll_fd;
    uv_poll_t poll;
    uv_timer_t sweep, taken;
    struct tunnel *ending;
    struct tunnel_pipes pipes;
    struct tunnel *oldest, *newest; /* by when they last moved */
    unsigned handles;
};

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

static void set_reset(const struct flow *f)
{
    struct linger reset = {.l_onoff = 1, .l_linger = 0};

    (void)!setsockopt(f->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    (void)!setsockopt(f->up_fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
}

static void end_with_reset(struct tunnel *u)
{
    set_reset(u->flow);
    flow_end(u->flow);
}

/* A reset takes all with it that the peer's kernel does not have, and nothing tells when that has
 * the last of it. */
static void on_taken(uv_timer_t *timer)
{
    struct tunnels *t = timer->data;

    for (struct tunnel *u = t->ending, *next; u; u = next) {
        next = u->ending_next;
        if (tunnel_half_is_passed(&u->half[0]) && tunnel_half_is_passed(&u->half[1]))
            end_with_reset(u);
    }
}

static void unlink_ending(struct tunnels *t, struct tunnel *u)
{
    if (!u->ends)
        return;
    *(u->ending_before ? &u->ending_before->ending_next : &t->ending) = u->ending_next;
    if (u->ending_next)
        u->ending_next->ending_before = u->ending_before;
    if (!t->ending)
        uv_timer_stop(&t->taken);
}

static void link_ending(struct tunnels *t, struct tunnel *u)
{
    if (u->ends)
        return;
    if (!t->ending)
        uv_timer_start(&t->taken, on_taken, RESET_CHECK_MS, RESET_CHECK_MS);
    u->ends = true;
    u->ending_next = t->ending;
    if (u->ending_next)
        u->ending_next->ending_before = u;
    t->ending = u;
}

/* Of two halves one knows first that a socket was lost; of a socket that was lost the bytes that
 * came before can still be read. */
static bool has_lost_one(struct tunnel *u)
{
    bool lost = false;

    for (int i = 0; i < 2; i++) {
        struct tunnel_half *h = &u->half[i], *other = &u->half[1 - i];

        other->dead |= h->reset;
        other->reset |= h->dead;
        lost |= h->reset || h->dead;
    }
    return lost;
}

/* A reset by one side is passed to the other, behind what came before it. True: the flow has
 * ended. */
static bool pass_reset(struct tunnels *t, struct tunnel *u)
{
    if (!has_lost_one(u))
        return false;
    if (tunnel_half_is_passed(&u->half[0]) && tunnel_half_is_passed(&u->half[1])) {
        end_with_reset(u);
        return true;
    }
    link_ending(t, u);
    return false;
}

static void pump(struct tunnels *t, struct tunnel *u)
{
    uint64_t before = u->flow->up_bytes + u->flow->down_bytes;
    int a, b;

    if (flow_settle(u->flow) != FLOW_SETTLED)
        return;
    a = tunnel_half_pump(&t->pipes, &u->half[0], u->flow->sandbox);
    u->half[1].reset |= u->half[0].dead; /* before its end is taken for one that was said */
    b = a < 0 ? 0 : tunnel_half_pump(&t->pipes, &u->half[1], u->flow->sandbox);
    if (a < 0 || b < 0) {
        end_with_reset(u);
        return;
    }
    if (pass_reset(t, u))
        return;
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

/* At once, if its sandbox has time left: a side known to be readable or writable stays so. */
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
        if (idle >= t->egress->config.idle_timeout_ms || u->half[0].shut || u->half[1].shut ||
            u->ends)
            flow_end(u->flow);
        u = next;
    }
}

/* -- life -------------------------------------------------------------------------------------- */

static void on_flow_end(struct flow *f)
{
    struct tunnels *t = f->egress->tunnels;
    struct tunnel *u = f->user;

    if (f->cut || u->ends) /* a part must not pass for the whole, where an end says that it is */
        set_reset(f);
    tunnel_half_drop_pipe(&t->pipes, &u->half[0]);
    tunnel_half_drop_pipe(&t->pipes, &u->half[1]);
    unlink_age(t, u);
    unlink_ending(t, u);
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
    u->half[0] = (struct tunnel_half){f->fd, f->up_fd, {-1, -1}, .count = &f->up_bytes};
    u->half[0].greeting_flow = f->greeted ? f : NULL;
    u->half[0].line_flow = f->kind == FLOW_OPAQUE ? f : NULL;
    u->half[1] = (struct tunnel_half){f->up_fd, f->fd, {-1, -1}, .count = &f->down_bytes};
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
    t->pipes.turns = eg->turns;
    t->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (t->epoll_fd < 0 || uv_poll_init(eg->loop, &t->poll, t->epoll_fd) < 0) {
        util_close(&t->epoll_fd);
        free(t);
        return -EMFILE;
    }
    uv_timer_init(eg->loop, &t->sweep);
    uv_timer_init(eg->loop, &t->taken);
    t->poll.data = t->sweep.data = t->taken.data = t;
    t->handles = 3;
    uv_poll_start(&t->poll, UV_READABLE, on_poll);
    uv_timer_start(&t->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    *out = t;
    return 0;
}
