/* An outgoing connection's bytes and events. Written bytes go out at once as far as the socket, or
 * the layer on it, takes them, and the rest waits in one buffer for the socket to be writable;
 * input is read only while the owner wants it. A layer may need the other direction to go on (TLS):
 * what it waits for is noted with each call and decides what the socket is polled for. An end that
 * the layer has announced beside the last bytes is told by an event of its own, since the socket
 * has none for it. */
#include "http/wire.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include "base/io.h"

#define OUT_MAX (64u * 1024u * 1024u) /* owners stop far below it */

static void on_event(uv_poll_t *poll, int status, int events);

static void settle(struct wire *w)
{
    int events = 0;

    if (w->closed || w->open_error)
        return;
    if (w->connecting || (w->out.len > 0 && !w->write_wants_read) || w->shut_wants_write)
        events |= UV_WRITABLE;
    if (w->reading && (w->read_wants_write || w->ended)) /* an end that is known is told at once */
        events |= UV_WRITABLE;
    if ((w->reading && !w->connecting) || (w->out.len > 0 && w->write_wants_read))
        events |= UV_READABLE;
    if (events == w->events)
        return;
    w->events = events;
    if (events == 0)
        uv_poll_stop(&w->poll);
    else
        uv_poll_start(&w->poll, events, on_event);
}

/* How many of them are taken now; 0: none, -errno: the socket is lost. */
static ssize_t send_some(struct wire *w, const void *data, size_t n)
{
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = n};
    ssize_t sent;

    if (w->layer) {
        sent = w->layer_ops->write(w->layer, &iov, 1);
        w->write_wants_read = sent == -EAGAIN;
        return sent == -EAGAIN || sent == -EINPROGRESS ? 0 : sent;
    }
    do
        sent = send(w->fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent < 0)
        return errno == EAGAIN || errno == EWOULDBLOCK ? 0 : -errno;
    return sent;
}

static void drop_out(struct wire *w)
{
    if (w->secret && w->out.base)
        explicit_bzero(w->out.base, w->out.cap);
    buf_free(&w->out);
}

/* In the layer's words and the socket's. */
static void shut(struct wire *w)
{
    w->shut_wants_write = w->layer && w->layer_ops->shut(w->layer) == -EINPROGRESS;
    if (!w->shut_wants_write)
        shutdown(w->fd, SHUT_WR);
}

static void flush(struct wire *w)
{
    while (w->out.len > 0 && !w->write_broken) {
        ssize_t n = send_some(w, w->out.data, w->out.len);

        w->write_broken = n < 0;
        if (n <= 0)
            break;
        buf_consume(&w->out, (size_t)n);
    }
    if (w->write_broken || (w->out.len == 0 && (w->secret || w->out.cap > 65536)))
        drop_out(w);
    if (w->shut_requested && w->out.len == 0 && !w->write_broken)
        shut(w);
}

static void on_connect_event(struct wire *w)
{
    socklen_t size = sizeof(int);
    int err = 0;

    if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &err, &size) < 0)
        err = errno;
    if (err != 0) {
        w->open_error = err;
        w->events = 0;
        uv_poll_stop(&w->poll);
        w->ops->on_error(w, -err);
        return;
    }
    w->connecting = false;
    w->ops->on_connected(w);
    if (!w->closed) {
        flush(w);
        settle(w);
    }
}

static void work(struct wire *w, int status, int events)
{
    bool had_output = w->out.len > 0;

    if (status < 0)
        w->events =
            0; /* libuv stopped it; settle starts it again while there is something to read */
    if (w->connecting) {
        on_connect_event(w);
        return;
    }
    if (events & UV_WRITABLE || status < 0 || w->write_wants_read)
        flush(w);
    if (had_output && w->out.len == 0)
        w->ops->on_drained(w);
    if (!w->closed && w->reading &&
        (events & UV_READABLE || status < 0 || w->read_wants_write || w->ended))
        w->ops->on_readable(w);
    settle(w);
}

/* Errors, of which libuv does not tell again, are not left for another turn. */
static void on_event(uv_poll_t *poll, int status, int events)
{
    struct wire *w = poll->data;
    bool entered = !w->ops->enter || w->ops->enter(w);

    if (entered || status < 0)
        work(w, status, events);
    if (entered && w->ops->enter)
        w->ops->leave(w);
}

static void on_timer(uv_timer_t *timer)
{
    struct wire *w = timer->data;

    if (w->open_error)
        w->ops->on_error(w, w->open_error);
    else
        w->ops->on_timeout(w);
}

void wire_open(struct wire *w, uv_loop_t *loop, int fd, bool connecting, const struct wire_ops *ops)
{
    int one = 1;

    *w = (struct wire){.ops = ops, .fd = fd, .connecting = connecting, .handles = 1};
    buf_init(&w->out, OUT_MAX);
    uv_timer_init(loop, &w->timer);
    w->timer.data = w->poll.data = w;
    w->open_error = io_set_nonblock(fd, true);
    if (w->open_error == 0)
        w->open_error = uv_poll_init(loop, &w->poll, fd);
    if (w->open_error < 0) {
        uv_timer_start(&w->timer, on_timer, 0, 0);
        return;
    }
    w->handles = 2;
    (void)!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)); /* not on unix sockets */
    settle(w);
}

void wire_set_layer(struct wire *w, const struct http_layer_ops *layer_ops, void *layer)
{
    w->layer_ops = layer_ops;
    w->layer = layer;
}

void wire_timeout(struct wire *w, uint64_t ms)
{
    if (w->open_error < 0)
        return; /* the timer is about to report it */
    if (ms == 0)
        uv_timer_stop(&w->timer);
    else
        uv_timer_start(&w->timer, on_timer, ms, 0);
}

void wire_want_read(struct wire *w, bool on)
{
    w->reading = on;
    settle(w);
}

ssize_t wire_read(struct wire *w, void *out, size_t n)
{
    ssize_t got;

    if (w->layer) {
        got = w->ended ? 0 : w->layer_ops->read(w->layer, out, n, &w->ended);
        w->read_wants_write = got == -EINPROGRESS;
        return got == -EINPROGRESS ? -EAGAIN : got;
    }
    do
        got = read(w->fd, out, n);
    while (got < 0 && errno == EINTR);
    return got < 0 ? -errno : got;
}

/* How many of them the socket takes now, in front of which nothing is queued; the rest is to be
 * queued. */
static size_t send_now(struct wire *w, const void *data, size_t n)
{
    ssize_t sent;

    if (w->out.len > 0 || w->connecting)
        return 0;
    sent = send_some(w, data, n);
    w->write_broken = sent < 0;
    return sent < 0 ? 0 : (size_t)sent;
}

void wire_give(struct wire *w, struct buf *data)
{
    w->write_broken |= w->out.len > 0; /* a gap in what is sent would be read as something else */
    if (w->write_broken || w->closed || w->open_error)
        return;
    buf_consume(data, send_now(w, data->data, data->len));
    if (data->len > 0 && !w->write_broken) {
        size_t max = w->out.max;

        drop_out(w);
        w->out = *data;
        w->out.max = max;
        buf_init(data, data->max);
    }
    settle(w);
}

void wire_write(struct wire *w, const void *data, size_t n)
{
    size_t sent;

    if (w->write_broken || w->closed || w->open_error)
        return;
    sent = send_now(w, data, n);
    if (w->write_broken)
        return;
    if (buf_append(&w->out, (const char *)data + sent, n - sent) < 0)
        w->write_broken = true;
    settle(w);
}

void wire_pass(struct wire *w, struct pass *p)
{
    bool usable = !w->write_broken && !w->closed && !w->open_error;

    if (usable && w->out.len == 0 && !w->connecting)
        w->write_broken = pass_drain(p, w->fd) < 0;
    if (usable && !w->write_broken && pass_take(p, &w->out) < 0)
        w->write_broken = true;
    pass_drop(p);
    settle(w);
}

size_t wire_unsent(int fd, const struct buf *out)
{
    int kernel = 0;

    if (ioctl(fd, SIOCOUTQ, &kernel) < 0 || kernel < 0)
        kernel = 0;
    return out->len + (size_t)kernel;
}

void wire_shut(struct wire *w)
{
    w->shut_requested = true;
    if (!w->connecting && !w->closed && !w->open_error)
        flush(w);
}

static void on_handle_closed(uv_handle_t *handle)
{
    struct wire *w = handle->data;

    if (--w->handles == 0)
        w->ops->on_closed(w);
}

/* Its end is announced as far as that goes without waiting. */
static void close_layer(struct wire *w)
{
    void *layer = TAKE_PTR(w->layer);

    if (!layer)
        return;
    (void)w->layer_ops->shut(layer);
    w->layer_ops->close(layer);
}

int wire_close(struct wire *w, bool keep)
{
    int fd = w->fd;

    if (w->closed)
        return -1;
    w->closed = true;
    w->events = 0;
    w->fd = -1;
    drop_out(w);
    uv_close((uv_handle_t *)&w->timer, on_handle_closed);
    if (w->handles == 2) {
        uv_close((uv_handle_t *)&w->poll, on_handle_closed);
    }
    if (keep)
        return fd;
    close_layer(w);
    close(fd);
    return -1;
}
