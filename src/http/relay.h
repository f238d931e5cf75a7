#pragma once
/* Relays one exchange to another HTTP server over a connected (or still connecting) socket.
 *
 * Bodies are relayed as bytes in both directions: framing is followed with a parser, never decoded
 * and made anew, and nothing is buffered beyond the pull-based window. Hop-by-hop headers
 * (RFC 9110 7.6.1) are removed, `remove` are removed, `add` are added (replacing any of the
 * client's of that name: appended is never right for a credential). A request with Upgrade that the
 * server answers with 101 becomes a tunnel of bytes both ways (WebSocket).
 * An answer without a length whose end a layer has not announced goes on, and its end is not
 * announced to the client either: it sees what it would see without a relay.
 * When the upstream breaks before its response head came, on_fail decides the answer; after that
 * the client's connection is cut without an end, so that it cannot mistake a part for the whole. */

#include "base/buf.h"
#include "http/server.h"

/* The reason where a filter ends with -ENOBUFS. */
#define HTTP_RELAY_HELD_REASON                                                                    \
    "answers that wait for their ends, or for their readers, take all the memory that they may: " \
    "ask for fewer at a time"

/* Stands in both directions between a relay and its upstream: changes or stops their bytes. The
 * relay holds what one call gave, and no more, while the reader does not take it. Each call appends
 * to out what goes on; -errno ends the relay as a loss of the upstream does, -ENOBUFS with the
 * reason that no more memory may be taken. */
struct http_relay_filter {
    /* Once, first: wake(relay) is to be called, in a later turn of the loop, when `most` has become
     * more than 0, or when inward_more has something though nothing new came. */
    void (*start)(void *arg, void (*wake)(void *relay), void *relay);

    /* Bytes of the request; its head comes whole, in one call. */
    int (*outward)(void *arg, const char *data, size_t n, struct buf *out);

    /* How much of the answer may be worked on now, behind a layer at least HTTP_LAYER_READ_BYTES;
     * 0: wake tells. */
    size_t (*most)(void *arg);
    int (*inward)(void *arg, const char *data, size_t n, struct buf *out);
    /* More of what was taken: called until out stays empty, when what it gave before has gone
     * on. */
    int (*inward_more)(void *arg, struct buf *out);
    /* The upstream has ended. */
    int (*inward_end)(void *arg, struct buf *out);

    /* The reader has to be waited for, or not any more. */
    void (*wait)(void *arg, bool on);
    void (*free)(void *arg);
};

struct http_relay_options {
    int fd;          /* owned by the relay from the call on, also on failure */
    bool connecting; /* connect() is in progress; not with a filter or a layer */
    /* The layer that fd's bytes pass, begun (TLS after its handshake), or NULL. Owned as fd is, and
     * given back with it to on_reusable. */
    void *layer;
    const struct http_layer_ops *layer_ops;
    const struct http_relay_filter *filter; /* or NULL */
    void *filter_arg;                       /* owned by the relay likewise */
    const struct http_header *add;
    size_t add_count;
    const char *const *remove; /* NULL-terminated names, may be NULL */
    const char *host;          /* Host to send; NULL keeps the client's */
    uint64_t connect_timeout_ms;
    uint64_t head_timeout_ms; /* from the request's end to the response's head, and without the
                               * upstream taking any of the request; 0 none (long calls) */
    bool drop_trailers;       /* of the request: servers that take them for headers would see what
                               * `remove` and `add` are to decide */
    bool websocket_only;      /* no other change of protocol is asked for */
    /* Has the server agreed to the change of protocol (101)? NULL: its word is enough. */
    bool (*may_switch)(const struct http_head *request, const struct http_head *answer);
    bool add_cors; /* adds Access-Control-Allow-Origin: * to the response */
    /* Before bytes of the request's body, or of the answer, go on. False: they do not, and the
     * exchange is cut. May be NULL. */
    bool (*on_move)(void *arg, size_t request_bytes, size_t answer_bytes);
    /* Called once. reason: ERR_UNAVAILABLE (refused, broke), ERR_TIMEOUT, ERR_INTERNAL (answered
     * nonsense). It must answer the exchange. Comes from inside http_relay_start only where the
     * filter does not take the request's head. */
    void (*on_fail)(struct http_exchange *x, const struct err *why, void *arg);
    /* Once at most, instead of on_fail: it broke when a part of its answer had gone on, which is
     * cut after this. Not of a tunnel. It calls nothing of the exchange. May be NULL. */
    void (*on_break)(struct http_exchange *x, const struct err *why, void *arg);
    /* The upstream connection can serve another request: takes the descriptor over. NULL:
     * closed. */
    void (*on_reusable)(int fd, void *arg);
    void *arg;
};

/* Ends a relay, if x is one still: on_fail answers (ERR_UNAVAILABLE) where nothing of the answer
 * has gone, else the client's connection is cut. */
void http_relay_break(struct http_exchange *x, const char *why);

/* In on_fail, which then need not answer: whether x can be relayed once more, as nothing of its
 * answer has gone and it has no body of which a part is gone. */
bool http_relay_may_repeat(struct http_exchange *x);

void http_relay_start(struct http_exchange *x, const struct http_relay_options *o);
