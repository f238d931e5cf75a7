#include "egress/http/frames.h"

#include "base/util.h"

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
    return 2 + length_bytes(f->head[1]) + (f->head[1] & 0x80 ? 4 : 0);
}

static void read_head(struct frames *f)
{
    unsigned bytes;

    f->head_len = 0;
    f->in_payload = true;
    if (f->kind == FRAMES_GRPC) {
        f->final = true;
        f->left = big_endian(f->head + 1, 4);
        return;
    }
    bytes = length_bytes(f->head[1]);
    if (!(f->head[0] & 0x08)) /* no control frame */
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

size_t frames_next(struct frames *f, const char *data, size_t n, bool *ends)
{
    size_t used;

    *ends = false;
    if (f->kind == FRAMES_NONE)
        return n;
    if (f->in_payload) {
        used = (size_t)MIN((uint64_t)n, f->left);
        f->left -= used;
    } else {
        used = take_head(f, data, n);
    }
    if (f->in_payload && f->left == 0) {
        f->in_payload = false;
        *ends = f->final;
    }
    return used;
}
