#pragma once
/* A connection, its sides and its streams, and what the files of egress/h2 use of h2.c. No file
 * outside of this folder includes it, nor those named here:
 *
 * h2_end.h       one side: socket and nghttp2 session
 * h2_meter.h     what its peer may send of frames that bring nothing on
 * h2_share.h     what a loop's connections hold together
 * h2_held.h      what answers that are searched hold beside it
 * h2_stream.h    a stream's life, and bytes on their way through it
 * h2_request.h   a request: evaluated, given its credential, sent on
 * h2_response.h  an answer: searched, sent back; or made here
 * h2_pause.h     what is kept back of an answer, when its server pauses
 * h2_head.h      heads
 *
 * nghttp2's callbacks only note and submit; what frees or closes waits for h2_conn_pump, which runs
 * from the loop alone. A stream is found by nghttp2's own table and is freed when neither session
 * has it any more. */

#include "egress/h2/h2.h"
#include "egress/h2/h2_head.h"
#include "egress/http/frames.h"
#include "egress/http/unzip.h"

enum side { H2_CLIENT, H2_SERVER, H2_SIDES };

#define OTHER(side) ((side) == H2_CLIENT ? H2_SERVER : H2_CLIENT)

/* A body on its way to one side. */
struct h2_body {
    struct buf bytes; /* may be sent */
    size_t window;    /* that the other side may send of it; 0: as it began */
    size_t passed;    /* of it, since that grew */
    size_t unsent;    /* came, and did not leave yet: bytes, and what redact keeps back */
    size_t owed;      /* of these, what the connection they came by was not credited with yet */
    bool ended;       /* no more comes */
    bool left;        /* and all of it has left */
    uint32_t broken;  /* no more comes, for this error, which goes on behind all of it; 0: none */
    struct h2_fields *trailers;
};

struct h2_stream {
    struct h2 *conn;
    struct h2_stream *prev, *next;
    int32_t id[H2_SIDES];      /* 0: none there */
    bool open[H2_SIDES];       /* nghttp2 has it */
    bool reset_here[H2_SIDES]; /* by this program, for no fault of that side's peer */
    struct h2_body to[H2_SIDES];
    struct arena arena;
    struct http_head *head;    /* of the request; NULL until it is whole */
    const char *const *remove; /* the client's headers that were left out */
    struct rewrite_job *job;   /* while the request's body is collected for it */
    struct buf collected;
    struct held_body held; /* of it, when it has gone on */
    struct redact *redact;
    struct credential_use *use; /* spent by a 401 */
    bool parked;                /* it is to be evaluated again: h2_again */
    uint64_t parked_ms;         /* since when */
    uint64_t sweep_number;      /* h2_again's, that asked about it last */
    struct unzip *unzip;  /* the answer's body is compressed, and has not all been passed on */
    bool unzips;          /* it is, or was */
    size_t answer_bytes;  /* of it, in its connection's */
    struct frames frames; /* of a conversation's answer */
    unsigned pause_ms;   /* after which what is kept back of an answer passes; 0: only at its end */
    uint64_t arrived_ms; /* the last of it */
    bool stalled;        /* the client did not take all, since the last pause */
    bool begun;          /* the client has the head of its answer */
    size_t interim_bytes; /* of answers before it (1xx) that wait for the client */
    size_t head_bytes;    /* of it and its answer, in h2_share */
    bool discarding_body; /* the client's later bytes are thrown away */
    size_t thrown_bytes;
    uint64_t left_ms; /* the client has its whole answer since then; 0: not yet */
};

/* A second's worth of frames. */
struct h2_meter {
    uint64_t second;
    unsigned resets, empty;
};

#define H2_FRAME_HEAD 9u

/* Where its peer's bytes are: in a frame's head, or with so many to go until the next one. */
struct h2_scan {
    uint8_t head[H2_FRAME_HEAD];
    size_t have, skip;
};

struct h2_end {
    struct h2 *conn;
    enum side side;
    nghttp2_session *session; /* NULL: there is no such side */
    struct tls_endpoint io;
    uv_poll_t poll;
    bool has_poll;
    int events;
    uint32_t round; /* turns.h */
    struct buf out;
    struct h2_fields fields; /* of the head that comes in */
    struct h2_meter meter;
    struct h2_scan scan;
    size_t updates;     /* WINDOW_UPDATE that the DATA it was sent accounts for */
    size_t grown_bytes; /* of its connection's window */
    unsigned continued;
    bool ended;                                  /* nothing more comes */
    bool broken;                                 /* nothing more goes */
    uint64_t read_bytes, written_bytes, took_ms; /* the peer took bytes last, or owed none */
};

/* The connections of a loop. */
struct h2s {
    uv_loop_t *loop;
    uv_timer_t sweep; /* while there are connections */
    struct turns *turns;
    struct h2 *first;
    size_t count;
    size_t grown_bytes; /* of all windows */
    size_t head_bytes;  /* of all streams */
    bool freeing;
    char scratch[TLS_ENDPOINT_READ_BYTES]; /* one loop: used within a call */
};

struct h2 {
    struct h2s *all;
    struct h2 *prev, *next;
    struct h2_options o;
    struct h2_end end[H2_SIDES];
    uv_timer_t pause; /* h2_pause.c */
    struct h2_stream *streams;
    struct h2_stream *unasked; /* the next of h2_recheck, or NULL */
    unsigned stream_count, handles;
    size_t collecting;   /* bytes that bodies of its streams may take */
    uint64_t moved_ms;   /* the last byte of either side */
    size_t held_bytes;   /* of its streams in h2_share */
    size_t grown_bytes;  /* likewise */
    size_t head_bytes;   /* likewise */
    size_t answer_bytes; /* of its streams; they are counted there */
    struct held_answer held_answer;
    uint64_t linger_ms; /* the client was told the last thing then; 0: not yet */
    uint32_t drain_code;
    bool announced;   /* the client knows that it is */
    bool draining;    /* no new streams */
    bool client_went; /* it has said GOAWAY, and the server was told */
    bool pumping, dead, closed;
    struct turn turn; /* of what is searched */
};

/* A socket of its is ready: reads, pumps. The handle's data is the end. */
void h2_conn_event(uv_poll_t *poll, int status, int events);

/* h2_options.may_go_on. */
bool h2_conn_may_go_on(struct h2 *conn);

/* Sends what there is to be sent. Not from inside a callback of nghttp2; the connection may be gone
 * after it. */
void h2_conn_pump(struct h2 *conn);

/* May more of its answers be searched, or with unzip: be decompressed (or is there none)? Else it
 * goes on in a turn of its own. */
bool h2_conn_may(struct h2 *conn, bool unzip);
void h2_conn_searched(struct h2 *conn, size_t n);

/* How many bytes may still come from its client and go there; 0: it was closed for them. Between
 * pumping and its end only. */
uint64_t h2_conn_may_send(struct h2 *conn);

/* No new streams; those that are there go on. The client is told. */
void h2_conn_drain(struct h2 *conn, uint32_t code);
