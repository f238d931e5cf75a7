#pragma once
/* A connection of the server, and what its files use of conn.c. Shared by the files of the server;
 * no file outside src/http includes it, nor those named here:
 *
 * server_internal.h  the server: listeners, the list of connections, limits, timers, stop
 * conn.h             one connection: reading, heads, the order of things (conn_pump), its end
 * conn_input.h       bytes that were read and not used yet
 * conn_wait.h        what it waits for: events of its socket, and times
 * conn_turn.c        its part of the loop's time, where that is shared out
 * conn_layer.h       its bytes, through TLS or not
 * held.h             answers that no client takes: how many bytes of them there may be
 * exchange.h         an exchange's memory and its two ends: done or lost
 * body.h             the request's body
 * response.h         the response
 *
 * The invariant: handlers' callbacks run only from conn_pump, which never runs inside itself. A
 * function that a handler calls only notes the work; a connection whose pump is not running is put
 * on the server's list of dirty ones and pumped before the loop sleeps. So no callback comes before
 * the call that asked for it has returned, and nothing is freed under a handler's feet. */

#include "base/buf.h"
#include "http/pass.h"
#include "http/server.h"

#include <sys/uio.h>

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
    WAIT_OWNER,       /* for http_exchange_own */
    WAIT_TAKEN,       /* for the peer to have all of an answer that broke off */
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
    struct wait read_wait, write_wait, own_wait;
    void *layer;                            /* its bytes pass through it, or NULL: see layer.h */
    const struct http_layer_ops *layer_ops; /* its functions: the server's, or as it was adopted */
    const char *view; /* during a pump: bytes just read, before they are copied to `in` */
    size_t view_len;
    bool passing;       /* likewise, but the bytes are in the server's pipe */
    size_t scanned;     /* of an incomplete head */
    size_t unsent;      /* when the wait for the peer to take bytes began */
    size_t held;        /* bytes of `out` that held.c counts */
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
    /* The event that the layer waits for, where it differs from the one that HTTP waits for. */
    bool read_wants_write, write_wants_read, shut_wants_write;
};

/* layer NULL: it begins without one, and gets the server's where its first byte says so. ops
 * are not used then. */
int conn_new(struct http_server *s, int fd, uint64_t tag, const struct http_layer_ops *ops,
             void *layer);

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
