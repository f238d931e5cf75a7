#pragma once
/* The frames of a Connect stream: flags u8, length u32 big-endian, that many bytes of a message.
 * Each program that reads or writes one has it from here; what the message is (JSON) is the
 * caller's. Source: connectrpc.com/docs/protocol, "Streaming RPCs". Pure. */

#include "base/buf.h"

#include <stdbool.h>

#define ENVELOPE_HEAD_BYTES 5u
#define ENVELOPE_COMPRESSED 0x01
#define ENVELOPE_END        0x02 /* the last one of an answer: {} or {"error": ...} */

struct envelope {
    uint8_t flags;
    uint32_t len;     /* of the message */
    const char *data; /* the message, within the buffer; NULL: it is not whole yet */
};

/* Looks at the front of b. 1: an envelope is whole there; it stays until envelope_drop. 0: not yet;
 * flags and length are set as soon as its head has come. -EMSGSIZE: it announces more than max
 * bytes, which no buffer will hold. */
int envelope_peek(const struct buf *b, size_t max, struct envelope *out) WARN_UNUSED;

/* Drops the whole envelope that envelope_peek found: its data are gone. */
void envelope_drop(struct buf *b, const struct envelope *e);

/* Flags and length of the one envelope that a request consists of. false: these len bytes are not
 * even a head. */
bool envelope_read_head(const char *bytes, size_t len, struct envelope *out) WARN_UNUSED;

void envelope_write_head(char out[static ENVELOPE_HEAD_BYTES], uint8_t flags, uint32_t len);
