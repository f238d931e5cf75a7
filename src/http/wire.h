#pragma once
/* The outgoing end of a connection, for client.c and relay.c: a socket that is connected or
 * connecting, a queue of bytes to write, one timer. Internal to src/http.
 *
 * The owner embeds it and frees itself in on_closed, which comes after wire_close, never inside a
 * call. Other callbacks come from the loop only, never from inside a wire_ function. */

#include "base/buf.h"
#include "http/layer.h"
#include "http/pass.h"

#include <stdbool.h>
#include <sys/uio.h>
#include <uv.h>

struct wire;

struct wire_ops {
    void (*on_connected)(struct wire *w);
    void (*on_readable)(struct wire *w); /* reading is wanted and wire_read has something */
    void (*on_drained)(struct wire *w);  /* all queued bytes are out */
    void (*on_timeout)(struct wire *w);
    void (*on_error)(struct wire *w, int err); /* it could not be opened; -errno */
    void (*on_closed)(struct wire *w);
    /* http_server_config's, of this wire's events. May be NULL. */
    bool (*enter)(struct wire *w);
    void (*leave)(struct wire *w);
};

struct wire {
    uv_poll_t poll;
    uv_timer_t timer;
    const struct wire_ops *ops;
    struct buf out;
    int fd, events, open_error;
    unsigned handles;
    bool connecting, reading, shut_requested, closed;
    bool write_broken; /* bytes to write are thrown away; received ones may still be read */
    void *layer;       /* wire_set_layer's, or NULL */
    const struct http_layer_ops *layer_ops;
    bool ended;  /* the layer has said so beside the last bytes */
    bool secret; /* bytes that wait are wiped when they are out, and when they never will be */
    /* The event that the layer waits for, where it differs from the one that the wire waits for. */
    bool read_wants_write, write_wants_read, shut_wants_write;
};

/* Takes fd over. Failure comes as on_error. If it is connected already, writing may begin at once
 * and on_connected does not come. */
void wire_open(struct wire *w, uv_loop_t *loop, int fd, bool connecting,
               const struct wire_ops *ops);

/* Right after wire_open of a connected socket: its bytes go through a layer that has begun,
 * which is the wire's as the socket is. ops->close is called by wire_close unless it keeps
 * the socket: then the layer is the caller's, too. wire_pass and splice are not for such a
 * wire. */
void wire_set_layer(struct wire *w, const struct http_layer_ops *ops, void *layer);

void wire_timeout(struct wire *w, uint64_t ms); /* from now; 0 stops it */
void wire_want_read(struct wire *w, bool on);

/* > 0, 0 at the end, -EAGAIN or another -errno. With a layer n is at least
 * HTTP_LAYER_READ_BYTES. */
ssize_t wire_read(struct wire *w, void *out, size_t n);

/* A write when nothing is queued (else nothing more is written at all): at once what the socket
 * takes. The rest stays in data's own memory, which the wire takes over, so that it cannot fail for
 * want of any. data is empty or unchanged after it, and the caller's. */
void wire_give(struct wire *w, struct buf *data);

/* Writes at once what the socket takes and queues the rest. */
void wire_write(struct wire *w, const void *data, size_t n);

/* The same of what the pipe holds; it is empty afterwards. */
void wire_pass(struct wire *w, struct pass *p);

/* Bytes that the peer has not acknowledged, ours and the kernel's: less than before is progress,
 * also while the socket's large buffer does not take more yet. */
size_t wire_unsent(int fd, const struct buf *out);

/* After what is queued: no more bytes from here. */
void wire_shut(struct wire *w);

/* No callback but on_closed after it. keep: the descriptor is returned, not closed. */
int wire_close(struct wire *w, bool keep);
