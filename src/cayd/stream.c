#include "cayd/stream.h"

#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define READ_BYTES 16384u

struct stream {
    struct stream *prev, *next;
    struct streams *all;
    struct http_exchange *x; /* NULL: it has ended, or its client has gone */
    uv_pipe_t pipe;          /* data: the stream */
    char owner[STREAM_OWNER_SIZE];
};

struct streams {
    uv_loop_t *loop;
    struct stream *first;
    char buffer[READ_BYTES]; /* one for all: what is read is handed on at once */
};

static void on_closed(uv_handle_t *h)
{
    free(h->data);
}

static void discard(struct stream *s)
{
    *(s->prev ? &s->prev->next : &s->all->first) = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->x = NULL;
    uv_close((uv_handle_t *)&s->pipe, on_closed);
}

static void on_client_gone(struct http_exchange *x, void *data)
{
    discard(data);
}

static void end(struct stream *s)
{
    struct http_exchange *x = s->x;

    http_exchange_set(x, NULL, NULL);
    discard(s);
    http_response_end(x);
}

static void give_buffer(uv_handle_t *h, size_t suggested, uv_buf_t *out)
{
    struct stream *s = h->data;

    *out = uv_buf_init(s->all->buffer, sizeof(s->all->buffer));
}

static void on_read(uv_stream_t *pipe, ssize_t n, const uv_buf_t *buf)
{
    struct stream *s = pipe->data;

    if (n < 0)
        end(s);
    else if (n > 0 && http_response_write(s->x, buf->base, (size_t)n) == 1)
        uv_read_stop(pipe); /* until the client has taken it */
}

static void on_drain(struct http_exchange *x, void *data)
{
    struct stream *s = data;

    if (uv_read_start((uv_stream_t *)&s->pipe, give_buffer, on_read) < 0)
        end(s);
}

void stream_start(struct streams *all, struct http_exchange *x, const char *owner, int fd)
{
    struct stream *s = calloc(1, sizeof(*s));

    if (!s || uv_pipe_init(all->loop, &s->pipe, 0) < 0) {
        free(s);
        close(fd);
        http_exchange_abort(x);
        return;
    }
    s->all = all;
    s->x = x;
    (void)snprintf(s->owner, sizeof(s->owner), "%s", owner);
    s->next = all->first;
    if (s->next)
        s->next->prev = s;
    all->first = s;
    s->pipe.data = s;
    http_exchange_set(x, s, on_client_gone);
    http_response_on_drain(x, on_drain);
    if (uv_pipe_open(&s->pipe, fd) < 0) {
        close(fd);
        end(s);
    } else if (uv_read_start((uv_stream_t *)&s->pipe, give_buffer, on_read) < 0) {
        end(s);
    }
}

int streams_new(uv_loop_t *loop, struct streams **out)
{
    struct streams *all = calloc(1, sizeof(*all));

    if (!all)
        return -ENOMEM;
    all->loop = loop;
    *out = all;
    return 0;
}

void streams_end(struct streams *all)
{
    while (all->first)
        end(all->first);
}

/* The end of one ends no other. */
void streams_end_of(struct streams *all, const char *owner)
{
    for (struct stream *s = all->first, *next; s; s = next) {
        next = s->next;
        if (strcmp(s->owner, owner) == 0)
            end(s);
    }
}

void streams_free(struct streams *all)
{
    free(all);
}
