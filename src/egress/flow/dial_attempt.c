/* An attempt of a dial: a socket that is being connected to one address, or to the proxy that is to
 * connect there. */

#include "base/util.h"
#include "egress/flow/dial_internal.h"
#include "egress/flow/egress.h"
#include "egress/flow/peek.h"
#include "egress/tls/turns.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static void on_attempt_closed(uv_handle_t *h)
{
    free(h->data);
}

int dial_attempt_drop(struct dial_attempt *a, bool keep)
{
    struct dial_attempt **p = &a->dial->attempts;
    int fd = a->fd;

    while (*p != a)
        p = &(*p)->next;
    *p = a->next;
    a->dial->attempt_count--;
    uv_close((uv_handle_t *)&a->poll, on_attempt_closed);
    if (keep)
        return fd;
    close(fd);
    return -1;
}

static socklen_t socket_address(const struct policy_address *a, uint16_t port,
                                struct sockaddr_storage *out)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;

    memset(out, 0, sizeof(*out));
    if (IN6_IS_ADDR_V4MAPPED(&a->in6)) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        memcpy(&v4->sin_addr, a->in6.s6_addr + 12, 4);
        return sizeof(*v4);
    }
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    v6->sin6_addr = a->in6;
    return sizeof(*v6);
}

static void conclude(struct dial_attempt *a, int status)
{
    int err = 0;
    socklen_t n = sizeof(err);

    if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &err, &n) < 0 || (status < 0 && err == 0))
        err = EIO;
    a->ended(a, err);
}

static void on_connect(uv_poll_t *p, int status, int events)
{
    struct dial_attempt *a = p->data;
    struct turns *turns = a->dial->egress->turns;
    bool entered = turns_enter(turns, a->dial->share, &a->round);

    if (entered || status < 0)
        conclude(a, status);
    if (entered)
        turns_exit(turns);
}

static int open_socket(const struct policy_address *a)
{
    int family = IN6_IS_ADDR_V4MAPPED(&a->in6) ? AF_INET : AF_INET6, one = 1;
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    (void)!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)!setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    peek_prepare(fd);
    return fd;
}

int dial_attempt_start(struct dial *d, const struct policy_address *to, uint16_t port,
                       const struct policy_address *address, const struct policy_verdict *v,
                       dial_attempt_cb ended)
{
    struct sockaddr_storage sa;
    socklen_t n = socket_address(to, port, &sa);
    struct dial_attempt *a = calloc(1, sizeof(*a));
    int rc;

    if (!a)
        return -ENOMEM;
    a->fd = open_socket(to);
    rc = a->fd < 0 ? a->fd : 0;
    if (rc == 0 && connect(a->fd, (struct sockaddr *)&sa, n) < 0 && errno != EINPROGRESS)
        rc = -errno;
    if (rc == 0)
        rc = uv_poll_init(d->egress->loop, &a->poll, a->fd);
    if (rc < 0) {
        util_close(&a->fd);
        free(a);
        return rc;
    }
    a->poll.data = a;
    a->dial = d;
    a->ended = ended;
    a->address = *address;
    a->verdict = *v;
    a->next = d->attempts;
    d->attempts = a;
    d->attempt_count++;
    uv_poll_start(&a->poll, UV_WRITABLE, on_connect);
    return 0;
}
