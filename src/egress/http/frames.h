#pragma once
/* The messages of a conversation, as a server sends it: WebSocket's (RFC 6455 section 5.2) and
 * those of gRPC and Connect (flags, four bytes of length). Finds their heads, contents and ends,
 * and what would hide the contents. Pure: no I/O, no memory but its own. */

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
    bool in_payload, control, hidden;
    uint64_t left; /* bytes of its payload */
};

struct frames_piece {
    size_t n;     /* > 0 */
    bool ends;    /* a message ends behind it */
    bool is_head; /* or a control frame's payload: no contents of a message */
};

/* The first piece of the next n > 0 bytes. False: the next frame cannot be read, and must not pass:
 * masked, as no server may (section 5.1), with a reserved bit, which says that it is compressed, or
 * of gRPC and Connect compressed. */
bool frames_next(struct frames *f, const char *data, size_t n, struct frames_piece *out);

/* The kind of a body of that type; NULL: none is said. gRPC-Web's as text is no frames. */
enum frames_kind frames_kind_of(const char *content_type);

struct redact;

/* Feeds n bytes of the conversation; what it releases are whole messages. 0 or -errno: -EBADMSG
 * where they cannot be read. */
int frames_redact(struct frames *f, struct redact *r, const char *data, size_t n);
