#include "egress/http/frames.h"

#include "base/util.h"
#include "egress/credential/redact.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

#define GRPC_HEAD 5u

static uint64_t big_endian(const unsigned char *at, unsigned n)
{
    uint64_t value = 0;

    for (unsigned i = 0; i < n; i++)
        value = value << 8 | at[i];
    return value;
}

/* Bytes of the length after the first two. */
static unsigned length_bytes(unsigned char second)
{
    unsigned length = second & 0x7f;

    return length == 127 ? 8 : length == 126 ? 2 : 0;
}

/* Bytes of the whole head, as far as it is known from those that are there. */
static unsigned head_bytes(const struct frames *f)
{
    if (f->kind == FRAMES_GRPC)
        return GRPC_HEAD;
    if (f->head_len < 2)
        return 2;
    return 2 + length_bytes(f->head[1]); /* a mask is not read: it ends the conversation */
}

/* Bits of flags that no message has which can be read: compressed is 1; Connect's end of a stream
 * has 2, gRPC-Web's trailers have 0x80. */
#define GRPC_HIDDEN 0x7du
#define RSV         0x70u
#define MASKED      0x80u

static void read_head(struct frames *f)
{
    unsigned bytes;

    f->head_len = 0;
    f->in_payload = true;
    if (f->kind == FRAMES_GRPC) {
        f->hidden = f->head[0] & GRPC_HIDDEN;
        f->final = true;
        f->left = big_endian(f->head + 1, 4);
        return;
    }
    bytes = length_bytes(f->head[1]);
    f->hidden = (f->head[0] & RSV) || (f->head[1] & MASKED);
    f->control = f->head[0] & 0x08;
    if (!f->control)
        f->open = !(f->head[0] & 0x80);
    f->final = !f->open;
    f->left = bytes ? big_endian(f->head + 2, bytes) : f->head[1] & 0x7f;
}

/* Takes the available bytes of the head. */
static size_t take_head(struct frames *f, const char *data, size_t n)
{
    size_t i = 0;

    while (i < n && f->head_len < head_bytes(f))
        f->head[f->head_len++] = (unsigned char)data[i++];
    if (f->head_len == head_bytes(f))
        read_head(f);
    return i;
}

bool frames_next(struct frames *f, const char *data, size_t n, struct frames_piece *out)
{
    *out = (struct frames_piece){.n = n};
    if (f->kind == FRAMES_NONE)
        return true;
    if (f->in_payload) {
        out->n = (size_t)MIN((uint64_t)n, f->left);
        out->is_head = f->control;
        f->left -= out->n;
    } else {
        out->n = take_head(f, data, n);
        out->is_head = true;
    }
    if (f->in_payload && f->left == 0) {
        f->in_payload = false;
        out->ends = f->final;
    }
    return !f->hidden;
}

enum frames_kind frames_kind_of(const char *content_type)
{
    static const char grpc[] = "application/grpc", text[] = "application/grpc-web-text",
                      connect[] = "application/connect+";

    if (!content_type || strncasecmp(content_type, text, sizeof(text) - 1) == 0)
        return FRAMES_NONE;
    return strncasecmp(content_type, grpc, sizeof(grpc) - 1) == 0 ||
                   strncasecmp(content_type, connect, sizeof(connect) - 1) == 0
               ? FRAMES_GRPC
               : FRAMES_NONE;
}

int frames_redact(struct frames *f, struct redact *r, const char *data, size_t n)
{
    int rc = 0;

    if (f->kind == FRAMES_NONE)
        return redact_feed(r, data, n, true);
    for (size_t at = 0; at < n && rc == 0;) {
        struct frames_piece piece;

        if (!frames_next(f, data + at, n - at, &piece))
            return -EBADMSG;
        rc = redact_feed_message(r, data + at, piece.n, piece.is_head);
        if (piece.ends)
            redact_release(r);
        at += piece.n;
    }
    return rc;
}
