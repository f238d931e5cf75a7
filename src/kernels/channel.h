#pragma once
/* A ZeroMQ socket on a libuv loop. ZeroMQ's descriptor is edge-triggered (zmq_getsockopt(3),
 * ZMQ_FD): after each event, and after each send, the socket itself is asked what there is, and
 * what one turn of the loop does not take is taken in the next one (an idle handle keeps it awake).
 * The memory that a peer can make this hold is bounded by WIRE_MESSAGE_MAX for one frame; messages
 * that wait in ZeroMQ's queue are taken each turn, so that a kernel's output is never dropped at
 * its side. */

#include "kernels/wire.h"

#include <uv.h>

struct channel;

/* The frames are valid during the call. The channel may be closed in it. */
typedef void (*channel_message_fn)(void *arg, const struct wire_frame *frames, size_t n);

/* type: ZMQ_DEALER or ZMQ_SUB (which gets everything). Connects to endpoint (tcp://...). 0 or
 * -errno. */
int channel_open(uv_loop_t *loop, void *zmq, int type, const char *endpoint, channel_message_fn fn,
                 void *arg, struct channel **out);

/* The frames are copied. 0, or -errno: -EAGAIN when the kernel takes nothing. */
int channel_send(struct channel *c, const struct wire_frame *frames, size_t n);

/* No call comes after it. Freed when the loop has turned. NULL is none. */
void channel_close(struct channel *c);
