#include "cayd/stream.h"

#include "base/util.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define READ_BYTES      16384u /* of a pipe */
#define FILE_READ_BYTES 65536u
/* A client has so long to read all of a file, however little it takes at a time: an export holds a
 * place of the server's, and its file has no name by which it could be removed. */
#define STREAM_FILE_MS 3600000u

struct stream {
    struct stream *prev, *next;
    struct streams *all;
    struct http_exchange *x; /* NULL: it has ended, or its client has gone */
    union {                  /* data: the stream */
        uv_pipe_t pipe;
        uv_idle_t idle; /* of a file, which no loop can wait for */
        uv_handle_t handle;
    };
    bool is_file;
    int fd;          /* of the file */
    uv_timer_t late; /* likewise: an idle handle does not run while the client takes nothing */
    unsigned handles;
    uint64_t at, bytes;
    char owner[STREAM_OWNER_SIZE];
};

struct streams {
    uv_loop_t *loop;
    struct stream *first;
    char buffer[FILE_READ_BYTES]; /* one for all: each read is handed on at once */
};

static void on_closed(uv_handle_t *h)
{
    struct stream *s = h->data;

    util_close(&s->fd);
    if (--s->handles == 0)
        free(s);
}

static void discard(struct stream *s)
{
    *(s->prev ? &s->prev->next : &s->all->first) = s->next;
    if (s->next)
        s->next->prev = s->prev;
    s->x = NULL;
    uv_close(&s->handle, on_closed);
    if (s->is_file)
        uv_close((uv_handle_t *)&s->late, on_closed);
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

    *out = uv_buf_init(s->all->buffer, READ_BYTES);
}

static void on_read(uv_stream_t *pipe, ssize_t n, const uv_buf_t *buf)
{
    struct stream *s = pipe->data;

    if (n < 0)
        end(s);
    else if (n > 0 && http_response_write(s->x, buf->base, (size_t)n) == 1)
        uv_read_stop(pipe); /* until the client has taken it */
}

/* A part in each turn of the loop, which has others to serve. */
static void on_idle(uv_idle_t *h)
{
    struct stream *s = h->data;
    size_t most = (size_t)MIN(s->bytes - s->at, (uint64_t)sizeof(s->all->buffer));
    ssize_t n = most ? pread(s->fd, s->all->buffer, most, (off_t)s->at) : 0;

    if (n < 0 && errno == EINTR)
        return;
    if (n <= 0) {
        end(s); /* with less than was announced it is an abort */
        return;
    }
    s->at += (uint64_t)n;
    if (s->at == s->bytes) /* before the client can know that it has all of it */
        util_close(&s->fd);
    if (http_response_write(s->x, s->all->buffer, (size_t)n) == 1)
        uv_idle_stop(h);
}

static void on_late(uv_timer_t *t)
{
    end(t->data);
}

static void on_drain(struct http_exchange *x, void *data)
{
    struct stream *s = data;

    if (s->is_file)
        uv_idle_start(&s->idle, on_idle);
    else if (uv_read_start((uv_stream_t *)&s->pipe, give_buffer, on_read) < 0)
        end(s);
}

static void enter(struct streams *all, struct stream *s, struct http_exchange *x, const char *owner)
{
    s->all = all;
    s->x = x;
    (void)snprintf(s->owner, sizeof(s->owner), "%s", owner);
    s->next = all->first;
    if (s->next)
        s->next->prev = s;
    all->first = s;
    s->handle.data = s;
    http_exchange_set(x, s, on_client_gone);
    http_response_on_drain(x, on_drain);
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
    s->fd = -1;
    s->handles = 1;
    enter(all, s, x, owner);
    if (uv_pipe_open(&s->pipe, fd) < 0) {
        close(fd);
        end(s);
    } else if (uv_read_start((uv_stream_t *)&s->pipe, give_buffer, on_read) < 0) {
        end(s);
    }
}

void stream_start_file(struct streams *all, struct http_exchange *x, const char *owner, int fd,
                       uint64_t bytes)
{
    struct stream *s = calloc(1, sizeof(*s));

    if (!s) {
        close(fd);
        http_exchange_abort(x);
        return;
    }
    uv_idle_init(all->loop, &s->idle); /* neither can fail */
    uv_timer_init(all->loop, &s->late);
    s->late.data = s;
    s->handles = 2;
    s->is_file = true;
    s->fd = fd;
    s->bytes = bytes;
    enter(all, s, x, owner);
    uv_idle_start(&s->idle, on_idle);
    uv_timer_start(&s->late, on_late, STREAM_FILE_MS, 0);
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
