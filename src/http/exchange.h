#pragma once
/* A request and its response: its memory, and its two ends, done or lost. The order of calls is in
 * conn.h. */

#include "base/arena.h"
#include "base/buf.h"
#include "http/conn.h"
#include "http/parse.h"

#include <jansson.h>

#define HTTP_DISCARD_BYTES (64u * 1024u) /* of an unread body, to keep a connection */

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

    void *owner;
    void (*owner_release)(void *owner); /* NULL: it has none */

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
    bool breaks;     /* aborted, when the peer has taken what is queued */
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

/* With room for so many bytes of head; NULL when memory is out. */
struct http_exchange *exchange_new(struct conn *c, size_t storage);
void exchange_free(struct http_exchange *x);

/* Tells the handler that it is over, once. */
void exchange_announce_close(struct http_exchange *x);

/* Its answer has begun and cannot be whole: what there is of it goes to the peer, then it is
 * aborted, which ends the connection with a reset. */
void exchange_break(struct http_exchange *x);

/* conn.c's step of one that breaks. True: there is more to do. */
bool exchange_step_break(struct http_exchange *x);

/* It cannot be finished: told, freed, and the connection on its way to its end. */
void exchange_lost(struct conn *c);
