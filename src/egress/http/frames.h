#pragma once
/* Where the messages of a conversation end: WebSocket's (RFC 6455 section 5.2, from a server, or
 * masked) and those of gRPC and Connect (a flag, four bytes of length). No claim that a message
 * is well-formed: this only finds ends. Pure: no I/O, no memory but its own. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum frames_kind { FRAMES_NONE, FRAMES_WEBSOCKET, FRAMES_GRPC };

/* All zero but for kind: at the start. */
struct frames {
    enum frames_kind kind;
    unsigned char head[14];
    unsigned head_len;
    bool final; /* the frame that is read ends its message */
    bool open;  /* a message has begun in an earlier frame: control frames may stand in it */
    bool in_payload;
    uint64_t left; /* bytes of its payload */
};

/* Of the next n > 0 bytes, how many stand before the next place of interest (> 0). *ends: a message
 * ends there. */
size_t frames_next(struct frames *f, const char *data, size_t n, bool *ends);
