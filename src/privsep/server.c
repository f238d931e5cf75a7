/* Serves one peer at a time: accepted (credentials checked), greeted (its first message is HELLO,
 * or it is dropped), served. Each dispatch accepts, reads a bounded number of requests, and flushes
 * what was queued; a request is checked for form here, for permission by its owner. A new
 * connection drops the old one with its queue. The loop of privd watches one descriptor for all of
 * it. */

#include "privsep/server.h"

#include "base/io.h"
#include "base/log.h"
#include "base/util.h"
#include "privsep/packet.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83 /* include/uapi/asm-generic/socket.h */
#endif

struct privsep_server {
    int epoll_fd, listen_fd, peer_fd;
    uint64_t peer; /* number of the connection that peer_fd is */
    bool greeted;
    uid_t peer_uid;
    struct privsep_server_events ev;
    struct log_rate log; /* lines that a connecting process can cause at will */
    char path[sizeof(((struct sockaddr_un *)0)->sun_path)];
    struct privsep_packet *queue; /* ring, grows by doubling */
    size_t queue_cap, queue_head, queue_len, queue_fds;
};

static void drop_queue(struct privsep_server *s)
{
    for (size_t i = 0; i < s->queue_len; i++)
        privsep_packet_close(&s->queue[(s->queue_head + i) % s->queue_cap]);
    free(TAKE_PTR(s->queue));
    s->queue_cap = s->queue_head = s->queue_len = s->queue_fds = 0;
}

/* Neither fails for a descriptor that is watched: after a failure it would not be known any more
 * what is. The owner starts anew instead. */
static void set_watch(const struct privsep_server *s, int op, struct epoll_event *e)
{
    if (epoll_ctl(s->epoll_fd, op, s->peer_fd, e) == 0)
        return;
    log_error("channel: the peer is not watched as it should be: %s", strerror(errno));
    abort();
}

static void drop_peer(struct privsep_server *s, const char *why)
{
    if (s->peer_fd < 0)
        return;
    if (log_rate_allows(&s->log))
        log_info("channel: the peer is gone: %s", why);
    /* A task that was forked meanwhile has a copy, with which it would stay in the epoll set. */
    set_watch(s, EPOLL_CTL_DEL, NULL);
    util_close(&s->peer_fd);
    drop_queue(s);
    s->greeted = false;
    s->ev.on_peer(s->ev.arg, false);
}

static void watch_peer(struct privsep_server *s)
{
    struct epoll_event e = {.data.fd = s->peer_fd};

    if (s->queue_len < PRIVSEP_SERVER_PAUSE_QUEUE)
        e.events |= EPOLLIN;
    if (s->queue_len > 0)
        e.events |= EPOLLOUT;
    set_watch(s, EPOLL_CTL_MOD, &e);
}

/* -- sending ----------------------------------------------------------------------------------- */

static int grow_queue(struct privsep_server *s)
{
    size_t cap = s->queue_cap ? s->queue_cap * 2 : 64;
    struct privsep_packet *bigger;

    if (s->queue_len < s->queue_cap)
        return 0;
    if (cap > PRIVSEP_SERVER_MAX_QUEUE)
        return -ENOBUFS;
    bigger = malloc(cap * sizeof(*bigger));
    if (!bigger)
        return -ENOBUFS;
    for (size_t i = 0; i < s->queue_len; i++)
        bigger[i] = s->queue[(s->queue_head + i) % s->queue_cap];
    free(s->queue);
    s->queue = bigger;
    s->queue_cap = cap;
    s->queue_head = 0;
    return 0;
}

static int enqueue(struct privsep_server *s, const struct privsep_packet *p)
{
    int r = grow_queue(s);

    if (r < 0 || s->queue_fds + p->n_fds > PRIVSEP_SERVER_MAX_QUEUED_FDS)
        return -ENOBUFS;
    s->queue[(s->queue_head + s->queue_len++) % s->queue_cap] = *p;
    s->queue_fds += p->n_fds;
    return 0;
}

static void flush_queue(struct privsep_server *s)
{
    while (s->queue_len > 0) {
        struct privsep_packet *p = &s->queue[s->queue_head];
        int r = privsep_packet_send(s->peer_fd, p);

        if (r == -EAGAIN)
            break;
        if (r < 0) {
            drop_peer(s, strerror(-r));
            return;
        }
        s->queue_fds -= p->n_fds;
        privsep_packet_close(p);
        s->queue_head = (s->queue_head + 1) % s->queue_cap;
        s->queue_len--;
    }
    watch_peer(s);
}

static int send_packet(struct privsep_server *s, struct privsep_packet *p)
{
    int r = s->queue_len > 0 ? -EAGAIN : privsep_packet_send(s->peer_fd, p);

    if (r == -EAGAIN) {
        r = enqueue(s, p);
        if (r == 0) {
            p->n_fds = 0;
            watch_peer(s);
        }
    }
    privsep_packet_close(p);
    return r;
}

int privsep_server_send(struct privsep_server *s, uint64_t peer, const struct privsep_msg *m,
                        const int *fds, size_t n_fds)
{
    struct privsep_packet p = {.msg = *m, .n_fds = n_fds};
    int r;

    if (n_fds > 0)
        memcpy(p.fds, fds, n_fds * sizeof(*fds));
    p.msg.version = PRIVSEP_VERSION;
    p.msg.fds = (uint16_t)n_fds;
    if (s->peer_fd < 0 || (peer != 0 && peer != s->peer)) {
        privsep_packet_close(&p);
        return -ENOTCONN;
    }
    r = send_packet(s, &p);
    if (r < 0)
        drop_peer(s, r == -ENOBUFS ? "it does not read its replies" : strerror(-r));
    return r;
}

/* -- receiving --------------------------------------------------------------------------------- */

/* A connection begins with one HELLO; the owner never sees a request before it. */
static bool in_order(const struct privsep_server *s, const struct privsep_msg *m)
{
    return s->greeted ? m->op != PRIVSEP_HELLO : m->op == PRIVSEP_HELLO;
}

static bool read_one(struct privsep_server *s)
{
    struct privsep_packet p;
    int r = privsep_packet_recv(s->peer_fd, &p);

    if (r == -EAGAIN)
        return false;
    if (r <= 0) {
        drop_peer(s, r == 0 ? "it closed" : strerror(-r));
        return false;
    }
    if (!privsep_request_is_sound(&p.msg, sizeof(p.msg), p.n_fds) || !in_order(s, &p.msg)) {
        privsep_packet_close(&p);
        drop_peer(s, "it sent what is not a request");
        return false;
    }
    s->greeted = true;
    s->ev.on_request(s->ev.arg, &p.msg);
    return true;
}

static void read_some(struct privsep_server *s)
{
    uint64_t peer = s->peer;

    for (int i = 0; i < PRIVSEP_SERVER_BATCH; i++) {
        if (s->peer_fd < 0 || s->peer != peer || s->queue_len >= PRIVSEP_SERVER_PAUSE_QUEUE)
            break;
        if (!read_one(s))
            break;
    }
}

static bool is_allowed(const struct privsep_server *s, int fd)
{
    struct ucred cred;
    socklen_t n = sizeof(cred);

    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &n) == 0 && cred.uid == s->peer_uid;
}

static void accept_peer(struct privsep_server *s)
{
    CLEANUP_CLOSE int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    struct epoll_event e = {.events = EPOLLIN};

    if (fd < 0)
        return;
    if (!is_allowed(s, fd)) {
        if (log_rate_allows(&s->log))
            log_warn("channel: a connection of another user was refused");
        return;
    }
    drop_peer(s, "a new connection replaces it");
    e.data.fd = fd;
    if (epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, fd, &e) < 0) {
        log_error("channel: cannot watch the peer: %s", strerror(errno));
        return;
    }
    s->peer_fd = TAKE_FD(fd);
    s->peer++;
    s->ev.on_peer(s->ev.arg, true);
}

void privsep_server_dispatch(struct privsep_server *s)
{
    struct epoll_event events[2];
    int n = epoll_wait(s->epoll_fd, events, ARRAY_SIZE(events), 0);

    for (int i = 0; i < n; i++) {
        if (events[i].data.fd == s->listen_fd) {
            accept_peer(s);
        } else if (events[i].data.fd == s->peer_fd) {
            if (events[i].events & EPOLLOUT)
                flush_queue(s);
            if (s->peer_fd >= 0)
                read_some(s);
            if (s->peer_fd >= 0)
                watch_peer(s);
        }
    }
}

/* -- making ------------------------------------------------------------------------------------ */

/* The socket is made under umask 0177, so that no one but root can connect before the owner is set.
 */
static int bind_path(struct privsep_server *s)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    mode_t old;
    int r;

    memcpy(a.sun_path, s->path, sizeof(a.sun_path));
    if (unlink(s->path) < 0 && errno != ENOENT)
        return -errno;
    old = umask(0177);
    r = bind(s->listen_fd, (struct sockaddr *)&a, sizeof(a)) < 0 ? -errno : 0;
    umask(old);
    if (r < 0)
        return r;
    if (lchown(s->path, s->peer_uid, 0) < 0 || listen(s->listen_fd, 4) < 0)
        return -errno;
    return 0;
}

/* A descriptor that is only received to be closed can still make its receiver wait: a TCP socket
 * that lingers, a file of a stuck server. From Linux 6.16 on no peer can send one; accepted sockets
 * inherit it. */
static void refuse_descriptors(int fd)
{
    int no = 0;

    (void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
}

static int open_server(struct privsep_server *s)
{
    struct epoll_event e = {.events = EPOLLIN};
    int r;

    s->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    s->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (s->epoll_fd < 0 || s->listen_fd < 0)
        return -errno;
    refuse_descriptors(s->listen_fd);
    r = bind_path(s);
    if (r < 0)
        return r;
    e.data.fd = s->listen_fd;
    return epoll_ctl(s->epoll_fd, EPOLL_CTL_ADD, s->listen_fd, &e) < 0 ? -errno : 0;
}

int privsep_server_new(const char *path, uid_t peer_uid, const struct privsep_server_events *ev,
                       struct privsep_server **out)
{
    struct privsep_server *s;
    int r;

    if (strlen(path) >= sizeof(s->path))
        return -ENAMETOOLONG;
    s = calloc(1, sizeof(*s));
    if (!s)
        return -ENOMEM;
    s->epoll_fd = s->listen_fd = s->peer_fd = -1;
    s->peer_uid = peer_uid;
    s->ev = *ev;
    memcpy(s->path, path, strlen(path) + 1);
    r = open_server(s);
    if (r < 0) {
        privsep_server_free(s);
        return r;
    }
    *out = s;
    return 0;
}

void privsep_server_free(struct privsep_server *s)
{
    if (!s)
        return;
    util_close(&s->peer_fd);
    drop_queue(s);
    if (s->listen_fd >= 0)
        (void)unlink(s->path);
    util_close(&s->listen_fd);
    util_close(&s->epoll_fd);
    free(s);
}

int privsep_server_fd(const struct privsep_server *s)
{
    return s->epoll_fd;
}

uint64_t privsep_server_peer(const struct privsep_server *s)
{
    return s->peer_fd >= 0 ? s->peer : 0;
}
