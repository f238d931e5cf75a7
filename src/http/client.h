#pragma once
/* An HTTP/1.1 request over a socket that is connected or connecting, on a libuv loop: cayd's own
 * requests to an agent. An answer is collected whole, or given on as it comes (on_data); a client's
 * own stream goes through relay.h instead. */

#include "base/err.h"
#include "http/layer.h"
#include "http/message.h"

#include <uv.h>

struct http_client; /* one call; valid until its done is called */

struct http_client_request {
    int fd; /* owned by the call, also on failure */
    bool connecting;
    /* The layer that fd's bytes pass, begun (TLS after its handshake), or NULL. Owned as fd is;
     * such a connection is not offered to done. */
    void *layer;
    const struct http_layer_ops *layer_ops;
    const char *method, *target, *host;
    const struct http_header *headers;
    size_t header_count;
    const void *body;
    size_t body_len;
    size_t max_response_bytes;
    uint64_t timeout_ms; /* for the whole */
    /* May be NULL. The body of a 2xx answer in pieces instead of collected: max_response_bytes does
     * not count it, and done's body is empty. False ends the call as a malformed answer does. */
    bool (*on_data)(void *arg, const char *data, size_t len);
    /* May be NULL: the answer's head, before anything of its body. */
    void (*on_head)(void *arg, const struct http_head *head);
    /* The body is not here yet: it comes by http_client_write, in chunks, up to
     * http_client_end_body. */
    bool body_streams;
    void (*on_drain)(void *arg); /* may be NULL: all that was written has gone */
    /* Exactly once. head and body are valid during the call; head is NULL with why set. fd is the
     * connection if it can be used again and the callback may take it (it sets *fd to -1), else it
     * is closed after the call. */
    void (*done)(void *arg, const struct http_head *head, const char *body, size_t len,
                 const struct err *why, int *fd);
    void *arg;
};

/* 0; -ENOMEM: nothing was sent, done is not called, and fd is closed. */
int http_client_send(uv_loop_t *loop, const struct http_client_request *r) WARN_UNUSED;

/* The same, with a hold on the call: *out, before anything is called. */
int http_client_start(uv_loop_t *loop, const struct http_client_request *r,
                      struct http_client **out) WARN_UNUSED;

/* Of a body that streams. 0, or 1 when much of it waits: go on after on_drain. */
int http_client_write(struct http_client *c, const void *data, size_t len);
void http_client_end_body(struct http_client *c);

/* No more of the answer is read, but for what has been (one read's worth), until it is resumed. */
void http_client_pause(struct http_client *c);
void http_client_resume(struct http_client *c);

/* From now, for the rest of the call; 0: as long as it takes. */
void http_client_timeout(struct http_client *c, uint64_t ms);

/* Ends the call: done is called with ERR_CANCELED, from inside. */
void http_client_cancel(struct http_client *c);
