#pragma once
/* Shared by the files of the server; no file outside src/http includes it.
 *
 * server.c   listeners, the list of connections, limits, timers, stop
 * server_make.c a server's memory
 * conn.c     one connection: reading, heads, the order of things (conn_pump), its end
 * conn_input.c bytes that were read and not used yet
 * conn_wait.c what it waits for: events of its socket, and times
 * held.c     answers that no client takes: how many bytes of them there may be
 * layer.c    its bytes, through TLS or not
 * exchange.c an exchange's memory and its two ends: done or lost
 * body.c     the request's body
 * response.c the response
 *
 * One rule holds it together: handlers' callbacks run only from conn_pump, which never runs inside
 * itself. What a handler calls only notes what to do; a connection whose pump is not running is put
 * on the server's list of dirty ones and pumped before the loop sleeps. So no callback comes before
 * the call that asked for it has returned, and nothing is freed under a handler's feet. */

#include "base/buf.h"
#include "http/parse.h"
#include "http/pass.h"
#include "http/server.h"

#include <jansson.h>
#include <sys/uio.h>

#define HTTP_DISCARD_BYTES (64u * 1024u) /* of an unread body, to keep a connection */

/* Each kind of wait has one length per server, so that a queue in order of entry is in order of
 * time, and one timer serves all. */
enum wait_kind {
    WAIT_HEAD,
    WAIT_IDLE,
    WAIT_BODY,
    WAIT_WRITE,
    WAIT_LINGER,
    WAIT_BEGIN,
    WAIT_HALF,        /* for the answer to a peer that has ended its side */
    WAIT_HALF_STREAM, /* the same, when its length is not known */
    WAIT_KINDS
};

struct wait {
    struct wait *prev, *next; /* NULL: not waiting */
    uint64_t due_ms;
};

enum conn_state {
    CONN_NEW,       /* the first byte tells whether there is a layer; only where one may be */
    CONN_BEGINNING, /* the layer's handshake */
    CONN_HEAD,      /* between requests, or reading a head */
    CONN_EXCHANGE,  /* one request is served */
    CONN_CLOSING,   /* last bytes go out, then the connection ends */
    CONN_LINGER,    /* all is sent and shut down; what still comes is thrown away */
    CONN_DEAD       /* handle is being closed */
};

struct conn {
    uv_poll_t poll;
    struct http_server *server;
    struct conn *prev, *next;       /* all connections */
    struct conn *dirty_next;        /* to be pumped; valid while dirty */
    struct http_exchange *exchange; /* with CONN_EXCHANGE */
    struct buf in;                  /* read, not looked at yet */
    struct buf out;                 /* to be written */
    struct wait read_wait, write_wait;
    void *layer;                            /* what its bytes pass through, or NULL: see layer.h */
    const struct http_layer_ops *layer_ops; /* its functions: the server's, or as it was adopted */
    const char *view; /* during a pump: bytes just read, before they are copied to `in` */
    size_t view_len;
    bool passing;       /* likewise, but the bytes are in the server's pipe */
    size_t scanned;     /* of an incomplete head */
    size_t unsent;      /* when the wait for the peer to take bytes began */
    size_t held;        /* what held.c counts of `out` */
    size_t linger_left; /* bytes that may still be thrown away */
    uint64_t tag;       /* of http_server_adopt_tagged, or 0 */
    uint32_t round;     /* http_server_config.enter's */
    int fd, events;
    enum conn_state state;
    enum wait_kind read_kind;
    bool dirty, pumping;
    bool adopted_layer; /* http_server_adopt_layer */
    bool broken;        /* the socket failed: no more input or output */
    bool eof;           /* the peer's last byte was read */
    bool half;          /* the peer will send no more than what waits in the socket */
    bool cut;           /* close with a reset: the peer must see that something is missing */
    bool unannounced;   /* nor is its answer's end, which the upstream has not announced */
    bool timed_out;     /* in waiting for body bytes or for the peer to take bytes */
    bool shut;          /* our last byte is out and announced */
    bool got_input;     /* since the last settling: restarts the wait for a body */
    bool sent_some;     /* likewise, the wait for an answer */
    /* What the layer waits for, where it is not what HTTP waits for. */
    bool read_wants_write, write_wants_read, shut_wants_write;
};

enum body_mode {
    BODY_UNDECIDED, /* the handler has not said yet: nothing is read */
    BODY_COLLECT,
    BODY_STREAM,
    BODY_RAW,     /* as BODY_STREAM, but with its chunk framing as sent */
    BODY_DISCARD, /* the response is there already */
    BODY_TUNNEL   /* no HTTP any more: bytes until the end of the stream */
};

struct http_exchange {
    struct conn *conn;
    struct http_exchange *next_free;
    void *data;
    void (*on_close)(struct http_exchange *, void *);

    /* The server of the exchange inside src/http (relay.c); called before the handler is. */
    void *inner;
    void (*inner_close)(struct http_exchange *);
    void (*inner_drain)(struct http_exchange *);

    enum body_mode mode;
    bool paused;
    bool drop_trailers;    /* BODY_RAW */
    bool expects_continue; /* until 100 was sent or bytes came */
    bool end_reported;     /* on_end, done or on_eof was called */
    bool close_announced;
    size_t discarded;
    size_t collect_max;
    void (*on_collect)(struct http_exchange *, char *, size_t);
    void (*on_data)(struct http_exchange *, const char *, size_t);
    void (*on_passed)(struct http_exchange *, struct pass *); /* BODY_RAW */
    void (*on_end)(struct http_exchange *);
    void (*on_too_large)(struct http_exchange *); /* answers instead of the plain 413 */
    void (*rpc_done)(struct http_exchange *, json_t *, bool);

    bool begun, ended;
    bool chunked;        /* our own chunks */
    bool counted;        /* a length was announced; `left` of it is to come */
    const char *reason;  /* of its status line; NULL: the usual text of its status */
    bool streams;        /* its length is not known before its end */
    bool no_body;        /* HEAD, 204, 304: announced but not sent */
    bool raw;            /* framing is the caller's (relay) */
    bool close;          /* the connection ends with this response */
    bool shut_requested; /* tunnel: our direction ends when all is out */
    bool want_drain, aborted;
    size_t drain_at; /* on_drain comes when no more than this is queued */
    uint64_t left;   /* of the announced length */
    void (*on_drain)(struct http_exchange *, void *);

    struct buf collect;
    struct arena arena;
    char *storage; /* of the head; kept with the exchange for the next one */
    size_t storage_bytes;
    struct parse_body body;
    struct http_head head; /* last: not cleared for each request */
};

struct listener {
    uv_poll_t poll;
    struct http_server *server;
    struct listener *next;
    int fd;
};

struct http_server {
    uv_loop_t *loop;
    struct http_server_config config;
    http_handler handler;
    void *ctx;
    struct listener *listeners;
    struct conn *conns;
    size_t conn_count, conns_closing; /* the latter are among the former */
    size_t collected;                 /* bytes in all exchanges' collect */
    size_t held;                      /* bytes of all connections' held */
    uint64_t full_said_ms, held_said_ms;
    size_t beginning; /* connections in that state */
    size_t handles;   /* not yet closed by libuv */
    struct conn *dirty, **dirty_tail;
    struct wait waits[WAIT_KINDS]; /* heads of circular lists */
    uv_timer_t timer;
    uint64_t timer_due_ms; /* 0: not set */
    uv_prepare_t prepare;
    bool preparing;
    struct http_exchange *free_exchanges;
    size_t free_count;
    char *read_buf; /* shared: lives for one read event */
    size_t read_bytes;
    struct pass pass; /* likewise */
    size_t piece;     /* what goes through it at once */
    /* as scratch: their memory is there from the start, so that an answer needs none */
    struct buf error_body;
    struct buf scratch; /* heads in the making */
    time_t date_second;
    char date[32];
    bool stopping, accept_paused;
    uint64_t accept_again_ms, stop_at_ms;
    void (*on_stopped)(void *);
    void *stopped_ctx;
};

/* -- server.c ---------------------------------------------------------------------------------- */

/* (Re)starts the wait of that kind from now; a kind whose time is 0 does not wait. */
void server_wait(struct http_server *s, struct wait *w, enum wait_kind kind);
void server_wait_stop(struct wait *w);
void server_mark_dirty(struct conn *c);

/* http_server_config.enter and leave, of a connection with this tag. */
bool server_enter(struct http_server *s, uint64_t tag, uint32_t *round);
void server_leave(struct http_server *s, uint64_t tag);
void server_conn_gone(struct conn *c); /* takes it off the list; its handle is closing */
const char *server_date(struct http_server *s);

/* -- server_make.c ----------------------------------------------------------------------------- */

/* After its last handle was closed; tells that it has stopped. */
void server_free(struct http_server *s);

/* -- conn.c ------------------------------------------------------------------------------------ */

/* layer NULL: it begins without one, and gets the server's where its first byte says so. ops
 * are not used then. */
int conn_new(struct http_server *s, int fd, uint64_t tag, const struct http_layer_ops *ops,
             void *layer);
void conn_socket_options(int fd);

/* Does all that can be done now. */
void conn_pump(struct conn *c);

/* Writes what is queued, as far as the socket takes it. No callback. */
void conn_flush(struct conn *c);

/* Queues, or writes at once when nothing is queued and `now`. Never calls back. */
void conn_send(struct conn *c, const struct iovec *iov, int n, bool now);

/* May the pipe's bytes be written now: nothing is queued before them, and no layer is to see
 * them? */
bool conn_may_pass(struct conn *c);

/* Writes what the pipe holds, after conn_may_pass; the rest is queued. Never calls back. */
void conn_pass(struct conn *c, struct pass *p);

void conn_on_event(uv_poll_t *poll, int status, int events);
void conn_stop(struct conn *c, bool now);

/* -- conn_input.c ------------------------------------------------------------------------------ */

/* What was read and not used: the connection's own, or during a pump the view of the server's
 * buffer. */
size_t conn_input_len(const struct conn *c);
const char *conn_input_data(const struct conn *c);
void conn_input_used(struct conn *c, size_t n);

/* At a pump's end: what is left becomes the connection's own. */
void conn_input_keep(struct conn *c);

/* -- conn_wait.c ------------------------------------------------------------------------------- */

/* UV_READABLE and the like; 0: nothing. */
void conn_wait_events(struct conn *c, int events);

/* Is there a use for more bytes of the peer's now? */
bool conn_wait_wants_read(const struct conn *c);

/* After a pump: events and waits as what is left to do wants them. */
void conn_wait_settle(struct conn *c);
void conn_timed_out(struct conn *c, struct wait *w);

/* -- layer.c ----------------------------------------------------------------------------------- */

/* As read(2) and sendmsg(2), or -errno; -EAGAIN when nothing can be done now. */
ssize_t layer_read(struct conn *c, void *out, size_t n);
ssize_t layer_write(struct conn *c, const struct iovec *iov, int n);

/* No more bytes from here, in the layer's words and the socket's. False: again when it is
 * writable. */
bool layer_shut(struct conn *c);

/* CONN_NEW: looks at the first byte. True: it is plain HTTP, to be read now. */
bool layer_is_plain(struct conn *c);

/* CONN_BEGINNING: goes on with the handshake. True when it is done. */
bool layer_step(struct conn *c);
void layer_close(struct conn *c);

/* -- held.c ------------------------------------------------------------------------------------ */

/* After the memory of c->out has become more or less. */
void held_count(struct conn *c);

/* The same after bytes were queued. Where all connections together hold more than they may, the one
 * that has taken nothing for longest is reset, and the next, until it fits; c itself last. No
 * callback: those connections end in their next pump. */
void held_free_memory(struct conn *c);

/* -- exchange.c -------------------------------------------------------------------------------- */

/* With room for so many bytes of head; NULL when memory is out. */
struct http_exchange *exchange_new(struct conn *c, size_t storage);
void exchange_free(struct http_exchange *x);

/* Tells the handler that it is over, once. */
void exchange_announce_close(struct http_exchange *x);

/* It cannot be finished: told, freed, and the connection on its way to its end. */
void exchange_lost(struct conn *c);

/* -- body.c ------------------------------------------------------------------------------------ */

/* Hands input to the body's reader; how many bytes were used, or -EBADMSG. */
ssize_t body_feed(struct http_exchange *x, const char *data, size_t n);
/* Tells the end of a body that is complete, once. */
void body_report_end(struct http_exchange *x);
bool body_wants_input(const struct http_exchange *x);
/* How much of what is to be read the body's reader takes from the pipe; 0: none. */
uint64_t body_may_pass(const struct http_exchange *x);
/* Hands what is in the pipe to the body's reader, which takes all of it. */
void body_pass(struct http_exchange *x, struct pass *p);
bool body_done(const struct http_exchange *x);

/* For the relay: the body with its framing as sent; long contents come through the pipe if they
 * can and on_passed is not NULL. */
void body_stream_raw(struct http_exchange *x,
                     void (*on_data)(struct http_exchange *, const char *, size_t),
                     void (*on_passed)(struct http_exchange *, struct pass *),
                     void (*on_end)(struct http_exchange *));

/* -- response.c -------------------------------------------------------------------------------- */

/* Parts of a head; bad names and values abort, see server.h. */
void response_put(struct buf *b, const char *s);
void response_put_number(struct buf *b, uint64_t value);
void response_put_header(struct buf *b, const char *name, const char *value);

/* Must the connection end with this response? */
bool response_must_close(const struct http_exchange *x);

/* Refuses what is no exchange (a bad head): queues a whole response that ends the connection. */
void response_refuse(struct conn *c, int status, const char *why);

/* To a client that begins a TLS handshake where none is spoken: it would take an answer for a
 * broken one. */
void response_refuse_tls(struct conn *c);

/* http_response_write of several pieces as one chunk; n <= 4. */
int response_writev(struct http_exchange *x, const struct iovec *iov, int n);

/* For the relay: a head made elsewhere; then http_response_write sends bytes as they are. close:
 * the connection ends after it. no_body as in struct http_exchange. */
void response_begin_raw(struct http_exchange *x, const char *head, size_t n, bool close,
                        bool no_body);
/* As http_response_write, of what the pipe holds; after conn_may_pass. 1: wait for on_drain, which
 * comes when nothing is queued any more, so that the next bytes can pass as well. */
int response_pass(struct http_exchange *x, struct pass *p);
/* An interim response (1xx) as it is. */
void response_interim(struct http_exchange *x, const char *head, size_t n);
/* After 101: bytes both ways. on_end is called at the client's end of stream. */
void response_tunnel(struct http_exchange *x, const char *head, size_t n,
                     void (*on_data)(struct http_exchange *, const char *, size_t),
                     void (*on_end)(struct http_exchange *));
/* Tunnel: no more bytes will be written; the client's may go on. */
void response_shut(struct http_exchange *x);
