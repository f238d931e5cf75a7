/* Owns the listeners, the list of connections, their deadlines and the end of all of it; a
 * connection itself is conn.c's. Deadlines of one length stand in one list in the order of
 * their beginning, so that one timer serves all. Before the loop sleeps, connections that have
 * something to do are pumped (marked dirty by whatever gave it to them). At the maximum of
 * connections the one that was idle longest goes, or one whose request has had no owner for
 * long, or the new one is turned away.
 * http_server_stop: listeners close at once, idle connections too, the others when they have
 * answered or the grace time is over; done comes after the last handle. */
#include "http/server_internal.h"

#include "base/io.h"
#include "base/log.h"
#include "http/conn_wait.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define ACCEPT_BATCH      64
#define ACCEPT_RETRY_MS   200
#define LINGER_MS         2000
#define TAKEN_MS          50 /* longer than a kernel puts off its acknowledgement */
#define FULL_SAY_MS       10000
#define DROP_IDLE_MS      1000 /* between requests for less is not idle */
#define DROP_TRIES        8
#define DROP_HEAD_MS      1000 /* a head or handshake is not given up for another before */
#define DROP_OWNERLESS_MS 5000 /* nor a request, which is looked up meanwhile */

/* A peer that has vanished is known after two minutes, though nothing is sent to it. */
#define KEEPALIVE_IDLE_S  60
#define KEEPALIVE_AGAIN_S 15
#define KEEPALIVE_TIMES   4

/* -- time -------------------------------------------------------------------------------------- */

static uint64_t wait_length_ms(const struct http_server *s, enum wait_kind kind)
{
    switch (kind) {
    case WAIT_HEAD: return s->config.head_timeout_ms;
    case WAIT_IDLE: return s->config.idle_timeout_ms;
    case WAIT_BODY: return s->config.body_timeout_ms;
    case WAIT_WRITE: return s->config.write_timeout_ms;
    case WAIT_BEGIN: return s->config.layer.begin_timeout_ms;
    case WAIT_HALF: return s->config.half_timeout_ms;
    case WAIT_HALF_STREAM: return s->config.half_stream_timeout_ms;
    case WAIT_OWNER: return s->config.owner_timeout_ms;
    case WAIT_TAKEN: return TAKEN_MS;
    default: return LINGER_MS;
    }
}

static void on_timer(uv_timer_t *timer);

/* The timer is only ever moved earlier here; when it fires too early it finds its next time. */
static void timer_by(struct http_server *s, uint64_t due_ms)
{
    uint64_t now = uv_now(s->loop);

    if (s->timer_due_ms != 0 && s->timer_due_ms <= due_ms)
        return;
    s->timer_due_ms = due_ms;
    uv_timer_start(&s->timer, on_timer, due_ms > now ? due_ms - now : 0, 0);
}

void server_wait_stop(struct wait *w)
{
    if (!w->next)
        return;
    w->prev->next = w->next;
    w->next->prev = w->prev;
    w->prev = w->next = NULL;
}

void server_wait(struct http_server *s, struct wait *w, enum wait_kind kind)
{
    struct wait *list = &s->waits[kind];
    uint64_t length = wait_length_ms(s, kind);

    server_wait_stop(w);
    if (length == 0)
        return;
    w->due_ms = uv_now(s->loop) + length;
    w->next = list;
    w->prev = list->prev;
    list->prev->next = w;
    list->prev = w;
    timer_by(s, w->due_ms);
}

static struct conn *conn_of(struct wait *w, enum wait_kind kind)
{
    if (kind == WAIT_WRITE)
        return CONTAINER_OF(w, struct conn, write_wait);
    return kind == WAIT_OWNER ? CONTAINER_OF(w, struct conn, own_wait)
                              : CONTAINER_OF(w, struct conn, read_wait);
}

static void expire(struct http_server *s, enum wait_kind kind, uint64_t now)
{
    struct wait *list = &s->waits[kind], *w;

    while ((w = list->next) != list && w->due_ms <= now) {
        server_wait_stop(w);
        conn_timed_out(conn_of(w, kind), w);
    }
}

static void on_timer(uv_timer_t *timer)
{
    struct http_server *s = timer->data;
    uint64_t now = uv_now(s->loop), next = UINT64_MAX;

    s->timer_due_ms = 0;
    if (s->accept_paused && s->accept_again_ms <= now)
        server_set_accepting(s, true);
    if (s->stopping && s->stop_at_ms <= now) {
        for (struct conn *c = s->conns, *after; c; c = after) {
            after = c->next;
            conn_stop(c, true);
        }
    }
    for (int kind = 0; kind < WAIT_KINDS; kind++) {
        expire(s, kind, now);
        if (s->waits[kind].next != &s->waits[kind])
            next = MIN(next, s->waits[kind].next->due_ms);
    }
    if (s->accept_paused)
        next = MIN(next, s->accept_again_ms);
    if (s->stopping && s->stop_at_ms > now)
        next = MIN(next, s->stop_at_ms);
    if (next != UINT64_MAX)
        timer_by(s, next);
}

/* -- work before sleep ------------------------------------------------------------------------- */

static void pump(struct http_server *s, struct conn *c)
{
    uint64_t tag = c->tag;

    if (!server_enter(s, tag, true, &c->round)) {
        server_mark_dirty(c);
        return;
    }
    conn_pump(c);
    server_leave(s, tag);
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct http_server *s = prepare->data;
    size_t count = 0;

    for (struct conn *c = s->dirty; c; c = c->dirty_next)
        count++;
    while (count-- > 0 && s->dirty) {
        struct conn *c = s->dirty;

        s->dirty = c->dirty_next;
        if (!s->dirty)
            s->dirty_tail = &s->dirty;
        c->dirty = false;
        pump(s, c);
    }
    if (s->dirty) { /* those that still have work let the sockets have their turn first */
        timer_by(s, uv_now(s->loop));
    } else {
        s->preparing = false;
        uv_prepare_stop(&s->prepare);
    }
}

void server_mark_dirty(struct conn *c)
{
    struct http_server *s = c->server;

    if (c->dirty || c->pumping || c->state == CONN_DEAD)
        return;
    c->dirty = true;
    c->dirty_next = NULL;
    *s->dirty_tail = c;
    s->dirty_tail = &c->dirty_next;
    if (!s->preparing) {
        s->preparing = true;
        uv_prepare_start(&s->prepare, on_prepare);
    }
}

static void unmark_dirty(struct conn *c)
{
    struct http_server *s = c->server;

    if (!c->dirty)
        return;
    for (struct conn **p = &s->dirty; *p; p = &(*p)->dirty_next) {
        if (*p != c)
            continue;
        *p = c->dirty_next;
        if (!*p)
            s->dirty_tail = p;
        break;
    }
    c->dirty = false;
}

/* -- accepting --------------------------------------------------------------------------------- */

static void on_acceptable(uv_poll_t *poll, int status, int events);

void server_set_accepting(struct http_server *s, bool on)
{
    if (s->resting)
        return;
    s->accept_paused = !on;
    for (struct listener *l = s->listeners; l; l = l->next) {
        if (on)
            uv_poll_start(&l->poll, UV_READABLE, on_acceptable);
        else
            uv_poll_stop(&l->poll);
    }
    if (!on) {
        s->accept_again_ms = uv_now(s->loop) + ACCEPT_RETRY_MS;
        timer_by(s, s->accept_again_ms);
    }
}

static void turn_away(int fd)
{
    static const char answer[] =
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: application/json\r\n"
        "Connection: close\r\nRetry-After: 1\r\nContent-Length: 45\r\n\r\n"
        "{\"code\":503,\"message\":\"too many connections\"}";
    char ignored[4096] = "";
    bool tls;

    /* Best effort: bytes sent already are read, so that closing does not reset the answer away. */
    tls = recv(fd, ignored, sizeof(ignored), MSG_DONTWAIT) > 0 &&
          ignored[0] == HTTP_LAYER_FIRST_BYTE;
    (void)!send(fd, tls ? HTTP_LAYER_ALERT : answer,
                tls ? sizeof(HTTP_LAYER_ALERT) - 1 : sizeof(answer) - 1,
                MSG_DONTWAIT | MSG_NOSIGNAL);
    shutdown(fd, SHUT_WR);
    close(fd);
}

/* Says it once in a while: a flood of a server must not flood its log. */
static void say_full(struct http_server *s)
{
    uint64_t now = uv_now(s->loop);

    if (s->full_said_ms != 0 && now - s->full_said_ms < FULL_SAY_MS)
        return;
    s->full_said_ms = now;
    log_warn(
        "as many connections as may be (%zu): those that are idle longest are closed for new "
        "ones, else those that have brought no whole request with a known key for longest, and "
        "where there is none new ones get 503",
        s->config.max_connections);
}

/* Closes the connection that has been between requests for longest. A connection that was used a
 * moment ago or has sent something is left. */
static bool drop_idle(struct http_server *s)
{
    struct wait *list = &s->waits[WAIT_IDLE], *w = list->next;

    for (int i = 0; i < DROP_TRIES && w != list; i++, w = w->next) {
        struct conn *c = CONTAINER_OF(w, struct conn, read_wait);
        int waiting = 0;

        if (uv_now(s->loop) + s->config.idle_timeout_ms < w->due_ms + DROP_IDLE_MS)
            return false;
        if (ioctl(c->fd, FIONREAD, &waiting) < 0 || waiting > 0)
            continue;
        server_wait_stop(w);
        conn_timed_out(c, w);
        return true;
    }
    return false;
}

/* Closes the connection that has waited for this longest, where that is so long already. */
static bool drop_waiting(struct http_server *s, enum wait_kind kind, uint64_t least_ms)
{
    struct wait *w = s->waits[kind].next;
    struct conn *c = conn_of(w, kind);

    if (w == &s->waits[kind] || uv_now(s->loop) + wait_length_ms(s, kind) < w->due_ms + least_ms)
        return false;
    c->broken = true;
    conn_pump(c);
    return true;
}

/* For a new connection, one goes whose tenant is not known. */
static bool shed_connection(struct http_server *s)
{
    return drop_idle(s) || drop_waiting(s, WAIT_HEAD, DROP_HEAD_MS) ||
           drop_waiting(s, WAIT_BEGIN, DROP_HEAD_MS) ||
           drop_waiting(s, WAIT_OWNER, DROP_OWNERLESS_MS);
}

static void take_connection(struct http_server *s, int fd)
{
    if (s->conn_count - s->conns_closing >= s->config.max_connections) {
        say_full(s);
        if (!shed_connection(s)) {
            turn_away(fd);
            return;
        }
    }
    if (conn_new(s, fd, 0, NULL, NULL) < 0)
        close(fd);
}

static void on_acceptable(uv_poll_t *poll, int status, int events)
{
    struct listener *l = poll->data;
    struct http_server *s = l->server;

    for (int i = 0; i < ACCEPT_BATCH; i++) {
        int fd = accept4(l->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);

        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
            log_warn("no new connections for %d ms: %s", ACCEPT_RETRY_MS, strerror(errno));
            server_set_accepting(s, false);
            return;
        }
        if (fd < 0 && (errno == ECONNABORTED || errno == EINTR || errno == EPROTO))
            continue;
        if (fd < 0)
            return;
        take_connection(s, fd);
    }
}

/* Options that sockets inherit from their listener: answers leave at once, and a peer that vanished
 * without a word is found out by the kernel. Fails harmlessly on unix sockets. */
static void set_options(int fd)
{
    int one = 1;

    (void)!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    io_set_keepalive(fd, KEEPALIVE_IDLE_S, KEEPALIVE_AGAIN_S, KEEPALIVE_TIMES);
}

int http_server_listen(struct http_server *s, int listen_fd)
{
    struct listener *l = calloc(1, sizeof(*l));
    int r;

    if (!l)
        return -ENOMEM;
    r = io_set_nonblock(listen_fd, true); /* it may be shared: another may accept first */
    if (r == 0)
        r = uv_poll_init(s->loop, &l->poll, listen_fd);
    if (r < 0) {
        free(l);
        return r;
    }
    set_options(listen_fd);
    l->server = s;
    l->fd = listen_fd;
    l->poll.data = l;
    l->next = s->listeners;
    s->listeners = l;
    s->handles++;
    if (!s->accept_paused)
        uv_poll_start(&l->poll, UV_READABLE, on_acceptable);
    return 0;
}

int http_server_adopt(struct http_server *s, int fd)
{
    return http_server_adopt_tagged(s, fd, 0);
}

int http_server_adopt_tagged(struct http_server *s, int fd, uint64_t tag)
{
    return http_server_adopt_layer(s, fd, tag, NULL, NULL);
}

int http_server_adopt_layer(struct http_server *s, int fd, uint64_t tag,
                            const struct http_layer_ops *ops, void *layer)
{
    int r;

    if (s->stopping)
        return -ESHUTDOWN;
    r = io_set_nonblock(fd, true);
    if (r < 0)
        return r;
    set_options(fd);
    return conn_new(s, fd, tag, ops, layer);
}

/* -- life -------------------------------------------------------------------------------------- */

static void on_own_handle_closed(uv_handle_t *handle)
{
    struct http_server *s = handle->data;

    if (--s->handles == 0)
        server_free(s);
}

static void on_listener_closed(uv_handle_t *handle)
{
    struct listener *l = handle->data;
    struct http_server *s = l->server;

    free(l);
    if (--s->handles == 0)
        server_free(s);
}

/* The last connection of a stopping server is gone: only its own handles are left. */
static void close_own_handles(struct http_server *s)
{
    uv_close((uv_handle_t *)&s->timer, on_own_handle_closed);
    uv_close((uv_handle_t *)&s->prepare, on_own_handle_closed);
}

static void on_conn_closed(uv_handle_t *handle)
{
    struct conn *c = handle->data;
    struct http_server *s = c->server;

    free(c);
    s->handles--;
    s->conns_closing--;
    if (--s->conn_count == 0 && s->stopping)
        close_own_handles(s);
}

void server_conn_gone(struct conn *c)
{
    struct http_server *s = c->server;

    unmark_dirty(c);
    if (c->prev)
        c->prev->next = c->next;
    else
        s->conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    s->conns_closing++;
    uv_close((uv_handle_t *)&c->poll, on_conn_closed);
    if (s->accept_paused && !s->stopping)
        server_set_accepting(s, true);
}

void http_server_rest(struct http_server *s)
{
    for (struct listener *l = s->listeners; l; l = l->next)
        uv_poll_stop(&l->poll);
    s->resting = true;
    s->accept_paused = false;
    for (struct conn *c = s->conns, *after; c; c = after) {
        after = c->next;
        c->broken = c->cut = true;
        conn_pump(c);
    }
}

void http_server_go_on(struct http_server *s)
{
    s->resting = false;
    server_set_accepting(s, true);
}

void http_server_stop(struct http_server *s, uint64_t grace_ms, void (*done)(void *ctx), void *ctx)
{
    struct listener *next;

    assert(!s->stopping);
    s->stopping = true;
    s->accept_paused = false;
    s->on_stopped = done;
    s->stopped_ctx = ctx;
    s->stop_at_ms = uv_now(s->loop) + grace_ms;
    for (struct listener *l = s->listeners; l; l = next) {
        next = l->next;
        uv_close((uv_handle_t *)&l->poll, on_listener_closed);
        close(l->fd);
    }
    s->listeners = NULL;
    timer_by(s, s->stop_at_ms);
    for (struct conn *c = s->conns, *after; c; c = after) {
        after = c->next;
        conn_stop(c, false);
    }
    if (s->conn_count == 0)
        close_own_handles(s);
}
