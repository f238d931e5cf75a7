#include "http/conn_layer.h"

#include "http/response.h"
#include "http/server_internal.h"

#include <errno.h>
#include <sys/socket.h>

/* -- bytes ------------------------------------------------------------------------------------- */

ssize_t layer_read(struct conn *c, void *out, size_t n)
{
    ssize_t got;

    if (c->layer) {
        got = c->layer_ops->read(c->layer, out, n, &c->eof);
        c->read_wants_write = got == -EINPROGRESS;
        return got == -EINPROGRESS ? -EAGAIN : got;
    }
    do
        got = read(c->fd, out, n);
    while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

ssize_t layer_write(struct conn *c, const struct iovec *iov, int n)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)(uintptr_t)iov, .msg_iovlen = (size_t)n};
    ssize_t sent;

    if (c->layer) {
        sent = c->layer_ops->write(c->layer, iov, n);
        c->write_wants_read = sent == -EAGAIN;
        return sent == -EINPROGRESS ? -EAGAIN : sent;
    }
    do
        sent = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    return sent < 0 ? -errno : sent;
}

bool layer_shut(struct conn *c)
{
    int r = c->layer && !c->unannounced ? c->layer_ops->shut(c->layer) : 0;

    c->shut_wants_write = r == -EINPROGRESS;
    if (c->shut_wants_write)
        return false;
    shutdown(c->fd, SHUT_WR);
    return true;
}

/* -- begin and end ----------------------------------------------------------------------------- */

static void end_beginning(struct conn *c)
{
    if (c->state == CONN_BEGINNING)
        c->server->beginning--;
}

/* Room for one more: the slowest makes it, so that a flood of peers that begin and say no more does
 * not hold up a peer that goes on. They are in the list in the order in which they came. */
static void make_space(struct http_server *s)
{
    struct wait *oldest = s->waits[WAIT_BEGIN].next;
    struct conn *c = CONTAINER_OF(oldest, struct conn, read_wait);

    if (s->beginning < s->config.layer.max_beginning || oldest == &s->waits[WAIT_BEGIN])
        return;
    c->broken = true;
    conn_pump(c);
}

static void begin(struct conn *c)
{
    struct http_server *s = c->server;

    make_space(s);
    c->layer_ops = s->config.layer.ops;
    c->layer = c->layer_ops->open(s->config.layer.ctx, c->fd);
    if (!c->layer) {
        c->broken = true;
        return;
    }
    c->state = CONN_BEGINNING;
    s->beginning++;
}

bool layer_is_plain(struct conn *c)
{
    unsigned char first;
    ssize_t n;

    do
        n = recv(c->fd, &first, 1, MSG_PEEK | MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return false;
    if (n <= 0) {
        c->broken = true;
    } else if (first == HTTP_LAYER_FIRST_BYTE) {
        begin(c);
    } else if (c->server->config.layer.required) {
        response_refuse(c, 400, "this port speaks TLS only: use https://");
    } else {
        c->state = CONN_HEAD;
        return true;
    }
    return false;
}

bool layer_step(struct conn *c)
{
    int r = c->layer_ops->begin(c->layer);

    c->read_wants_write = r == -EINPROGRESS;
    if (r == -EAGAIN || r == -EINPROGRESS)
        return false;
    if (r < 0) {
        c->broken = true;
        return false;
    }
    end_beginning(c);
    c->state = CONN_HEAD;
    return true;
}

void layer_close(struct conn *c)
{
    end_beginning(c);
    if (c->layer)
        c->layer_ops->close(c->layer);
    c->layer = NULL;
}
