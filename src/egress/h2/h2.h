#pragma once
/* HTTP/2 that is read: one client's connection and one of its server's, with every stream of the
 * one a stream of the other. Nothing is translated but ids; each request is asked about, given its
 * credential, and its answer searched for secrets.
 *
 * Flow control goes from end to end: what the one side does not take is not asked of the other.
 * Held at most for each side: H2_WINDOW_BYTES of a connection and what is credited at once (struct
 * h2_share), of a stream H2_STREAM_BYTES, and what its window has grown by; bodies that are held
 * until they are whole, H2_COLLECT_BYTES; of answers that are searched, what h2_held.h says. A peer
 * that costs more than it says (resets, settings, pings, empty frames, continuations without end),
 * or leaves what it is sent unread while it asks for more, is told to calm down and cut.
 *
 * A stream moves at most its window in a round trip. So that of an answer begins with
 * H2_STREAM_WIDE_BYTES, as long as half of what windows of the sandbox may grow by is left (most
 * answers would be over before their window had grown), and each becomes four times as large, up to
 * H2_STREAM_MAX_BYTES, whenever half of it has gone on and little is held: that takes four round
 * trips. (nghttp2 asks for more when half is used up, so that half of it moves in a round trip.)
 * What windows have grown by is memory that a client can make us hold by taking quickly and then
 * not at all: it is bounded for a sandbox, and for all of them; over half of the latter, a sandbox
 * may have H2_GROWN_FAIR_BYTES.
 *
 * Both ends are TLS or plain sockets. Everything is on one loop, nothing blocks, and nothing is
 * called back from inside a call but h2_recheck's question. */

#include "base/arena.h"
#include "base/buf.h"
#include "egress/http/held_answer.h"
#include "egress/http/inject.h"
#include "egress/tls/tls_endpoint.h"

#include <uv.h>

#define H2_STREAMS_MAX       100u /* of a connection, at a time */
#define H2_WINDOW_BYTES      (1024 * 1024)
#define H2_STREAM_BYTES      (256 * 1024)
#define H2_STREAM_WIDE_BYTES (4u * 1024u * 1024u) /* of an answer, while there is room */
#define H2_STREAM_MAX_BYTES  (32u * 1024u * 1024u)
#define H2_GROWN_BYTES       (64u * 1024u * 1024u) /* of a sandbox */
#define H2_GROWN_FAIR_BYTES  (4u * 1024u * 1024u)
#define H2_GROWN_ALL_BYTES   (256u * 1024u * 1024u) /* of a process */
#define H2_HEADS_BYTES       (16u * 1024u * 1024u)  /* of streams that are there, of a sandbox */
#define H2_HEADS_FAIR_BYTES  (1024u * 1024u)
#define H2_HEADS_ALL_BYTES   (256u * 1024u * 1024u) /* of a process */
#define H2_COLLECT_BYTES     (8u * 1024u * 1024u)
#define H2_SHARE_BYTES       (16u * 1024u * 1024u)
#define H2_SHARE_CONNS       64u
#define H2_RESETS_MAX        200u  /* in a second, of one peer, or that it has provoked */
#define H2_EMPTY_MAX         1000u /* frames that bring nothing on, likewise */
#define H2_UPDATES_EACH      10u   /* WINDOW_UPDATE for each DATA frame; more are likewise empty */
#define H2_CONTINUED_MAX     8u    /* CONTINUATION frames of one head */
/* frames for a peer that reads none: then it is not read either */
#define H2_QUEUED_MAX 1000u
#define H2_IDLE_MS    300000u /* without a stream */
#define H2_STUCK_MS   300000u /* a peer takes no byte of what is there for it */
#define H2_DISCARDED_BODY_BYTES \
    ((size_t)16 * 1024 * 1024) /* of a body that is discarded: then a reset */
#define H2_LINGER_MS 2000u
#define H2_PIECE_BYTES \
    ((size_t)16 * 1024) /* a record of TLS: one that waits for the socket is offered again whole */
#define H2_MESSAGE_SIZE 256

struct h2s; /* all of a loop */
struct h2;

/* The bytes that a sandbox's connections hold together. Bytes are credited to the peer that sent
 * them when they came, as long as there are less than H2_SHARE_BYTES, so that one stream that is
 * not read does not stop the others; after that, when they were passed on. */
struct h2_share {
    size_t held_bytes;
    size_t grown_bytes; /* that windows are larger than they began */
    size_t
        head_bytes; /* of requests and their answers, until both are over: HPACK says many in few */
    /* counted by the starter of a connection; more than H2_SHARE_CONNS are not to be */
    unsigned conns;
};

/* The decision about a request. Empty: all zero, body initialized. */
struct h2_verdict {
    uint64_t waited_ms; /* it was put off before, so long ago; 0: it was not */
    bool later;         /* it is put off: h2_again asks anew */
    /* 0: it goes on, with plan. Else it is answered with status (429: and Retry-After), with this
     * value of DENY_HEADER (NULL: without it; lives as long as the call), and with this JSON: */
    int status;
    const char *rule;
    struct buf body;
    char message
        [H2_MESSAGE_SIZE]; /* to gRPC, which reads no body, with this text in its trailers. */
    struct inject_plan plan;
};

struct h2_options {
    struct tls_endpoint client;
    struct tls_endpoint server; /* fd -1: none could be reached, and evaluate lets nothing go on */
    uint64_t owner;             /* the sandbox whose share of the loop's time it has (turns.h) */
    struct h2_share *share;     /* outlives it, or is h2_close'd first */
    struct held_answers *answers; /* where searched answers are counted, as like's; may be NULL */
    const struct share *like;     /* held_answer_open's */
    uint64_t idle_ms;             /* no byte of either side, though there are streams */
    /* Before an event of either side is worked on. False: it is left, and comes again, or the
     * connection was closed. May be NULL. */
    bool (*may_go_on)(void *arg);
    /* A request's head, whose host and authority it may write anew. It may keep what it allocates
     * in a; both live as long as the stream. */
    void (*evaluate)(void *arg, struct http_head *head, struct arena *a, struct h2_verdict *v);
    /* The body of an answer that is made here: 400, 431, 502, 503. With 502 head was let through,
     * and its server did not answer it; else it may be NULL. */
    void (*say)(void *arg, const struct http_head *head, int status, const char *why,
                struct buf *body);
    /* The server broke off the answer to head, or before it; the client's stream is reset. May be
     * NULL. */
    void (*on_break)(void *arg, const struct http_head *head, const char *why);
    /* Bytes of contents so far, from the client and to it: for each piece that was read and is not
     * looked at yet (TLS_ENDPOINT_READ_BYTES at most), before each that is to be written, and now
     * and then. How many more there may be, of which H2_PIECE_BYTES too many are possible; 0: it
     * has closed the connection. May be NULL. */
    uint64_t (*on_moved)(void *arg, uint64_t read, uint64_t written);
    void (*on_end)(void *arg); /* the last call about it */
    void *arg;
};

int h2s_new(uv_loop_t *loop, struct h2s **out);

/* Time, and what searching answers costs, are shared out from now on; t outlives all. */
void h2s_set_turns(struct h2s *all, struct turns *t);

/* Closes all; freed when the loop has turned. */
void h2s_free(struct h2s *all);

/* Both ends are taken over on success, and one of share->conns, which goes with the connection. 0
 * or -errno. */
int h2_start(struct h2s *all, const struct h2_options *o, struct h2 **out);

/* At once; on_end is not called. */
void h2_close(struct h2 *conn);

/* Asks anew about the next request that was put off (h2_verdict.later), and was not asked about in
 * this sweep (its number, from 1). True: there may be another. */
bool h2_again(struct h2 *conn, uint64_t sweep_number);

/* Every request that is under way now: may it go on? h2_recheck asks about the next of them that
 * was not asked about; where still says no, *v is its answer if none has begun; else the stream is
 * reset. False: there is none left. */
void h2_recheck_all(struct h2 *conn);
bool h2_recheck(struct h2 *conn,
                bool (*still)(void *arg, const struct http_head *head, struct h2_verdict *v));
