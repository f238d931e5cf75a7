#include "core/pipe_writer.h"

#include "base/buf.h"
#include "base/share.h"
#include "core/core_internal.h"
#include "core/deferred.h"

#include <errno.h>
#include <fcntl.h>

struct pipe_writer {
    struct pipe_writer *prev, *next;
    struct core *core;
    int fd;
    uv_poll_t poll; /* data: the pipe writer */
    struct buf out;
    struct pipe_writer_owner owner;
    struct share *share;
    bool gone;  /* the reader is gone */
    bool ended; /* by its owner: it closes when out is empty */
};

static void on_closed(uv_handle_t *h)
{
    struct pipe_writer *o = h->data;
    struct core *c = o->core;

    close(o->fd);
    buf_free(&o->out);
    free(o);
    c->pipe_writer_handles--;
    if (c->stopping)
        core_handle_closed(c);
}

static void close_it(struct pipe_writer *o)
{
    if (uv_is_closing((uv_handle_t *)&o->poll))
        return;
    *(o->prev ? &o->prev->next : &o->core->pipe_writers) = o->next;
    if (o->next)
        o->next->prev = o->prev;
    share_return(TAKE_PTR(o->share));
    uv_close((uv_handle_t *)&o->poll, on_closed);
}

/* Nothing is kept without a reader; its owner learns it with what it puts next, or asks. */
static void lose(struct pipe_writer *o)
{
    o->gone = true;
    buf_free(&o->out);
    uv_poll_stop(&o->poll);
    if (o->ended)
        close_it(o);
}

static void on_poll(uv_poll_t *p, int status, int events);

static void flush(struct pipe_writer *o)
{
    while (!o->gone && o->out.len > 0) {
        ssize_t n = write(o->fd, o->out.data, o->out.len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            break;
        if (n < 0)
            lose(o);
        else
            buf_consume(&o->out, (size_t)n);
    }
    if (o->gone)
        return;
    if (o->ended && o->out.len == 0)
        close_it(o);
    else if (uv_poll_start(&o->poll, UV_DISCONNECT | (o->out.len ? UV_WRITABLE : 0), on_poll) < 0)
        lose(o);
}

/* The other end of a pipe that is closed shows as an error, or as a disconnect. */
static void on_poll(uv_poll_t *p, int status, int events)
{
    struct pipe_writer *o = p->data;

    if (status < 0 || (events & UV_DISCONNECT))
        lose(o);
    else
        flush(o);
    if (o->ended)
        return;
    if (o->gone && o->owner.on_gone)
        o->owner.on_gone(o->owner.arg);
    else if (!o->gone && o->out.len == 0 && o->owner.on_empty)
        o->owner.on_empty(o->owner.arg);
}

static void enter(struct core *c, struct pipe_writer *o)
{
    o->next = c->pipe_writers;
    if (o->next)
        o->next->prev = o;
    c->pipe_writers = o;
    c->pipe_writer_handles++;
}

struct share *pipe_writer_share(struct core *c, const char *tenant, const char *sandbox)
{
    return share_take(c->streams, tenant, *sandbox ? sandbox : NULL);
}

struct pipe_writer *pipe_writer_new(struct core *c, size_t max,
                                    const struct pipe_writer_owner *owner, struct share *share,
                                    int *fd, int *rc)
{
    struct pipe_writer *o = calloc(1, sizeof(*o));
    int ends[2] = {-1, -1};

    *rc = o ? 0 : -ENOMEM;
    if (o && pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        *rc = -errno;
    if (*rc == 0)
        *rc = uv_poll_init(c->loop, &o->poll, ends[1]);
    if (*rc < 0) {
        for (size_t i = 0; i < ARRAY_SIZE(ends); i++)
            if (ends[i] >= 0)
                close(ends[i]);
        share_return(share);
        free(o);
        return NULL;
    }
    o->core = c;
    o->owner = owner ? *owner : (struct pipe_writer_owner){0};
    o->share = share;
    o->fd = ends[1];
    o->poll.data = o;
    buf_init(&o->out, max);
    enter(c, o);
    flush(o); /* there is nothing yet, but its reader may go */
    *fd = ends[0];
    return o;
}

int pipe_writer_put(struct pipe_writer *o, const char *bytes, size_t n)
{
    int rc;

    if (o->gone)
        return -EPIPE;
    rc = buf_append(&o->out, bytes, n);
    if (rc == 0)
        flush(o);
    return o->gone ? -EPIPE : rc;
}

size_t pipe_writer_held(const struct pipe_writer *o)
{
    return o->out.len;
}

bool pipe_writer_is_read(const struct pipe_writer *o)
{
    return !o->gone;
}

void pipe_writer_end(struct pipe_writer *o)
{
    o->ended = true;
    if (o->gone)
        close_it(o);
    else
        flush(o);
}

void pipe_writer_cut(struct pipe_writer *o)
{
    o->ended = true;
    close_it(o);
}

unsigned pipe_writers_stop(struct core *c)
{
    while (c->pipe_writers)
        close_it(c->pipe_writers);
    return c->pipe_writer_handles;
}
