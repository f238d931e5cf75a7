#include "kernels/channel.h"

#include <errno.h>
#include <string.h>
#include <zmq.h>

#define MESSAGES_A_TURN 32u

struct channel {
    void *socket;
    uv_poll_t poll;
    uv_idle_t again; /* while there may be more than a turn took */
    unsigned handles;
    channel_message_fn fn; /* NULL: closed */
    void *arg;
};

/* Takes one message. 1, 0 when there is none, or -errno. Frames beyond the most are read and left
 * out: the message is then refused by its reader. */
static int take(struct channel *c)
{
    zmq_msg_t parts[WIRE_FRAMES_MAX];
    struct wire_frame frames[WIRE_FRAMES_MAX];
    size_t n = 0, frames_seen = 0;
    int ret = 1;

    for (bool more = true; more && ret == 1; frames_seen++) {
        zmq_msg_t *part = &parts[MIN(n, WIRE_FRAMES_MAX - 1)];

        if (frames_seen >= WIRE_FRAMES_MAX)
            zmq_msg_close(part);
        zmq_msg_init(part);
        if (zmq_msg_recv(part, c->socket, ZMQ_DONTWAIT) < 0)
            ret = errno == EAGAIN && n == 0 ? 0 : -errno;
        more = ret == 1 && zmq_msg_more(part);
        n = MIN(n + 1, (size_t)WIRE_FRAMES_MAX);
    }
    for (size_t i = 0; i < n; i++)
        frames[i] = (struct wire_frame){zmq_msg_data(&parts[i]), zmq_msg_size(&parts[i])};
    if (ret == 1)
        c->fn(c->arg, frames, frames_seen > WIRE_FRAMES_MAX ? 0 : n);
    for (size_t i = 0; i < n; i++)
        zmq_msg_close(&parts[i]);
    return ret;
}

static void on_again(uv_idle_t *h);

static void take_all(struct channel *c)
{
    for (unsigned i = 0; i < MESSAGES_A_TURN; i++) {
        int ret = take(c);

        if (!c->fn)
            return;
        if (ret != 1) {
            uv_idle_stop(&c->again);
            return;
        }
    }
    uv_idle_start(&c->again, on_again);
}

static void on_again(uv_idle_t *h)
{
    take_all(h->data);
}

static void on_readable(uv_poll_t *h, int status, int events)
{
    take_all(h->data);
}

static int set_options(void *socket, int type)
{
    static const int unlimited = 0, linger = 0;
    static const int64_t most = WIRE_FRAME_MAX;

    if (zmq_setsockopt(socket, ZMQ_LINGER, &linger, sizeof(linger)) < 0 ||
        zmq_setsockopt(socket, ZMQ_RCVHWM, &unlimited, sizeof(unlimited)) < 0 ||
        zmq_setsockopt(socket, ZMQ_MAXMSGSIZE, &most, sizeof(most)) < 0)
        return -errno;
    return type == ZMQ_SUB && zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0) < 0 ? -errno : 0;
}

static int open_socket(void *zmq, int type, const char *endpoint, void **socket, int *fd)
{
    size_t size = sizeof(*fd);
    int ret;

    *socket = zmq_socket(zmq, type);
    if (!*socket)
        return -errno;
    ret = set_options(*socket, type);
    if (ret == 0 &&
        (zmq_connect(*socket, endpoint) < 0 || zmq_getsockopt(*socket, ZMQ_FD, fd, &size) < 0))
        ret = -errno;
    if (ret < 0)
        zmq_close(*socket);
    return ret;
}

int channel_open(uv_loop_t *loop, void *zmq, int type, const char *endpoint, channel_message_fn fn,
                 void *arg, struct channel **out)
{
    CLEANUP_FREE struct channel *c = calloc(1, sizeof(*c));
    int ret, fd;

    if (!c)
        return -ENOMEM;
    ret = open_socket(zmq, type, endpoint, &c->socket, &fd);
    if (ret < 0)
        return ret;
    ret = uv_poll_init(loop, &c->poll, fd);
    if (ret < 0) {
        zmq_close(c->socket);
        return ret;
    }
    uv_idle_init(loop, &c->again);
    c->handles = 2;
    c->poll.data = c->again.data = c;
    c->fn = fn;
    c->arg = arg;
    uv_poll_start(&c->poll, UV_READABLE, on_readable);
    *out = TAKE_PTR(c);
    return 0;
}

int channel_send(struct channel *c, const struct wire_frame *frames, size_t n)
{
    int ret = 0;

    for (size_t i = 0; i < n && ret == 0; i++)
        if (zmq_send(c->socket, frames[i].data, frames[i].len,
                     ZMQ_DONTWAIT | (i + 1 < n ? ZMQ_SNDMORE : 0)) < 0)
            ret = -errno;
    uv_idle_start(&c->again, on_again); /* a send may take the edge of what has come */
    return ret;
}

static void on_closed(uv_handle_t *h)
{
    struct channel *c = h->data;

    if (--c->handles > 0)
        return;
    zmq_close(c->socket); /* after its descriptor left the loop */
    free(c);
}

void channel_close(struct channel *c)
{
    if (!c || !c->fn)
        return;
    c->fn = NULL;
    uv_close((uv_handle_t *)&c->poll, on_closed);
    uv_close((uv_handle_t *)&c->again, on_closed);
}
