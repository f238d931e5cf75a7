#include "base/envelope.h"

#include <endian.h>
#include <errno.h>
#include <string.h>

bool envelope_read_head(const char *bytes, size_t len, struct envelope *out)
{
    uint32_t be;

    if (len < ENVELOPE_HEAD_BYTES)
        return false;
    memcpy(&be, bytes + 1, sizeof(be));
    *out = (struct envelope){.flags = (uint8_t)bytes[0], .len = be32toh(be)};
    return true;
}

int envelope_peek(const struct buf *b, size_t max, struct envelope *out)
{
    *out = (struct envelope){0};
    if (!envelope_read_head(b->data, b->len, out))
        return 0;
    if (out->len > max)
        return -EMSGSIZE;
    if (b->len - ENVELOPE_HEAD_BYTES < out->len)
        return 0;
    out->data = b->data + ENVELOPE_HEAD_BYTES;
    return 1;
}

void envelope_drop(struct buf *b, const struct envelope *e)
{
    buf_consume(b, ENVELOPE_HEAD_BYTES + e->len);
}

void envelope_write_head(char out[static ENVELOPE_HEAD_BYTES], uint8_t flags, uint32_t len)
{
    uint32_t be = htobe32(len);

    out[0] = (char)flags;
    memcpy(out + 1, &be, sizeof(be));
}
