/* States of the channel: down (a timer until the next try), connected (HELLO sent, its answer
 * awaited), up (requests are sent, or queued while the socket is full), lost (every request
 * under way ends, on_down is called if it was up, then down). Events of the poll handle drive
 * it; the handle is used again only after its close callback. Callbacks may send, and may free
 * or restart the client from inside. */

#include "privsep/client.h"

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "privsep/packet.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#define RETRY_FIRST_MS 20
#define RETRY_MAX_MS   1000
#define READ_BATCH     64 /* packets handled by one turn of the loop */

struct pending {
    uint64_t seq; /* 0: free */
    privsep_reply_cb cb;
    void *arg;
};

/* A request that the socket did not take yet. Its seq finds its pending entry. */
struct outgoing {
    struct privsep_msg *ring;
    size_t cap, head, len;
};

struct privsep_client {
    uv_loop_t *loop;
    uv_poll_t poll;
    uv_timer_t timer;
    struct privsep_client_events ev;
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    int fd;
    bool up, closing;
    int handles; /* uv handles that are not closed yet: memory goes with the last */
    uint64_t retry_ms, next_seq;
    struct pending *pending; /* PRIVSEP_CLIENT_MAX_PENDING, by seq modulo that */
    size_t n_pending;
    struct outgoing out;
};

static void try_connect(struct privsep_client *c);
static void on_ready(uv_poll_t *poll, int status, int events);

/* -- requests under way ------------------------------------------------------------------------ */

static struct pending *pending_of(struct privsep_client *c, uint64_t seq)
{
    struct pending *p = &c->pending[seq % PRIVSEP_CLIENT_MAX_PENDING];

    return seq != 0 && p->seq == seq ? p : NULL;
}

/* The next number whose place is free; there is one, since n_pending is below the maximum. */
static struct pending *new_pending(struct privsep_client *c)
{
    struct pending *p;

    do
        p = &c->pending[++c->next_seq % PRIVSEP_CLIENT_MAX_PENDING];
    while (p->seq != 0);
    p->seq = c->next_seq;
    c->n_pending++;
    return p;
}

static void finish(struct privsep_client *c, struct pending *p, int status,
                   const struct privsep_msg *m, int *fds, size_t n_fds)
{
    struct pending done = *p;

    *p = (struct pending){0};
    c->n_pending--;
    done.cb(done.arg, status, m, fds, n_fds);
}

/* Ends what was under way up to now, not what its callbacks may ask for anew. */
static void finish_all(struct privsep_client *c, int status)
{
    uint64_t last = c->next_seq;

    c->out.head = c->out.len = 0;
    for (size_t i = 0; i < PRIVSEP_CLIENT_MAX_PENDING && c->n_pending > 0; i++)
        if (c->pending[i].seq != 0 && c->pending[i].seq <= last)
            finish(c, &c->pending[i], status, NULL, NULL, 0);
}

/* -- connection -------------------------------------------------------------------------------- */

static void lose(struct privsep_client *c, int status);

/* To try again, or connected and no answer to HELLO. */
static void on_timer(uv_timer_t *timer)
{
    struct privsep_client *c = timer->data;

    if (c->fd < 0) {
        try_connect(c);
        return;
    }
    log_warn("privd's channel: no peer answers");
    lose(c, -ETIMEDOUT);
}

static void retry_later(struct privsep_client *c)
{
    uv_timer_start(&c->timer, on_timer, c->retry_ms, 0);
    c->retry_ms = MIN(c->retry_ms * 2, RETRY_MAX_MS);
}

static void free_when_closed(struct privsep_client *c)
{
    if (--c->handles > 0)
        return;
    free(c->pending);
    free(c->out.ring);
    free(c);
}

static void on_timer_closed(uv_handle_t *h)
{
    free_when_closed(h->data);
}

static void on_poll_closed(uv_handle_t *h)
{
    struct privsep_client *c = h->data;

    if (c->closing) {
        free_when_closed(c);
        return;
    }
    c->handles--;
    retry_later(c);
}

/* Stops listening and closes. The poll handle is used again only after its close callback. */
static void hang_up(struct privsep_client *c)
{
    if (c->fd < 0)
        return;
    uv_poll_stop(&c->poll);
    uv_timer_stop(&c->timer);
    util_close(&c->fd);
    uv_close((uv_handle_t *)&c->poll, on_poll_closed);
}

static void lose(struct privsep_client *c, int status)
{
    bool was_up = c->up;

    c->up = false;
    hang_up(c);
    if (was_up) {
        log_warn("privd's channel is down: %s", strerror(-status));
        c->ev.on_down(c->ev.arg);
    }
    finish_all(c, -ECONNRESET);
}

static void watch(struct privsep_client *c)
{
    int events = UV_READABLE | (c->out.len > 0 ? UV_WRITABLE : 0);

    uv_poll_start(&c->poll, events, on_ready);
}

/* -- sending ----------------------------------------------------------------------------------- */

static int send_msg(struct privsep_client *c, const struct privsep_msg *m)
{
    struct privsep_packet p = {.msg = *m};

    return privsep_packet_send(c->fd, &p);
}

static int grow_out(struct privsep_client *c)
{
    size_t cap = c->out.cap ? c->out.cap * 2 : 64;
    struct privsep_msg *bigger;

    if (c->out.len < c->out.cap)
        return 0;
    bigger = malloc(cap * sizeof(*bigger));
    if (!bigger)
        return -ENOMEM;
    for (size_t i = 0; i < c->out.len; i++)
        bigger[i] = c->out.ring[(c->out.head + i) % c->out.cap];
    free(c->out.ring);
    c->out = (struct outgoing){bigger, cap, 0, c->out.len};
    return 0;
}

/* Bounded by the number of pending requests. */
static int queue_msg(struct privsep_client *c, const struct privsep_msg *m)
{
    int r = grow_out(c);

    if (r < 0)
        return r;
    c->out.ring[(c->out.head + c->out.len++) % c->out.cap] = *m;
    watch(c);
    return 0;
}

static int flush(struct privsep_client *c)
{
    while (c->out.len > 0) {
        int r = send_msg(c, &c->out.ring[c->out.head]);

        if (r == -EAGAIN)
            return 0;
        if (r < 0)
            return r;
        c->out.head = (c->out.head + 1) % c->out.cap;
        c->out.len--;
    }
    watch(c);
    return 0;
}

static int64_t send_request(struct privsep_client *c, const struct privsep_msg *request,
                            privsep_reply_cb cb, void *arg)
{
    struct privsep_msg m = *request;
    struct pending *p;
    int r;

    if (c->n_pending >= PRIVSEP_CLIENT_MAX_PENDING)
        return -EBUSY;
    p = new_pending(c);
    p->cb = cb;
    p->arg = arg;
    m.version = PRIVSEP_VERSION;
    m.seq = p->seq;
    m.fds = 0;
    r = c->out.len > 0 ? -EAGAIN : send_msg(c, &m);
    if (r == -EAGAIN)
        r = queue_msg(c, &m);
    if (r < 0) {
        /* A broken channel is found by the poll, which ends what is under way. */
        *p = (struct pending){0};
        c->n_pending--;
        return r == -ENOMEM ? r : -ENOTCONN;
    }
    return (int64_t)m.seq;
}

int64_t privsep_client_send(struct privsep_client *c, const struct privsep_msg *request,
                            privsep_reply_cb cb, void *arg)
{
    return c->up ? send_request(c, request, cb, arg) : -ENOTCONN;
}

/* -- receiving --------------------------------------------------------------------------------- */

/* An answer without a request is a broken peer: the channel starts anew. */
static int deliver(struct privsep_client *c, struct privsep_packet *p)
{
    struct pending *who = pending_of(c, p->msg.seq);

    if (!privsep_answer_is_sound(&p->msg, sizeof(p->msg), p->n_fds) || (p->msg.seq != 0 && !who)) {
        privsep_packet_close(p);
        return -EPROTO;
    }
    if (who)
        finish(c, who, 0, &p->msg, p->fds, p->n_fds);
    else if (c->up)
        c->ev.on_event(c->ev.arg, &p->msg, p->fds, p->n_fds);
    else
        privsep_packet_close(p);
    return 0;
}

static int receive(struct privsep_client *c)
{
    for (int i = 0; i < READ_BATCH && !c->closing && c->fd >= 0; i++) {
        struct privsep_packet p;
        int r = privsep_packet_recv(c->fd, &p);

        if (r == -EAGAIN)
            return 0;
        if (r == 0)
            return -ECONNRESET;
        if (r > 0)
            r = deliver(c, &p);
        if (r < 0)
            return r;
    }
    return 0;
}

static void on_ready(uv_poll_t *poll, int status, int events)
{
    struct privsep_client *c = poll->data;
    int r = status;

    if (r == 0 && (events & UV_WRITABLE))
        r = flush(c);
    if (r == 0 && (events & UV_READABLE))
        r = receive(c);
    if (r < 0 && !c->closing && c->fd >= 0)
        lose(c, r);
}

static void on_hello(void *arg, int status, const struct privsep_msg *m, int *fds, size_t n_fds)
{
    struct privsep_client *c = arg;

    for (size_t i = 0; i < n_fds; i++)
        close(fds[i]);
    if (status < 0 || c->closing)
        return; /* lose() has begun the next try */
    if (m->op != PRIVSEP_HELLO || m->status != 0 || m->u.hello.version != PRIVSEP_VERSION) {
        log_error("privd's channel: it speaks version %u, not %u", m->u.hello.version,
                  (unsigned)PRIVSEP_VERSION);
        lose(c, -EPROTONOSUPPORT);
        return;
    }
    uv_timer_stop(&c->timer);
    c->up = true;
    c->retry_ms = RETRY_FIRST_MS;
    c->ev.on_up(c->ev.arg, m);
}

static int open_channel(const char *path)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    CLEANUP_CLOSE int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    if (fd < 0)
        return -errno;
    memcpy(a.sun_path, path, strlen(path) + 1);
    if (connect(fd, (struct sockaddr *)&a, sizeof(a)) < 0)
        return -errno;
    return TAKE_FD(fd);
}

static void try_connect(struct privsep_client *c)
{
    struct privsep_msg hello = {.op = PRIVSEP_HELLO, .u.hello.version = PRIVSEP_VERSION};

    c->fd = open_channel(c->path);
    if (c->fd < 0) {
        retry_later(c);
        return;
    }
    if (uv_poll_init(c->loop, &c->poll, c->fd) < 0) {
        util_close(&c->fd);
        retry_later(c);
        return;
    }
    c->poll.data = c;
    c->handles++;
    watch(c);
    uv_timer_start(&c->timer, on_timer, PRIVSEP_CLIENT_HELLO_MS, 0);
    if (send_request(c, &hello, on_hello, c) < 0)
        lose(c, -ECONNRESET);
}

/* -- making ------------------------------------------------------------------------------------ */

int privsep_client_new(uv_loop_t *loop, const char *path, const struct privsep_client_events *ev,
                       struct privsep_client **out)
{
    struct privsep_client *c;

    if (strlen(path) >= sizeof(c->path))
        return -ENAMETOOLONG;
    c = calloc(1, sizeof(*c));
    if (!c)
        return -ENOMEM;
    c->pending = calloc(PRIVSEP_CLIENT_MAX_PENDING, sizeof(*c->pending));
    if (!c->pending || uv_timer_init(loop, &c->timer) < 0) {
        free(c->pending);
        free(c);
        return -ENOMEM;
    }
    c->loop = loop;
    c->timer.data = c;
    c->handles = 1;
    c->fd = -1;
    c->ev = *ev;
    c->retry_ms = RETRY_FIRST_MS;
    memcpy(c->path, path, strlen(path) + 1);
    /* From the timer, so that no callback runs inside this call. */
    uv_timer_start(&c->timer, on_timer, 0, 0);
    *out = c;
    return 0;
}

void privsep_client_free(struct privsep_client *c)
{
    if (!c || c->closing)
        return;
    c->closing = true;
    c->up = false;
    hang_up(c);
    uv_close((uv_handle_t *)&c->timer, on_timer_closed);
    finish_all(c, -ECANCELED);
}

void privsep_client_restart(struct privsep_client *c)
{
    if (!c->closing && c->fd >= 0)
        lose(c, -ETIMEDOUT);
}

bool privsep_client_is_up(const struct privsep_client *c)
{
    return c->up;
}
