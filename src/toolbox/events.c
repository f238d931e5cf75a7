/* The stream of events that newer clients open at their start, by Socket.IO over WebSocket: the
 * handshake, the key, signs of life, and events of the sandboxes of the key's tenant. Those come as
 * lines out of a pipe, each one packet (src/api/daytona_events.c), which is asked for with the key
 * once the client has said it, and ends with the key. Nothing waits for a client: while as much
 * waits for it as the server lets wait, its pipe is not read, and the pipe's writer cuts it
 * (core/state_follow.h). A client that does not answer a ping is disconnected.
 *
 * Source: Engine.IO protocol 4 and Socket.IO protocol 5 (socket.io/docs), websocket transport
 * alone. */
#include "toolbox/events.h"

#include "base/buf.h"
#include "base/clock.h"
#include "core/state_follow.h"
#include "gateway/resolve.h"
#include "http/server.h"
#include "http/websocket.h"
#include "toolbox/call.h"
#include "toolbox/lookup.h"
#include "toolbox/reply.h"
#include "toolbox/run.h"
#include "toolbox/socketio.h"
#include "toolbox/toolbox_internal.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>

#define MESSAGE_MAX 16384u
#define PING_MS     25000
#define PONG_MS     20000
#define CONNECT_MS  10000u /* for the key to come */
#define CLOSE_MS    2000u  /* for the close to be taken */
#define READ_BYTES  16384u

/* The read end of the pipe; lives until its handle is closed. */
struct reader {
    uv_pipe_t pipe;   /* data: the reader */
    struct events *e; /* NULL: the client has gone */
    struct buf lines; /* lines that are read and not sent */
};

struct events {
    struct events *next, **prev;
    struct toolbox_call *call;
    struct websocket *socket;
    struct reader *reader; /* NULL: nothing is told (yet) */
    /* Of clock_mono_ms. due: for the key, 0 when it was good; for the close, once it has ended. */
    uint64_t ping_ms, due_ms;
    uint64_t pong_ms; /* until when a pong has to come; 0: none is owed */
    bool asking, paused, ended;
};

static void unlink_events(struct events *e)
{
    *e->prev = e->next;
    if (e->next)
        e->next->prev = e->prev;
}

static void say(struct events *e, const char *text)
{
    if (!e->ended)
        websocket_send(e->socket, true, text, strlen(text));
}

/* The last events still reach a client that takes them soon. */
static void end(struct events *e, enum websocket_code code, const char *reason)
{
    if (e->ended)
        return;
    e->ended = true;
    e->due_ms = clock_mono_ms() + CLOSE_MS;
    websocket_close(e->socket, code, reason);
}

/* -- what is told ------------------------------------------------------------------------------ */

static void on_reader_closed(uv_handle_t *h)
{
    struct reader *r = h->data;

    buf_free(&r->lines);
    free(r);
}

static void reader_end(struct reader *r)
{
    r->e = NULL;
    uv_close((uv_handle_t *)&r->pipe, on_reader_closed);
}

static void give_buffer(uv_handle_t *h, size_t suggested, uv_buf_t *out)
{
    struct reader *r = h->data;

    *out = buf_reserve(&r->lines, READ_BYTES) == 0
               ? uv_buf_init(r->lines.data + r->lines.len, READ_BYTES)
               : uv_buf_init(NULL, 0);
}

/* True: much waits for the client. */
static bool send_lines(struct events *e)
{
    struct buf *lines = &e->reader->lines;
    bool full = false;
    const char *nl;

    while (!e->ended && lines->len > 0 && (nl = memchr(lines->data, '\n', lines->len))) {
        size_t n = (size_t)(nl - lines->data);

        full = websocket_send(e->socket, true, lines->data, n) == 1;
        buf_consume(lines, n + 1);
    }
    if (lines->len == 0)
        buf_free(lines);
    return full;
}

/* The end: of the key, of one that was too slow, or of the server. */
static void on_read(uv_stream_t *pipe, ssize_t n, const uv_buf_t *buf)
{
    struct reader *r = pipe->data;

    if (!r->e || n == 0)
        return;
    if (n < 0) {
        uv_read_stop(pipe);
        end(r->e, WEBSOCKET_POLICY, "nothing more is told to this key");
        return;
    }
    buf_commit(&r->lines, (size_t)n);
    if (send_lines(r->e)) {
        r->e->paused = true;
        uv_read_stop(pipe);
    }
}

static void on_drain(void *arg)
{
    struct events *e = arg;

    if (!e->paused || !e->reader)
        return;
    e->paused = false;
    if (uv_read_start((uv_stream_t *)&e->reader->pipe, give_buffer, on_read) < 0)
        end(e, WEBSOCKET_FAILED, "");
}

/* While its pipe is not read, its end does not show there. */
static bool was_cut(const struct events *e)
{
    uv_os_fd_t fd;

    if (!e->paused || !e->reader || uv_fileno((uv_handle_t *)&e->reader->pipe, &fd) < 0)
        return false;
    struct pollfd p = {.fd = fd};

    return poll(&p, 1, 0) == 1 && (p.revents & POLLHUP);
}

/* Takes fd over. */
static bool reader_begin(struct events *e, int fd)
{
    struct reader *r = calloc(1, sizeof(*r));

    if (!r || uv_pipe_init(e->call->toolbox->loop, &r->pipe, 0) < 0) {
        free(r);
        close(fd);
        return false;
    }
    r->pipe.data = r;
    r->e = e;
    buf_init(&r->lines, 2 * STATE_FOLLOW_LINE_BYTES);
    if (uv_pipe_open(&r->pipe, fd) < 0) {
        close(fd);
        reader_end(r);
        return false;
    }
    e->reader = r;
    return uv_read_start((uv_stream_t *)&r->pipe, give_buffer, on_read) == 0;
}

static void on_gone(struct toolbox_call *c)
{
    struct events *e = c->state;

    unlink_events(e);
    e->ended = true;
    if (e->reader)
        reader_end(TAKE_PTR(e->reader));
}

/* -- the key ----------------------------------------------------------------------------------- */

static const char *refusal(const struct gateway_answer *a)
{
    if (!a)
        return "44{\"message\":\"try again\"}";
    switch (a->status) {
    case 401: return "44{\"message\":\"Invalid credentials\"}";
    case 429: return "44{\"message\":\"too many connections follow your sandboxes\"}";
    default: return "44{\"message\":\"try again\"}";
    }
}

static void begin(struct events *e, int fd)
{
    char sid[TOOLBOX_TOKEN_SIZE], text[TOOLBOX_TOKEN_SIZE + 16];

    e->due_ms = 0;
    toolbox_token(sid);
    snprintf(text, sizeof(text), "40{\"sid\":\"%.20s\"}", sid);
    say(e, text);
    if (!reader_begin(e, fd))
        end(e, WEBSOCKET_FAILED, "memory is out");
}

static void on_followed(void *arg, struct gateway_answer *a)
{
    struct toolbox_call *c = arg;
    struct events *e = c->state;

    e->asking = false;
    explicit_bzero(c->key, strlen(c->key));
    if (c->x && !e->ended && a && a->status == 0 &&
        !conn_share_take(c->toolbox->config.conn_shares, c->x, a->tenant, NULL, false))
        a->status = 429;
    if (c->x && !e->ended && a && a->status == 0) {
        begin(e, TAKE_FD(a->fd));
    } else if (c->x && !e->ended) {
        say(e, refusal(a));
        end(e, WEBSOCKET_POLICY, "");
    }
    toolbox_call_unref(c);
}

/* Takes key over. */
static void on_connect(struct events *e, char *key)
{
    if (e->asking || !e->due_ms || !key) {
        if (key)
            explicit_bzero(key, strlen(key));
        free(key);
        return;
    }
    explicit_bzero(e->call->key, strlen(e->call->key));
    free(e->call->key);
    e->call->key = key;
    e->call->key_id[0] = '\0';
    e->asking = true;
    toolbox_call_ref(e->call);
    toolbox_follow(e->call, on_followed, e->call);
}

static void on_message(void *arg, bool text, const char *data, size_t len)
{
    struct events *e = arg;
    char *key = NULL;

    if (e->ended)
        return;
    switch (text ? socketio_read(data, len, &key) : SOCKETIO_BAD) {
    case SOCKETIO_IGNORED: break;
    case SOCKETIO_PING: say(e, "3"); break;
    case SOCKETIO_PONG: e->pong_ms = 0; break;
    case SOCKETIO_CONNECT: on_connect(e, key); break;
    case SOCKETIO_CONNECT_TO: say(e, "44{\"message\":\"Invalid namespace\"}"); break;
    case SOCKETIO_CLOSE: end(e, WEBSOCKET_NORMAL, ""); break;
    case SOCKETIO_BAD: end(e, WEBSOCKET_PROTOCOL, "no packet of Engine.IO"); break;
    }
}

/* -- time -------------------------------------------------------------------------------------- */

static void sweep(struct events *e, uint64_t now_ms)
{
    if (e->ended) {
        if (e->due_ms <= now_ms)
            http_exchange_abort(e->call->x);
        return;
    }
    if (e->due_ms && e->due_ms <= now_ms && !e->asking)
        end(e, WEBSOCKET_POLICY, "no key came");
    else if (e->pong_ms && e->pong_ms <= now_ms)
        end(e, WEBSOCKET_POLICY, "no pong came");
    else if (was_cut(e))
        end(e, WEBSOCKET_POLICY, "nothing more is told to this key");
    if (e->ended || e->ping_ms > now_ms)
        return;
    e->ping_ms = now_ms + PING_MS;
    e->pong_ms = now_ms + PONG_MS;
    say(e, "2");
}

/* A stream that ends may leave the list at once, so the next one is read before. */
void toolbox_events_sweep(struct toolbox *t, uint64_t now_ms)
{
    for (struct events *e = t->events, *next; e; e = next) {
        next = e->next;
        sweep(e, now_ms);
    }
}

void toolbox_events_end(struct toolbox *t)
{
    for (struct events *e = t->events, *next; e; e = next) {
        next = e->next;
        end(e, WEBSOCKET_NORMAL, "the server is stopping");
    }
}

/* -- the request ------------------------------------------------------------------------------- */

static void enter(struct events *e, struct toolbox *t)
{
    e->ping_ms = clock_mono_ms() + PING_MS;
    e->due_ms = clock_mono_ms() + CONNECT_MS;
    e->next = t->events;
    e->prev = &t->events;
    if (e->next)
        e->next->prev = &e->next;
    t->events = e;
    e->call->on_gone = on_gone;
    toolbox_need_sweep(t);
}

void toolbox_events(struct toolbox_call *c)
{
    static const struct websocket_callbacks callbacks = {on_message, on_drain};
    struct events *e = calloc(1, sizeof(*e));
    char sid[TOOLBOX_TOKEN_SIZE], text[200];

    if (!e) {
        toolbox_fail(c, 503, NULL, "memory is out");
        return;
    }
    c->state = e;
    c->state_free = free;
    c->answered = true;
    e->call = c;
    e->socket = websocket_accept(c->x, NULL, MESSAGE_MAX, &callbacks, e);
    if (!e->socket)
        return;
    enter(e, c->toolbox);
    toolbox_token(sid);
    snprintf(text, sizeof(text),
             "0{\"sid\":\"%.20s\",\"upgrades\":[],\"pingInterval\":%d,\"pingTimeout\":%d,"
             "\"maxPayload\":%u}",
             sid, PING_MS, PONG_MS, MESSAGE_MAX);
    say(e, text);
}
