#pragma once
/* An HTTP/1.1 server on one libuv loop. Used by cayd's connection loops and by cay-init.
 *
 * A struct http_exchange is a request and its response on a connection. The server owns it; it is
 * valid from the handler's call until its close callback returns. That callback is called exactly
 * once for each exchange that the handler saw: after the response was written, or when the
 * connection was lost, timed out or aborted. Keep no pointer to an exchange in anything that lives
 * longer, unless the close callback clears it.
 *
 * Flow control is pull-based: a body handler that pauses stops reading from the socket; a response
 * writer that is told "full" waits for its drain callback. The most that a peer can make the server
 * hold: max_head_bytes + one read buffer + what http_body_collect was allowed + the write
 * high-water mark.
 *
 * Never blocks. Not thread-safe: one server belongs to one loop and has no globals. */

#include "base/arena.h"
#include "base/err.h"
#include "http/layer.h"
#include "http/message.h"

#include <uv.h>

struct http_server;
struct http_exchange;

struct http_server_config {
    /* For more, one is closed: the longest idle, or else the one whose request has been without an
     * owner for longest (its head or its handshake goes on, or http_exchange_own was not called).
     * Where there is none, new ones get 503. */
    size_t max_connections;
    size_t max_head_bytes;    /* 431 above it */
    size_t write_high_bytes;  /* http_response_write answers 1 above it */
    size_t read_buffer_bytes; /* one per server: what one read takes; 0 is 64 KiB */
    /* From the first byte of a head to its end: 408, close; and for a refusal to be taken. */
    uint64_t head_timeout_ms;
    uint64_t idle_timeout_ms; /* keep-alive without a request: close */
    uint64_t body_timeout_ms; /* no byte of a wanted body: 408, close */
    /* the peer takes nothing while we have bytes for it: close; 0 none */
    uint64_t write_timeout_ms;
    /* A peer that has ended its side after a whole request gets its answer (RFC 9112 9.6). But that
     * it has gone looks the same on TCP until something is sent to it: nothing of the answer for so
     * long, and it has. The second is for answers whose length is not known: they may be endless.
     * In the middle of such a one the end of the peer's side is its end. */
    uint64_t half_timeout_ms;
    uint64_t half_stream_timeout_ms;
    uint64_t
        owner_timeout_ms;   /* a request that is not http_exchange_own's by then: close; 0 none */
    size_t arena_max_bytes; /* per exchange */
    size_t collect_total_bytes; /* of all collected bodies at one time: 503 above it */
    /* Memory of all answers that are longer than write_high_bytes and not taken by their clients:
     * above it the connection that has taken nothing for longest is reset. */
    size_t held_total_bytes;
    struct http_layer layer; /* TLS for connections that begin with it; its ops may be NULL */
    bool adopts_layers;      /* http_server_adopt_layer will be called */
    bool proxy;              /* targets may be in absolute form: head.authority */
    bool relays;             /* keeps a pipe for long contents that http_relay_start passes on */
    /* A connection of http_server_adopt_tagged ends: its descriptor is closed after this. May be
     * NULL; calls nothing of the server. */
    void (*on_tagged_end)(void *ctx, uint64_t tag, int fd);
    /* Shares the loop's time: asked before an event is worked on, of a connection with a tag or of
     * the server that it is relayed to. 0: the event is left, and comes again in a later turn of
     * the loop. Else how many bytes of a body are to be passed on at once, and `leave` follows in
     * the same call. *round is the connection's or the relay's, 0 at first, for `enter` to use.
     * again: what an event of the connection has left to do; an answer of 0 puts it off likewise.
     * is_over: is what was entered to end where it can? A connection's further requests are left
     * to another turn then. All or none. */
    size_t (*enter)(void *ctx, uint64_t tag, bool again, uint32_t *round);
    bool (*is_over)(void *ctx);
    void (*leave)(void *ctx);
};

/* Sensible values for all of it. */
void http_server_config_default(struct http_server_config *c);

typedef void (*http_handler)(struct http_exchange *x, void *ctx);

int http_server_new(uv_loop_t *loop, const struct http_server_config *config, http_handler handler,
                    void *ctx, struct http_server **out);

/* Accepts on a listening TCP or unix socket. Takes the descriptor over on success. */
int http_server_listen(struct http_server *s, int listen_fd);

/* Takes over one connected stream socket (tests; sockets handed over by another thread). */
int http_server_adopt(struct http_server *s, int fd);

/* The same; its exchanges carry the tag, which is not 0. */
int http_server_adopt_tagged(struct http_server *s, int fd, uint64_t tag);

/* The same, of a connection whose layer has begun (TLS after its handshake): its bytes pass through
 * it, and ops->close, which comes before on_tagged_end, is the last call for it. Taken over on
 * success. Differences to a connection whose layer the server began: after the last response its
 * socket is closed when the peer has closed its own, or after two seconds, so that bytes which the
 * peer still sends do not destroy the end of the response; and a peer whose stream of bytes ends
 * without the layer's end while a request is served is lost, and is not waited for. */
int http_server_adopt_layer(struct http_server *s, int fd, uint64_t tag,
                            const struct http_layer_ops *ops, void *layer);

/* No new connections or requests; running exchanges finish or are cut after grace_ms; then done is
 * called and the server is freed. */
void http_server_stop(struct http_server *s, uint64_t grace_ms, void (*done)(void *ctx), void *ctx);

/* Resets all connections with what is served on them, and takes no new ones: those wait in the
 * kernel until it goes on. The last has gone when http_server_connections says 0, after turns of
 * the loop. */
void http_server_rest(struct http_server *s);
void http_server_go_on(struct http_server *s);

size_t http_server_connections(const struct http_server *s);

/* -- the request ------------------------------------------------------------------------------- */

const struct http_head *http_exchange_head(const struct http_exchange *x);
uv_loop_t *http_exchange_loop(const struct http_exchange *x);
uint64_t http_exchange_tag(const struct http_exchange *x);
struct arena *http_exchange_arena(struct http_exchange *x); /* freed after the close callback */

/* Sets the Host that a relay sends and the head has from now on; allocated in its arena. */
void http_exchange_set_host(struct http_exchange *x, const char *host);

/* Before its response begins: the connection ends with it, also where more requests came
 * already. */
void http_exchange_close_after(struct http_exchange *x);

/* The handler's own state. on_close may be NULL. */
void http_exchange_set(struct http_exchange *x, void *data,
                       void (*on_close)(struct http_exchange *x, void *data));
void *http_exchange_get(const struct http_exchange *x);

/* It is known for whom the request is: the server waits for that no more (owner_timeout_ms), and
 * does not close the connection for a new one. release is called once with owner, when the
 * exchange is over, after on_close. At most once for an exchange. */
void http_exchange_own(struct http_exchange *x, void *owner, void (*release)(void *owner));
bool http_exchange_is_owned(const struct http_exchange *x);

/* A handler must call exactly one of the following, or answer at once (an unread body is then
 * drained up to 64 KiB, or the connection is closed). */

/* Collects the body; over max it answers 413 by itself (in JSON {code,message}) and done is not
 * called. body is NUL-terminated and lives in the exchange. */
void http_body_collect(struct http_exchange *x, size_t max,
                       void (*done)(struct http_exchange *x, char *body, size_t len));

/* In done, or later: the collected body is needed no more. It is wiped and freed before its
 * exchange, which may wait long for its answer, and counts in collect_total_bytes no more. */
void http_body_release(struct http_exchange *x);

/* Streams the body, decoded of its transfer coding. on_end is called once after the last byte; not
 * if the connection is lost first (on_close tells). */
void http_body_stream(struct http_exchange *x,
                      void (*on_data)(struct http_exchange *x, const char *data, size_t len),
                      void (*on_end)(struct http_exchange *x));
void http_body_pause(struct http_exchange *x);
void http_body_resume(struct http_exchange *x);

/* -- the response ------------------------------------------------------------------------------ */

/* headers: without Content-Length, Transfer-Encoding, Connection and Date, which the server sets.
 * A name or value with CR, LF or NUL is a bug and aborts. Bodies are copied unless said
 * otherwise. */

/* Before the response begins: what its status line says behind the number, instead of the usual
 * text. Borrowed until it has begun; printable ASCII, else it aborts. */
void http_response_reason(struct http_exchange *x, const char *text);

/* Whole response at once. */
void http_respond(struct http_exchange *x, int status, const struct http_header *headers, size_t n,
                  const void *body, size_t len);

/* {"code": status, "message": text} with Content-Type application/json. */
void http_respond_error(struct http_exchange *x, int status, const char *fmt, ...) PRINTF(3, 4);

/* In pieces: length is the body's length, or -1 for chunked. */
void http_response_begin(struct http_exchange *x, int status, const struct http_header *headers,
                         size_t n, int64_t length);

/* Sent as soon as the loop turns (each call is one chunk when chunked). 0, or 1 when the queue is
 * above write_high_bytes: go on after on_drain. */
int http_response_write(struct http_exchange *x, const void *data, size_t len);
void http_response_on_drain(struct http_exchange *x,
                            void (*cb)(struct http_exchange *x, void *data));
size_t http_response_queued(const struct http_exchange *x);

/* Ends the response; the exchange closes when its bytes are out. Fewer bytes than announced:
 * abort. */
void http_response_end(struct http_exchange *x);

/* Drops the connection without another byte (a peer must see an incomplete response). */
void http_exchange_abort(struct http_exchange *x);

/* Has a response been begun? */
bool http_response_begun(const struct http_exchange *x);
