#pragma once
/* Jupyter's wire protocol 5.3 over ZeroMQ: one message is frames, [routing ids...] "<IDS|MSG>"
 * signature header parent_header metadata content [buffers...], the signature being the lower-case
 * hex of HMAC-SHA256 over the four JSON texts. Source: jupyter_client docs, "Messaging in Jupyter",
 * section "The wire protocol".
 *
 * A kernel is not trusted: user code can write anything into its sockets. A message without a right
 * signature, or whose header or parent is not JSON of the expected type, is refused as a whole; one
 * whose content cannot be read is told of, since its client would otherwise miss output without a
 * word. Nothing here blocks or keeps state. */

#include "base/util.h"

#include <jansson.h>
#include <stdbool.h>

#define WIRE_KEY_LEN     64                    /* hex digits, as jupyter_client makes them */
#define WIRE_FRAMES_MAX  64                    /* of one message */
#define WIRE_MESSAGE_MAX (48u * 1024u * 1024u) /* bytes of one frame that is read */
/* Of one that is received: beyond, ZeroMQ cuts the connection, and what else comes meanwhile is
 * lost. */
#define WIRE_FRAME_MAX     (256u * 1024u * 1024u)
#define WIRE_SIGNATURE_LEN 64
#define WIRE_ID_LEN        32 /* characters of the ids of messages that are sent */
#define WIRE_SENT_FRAMES   6

struct wire_frame {
    const void *data;
    size_t len;
};

/* A message that was received. The strings are borrowed from the objects. */
struct wire_message {
    const char *type;
    const char *parent_id; /* "" where it answers nothing */
    const char *date;      /* ISO 8601, or "" */
    const char *unread;    /* why content, then an empty object, could not be read, or NULL */
    json_t *header, *parent, *content;
};

/* 0; -EBADMSG: not a message of this protocol; -EACCES: signed with another key; -ENOMEM. On 0 the
 * caller owns *out until wire_free. Buffers after the content are ignored. */
int wire_parse(const char *key, const struct wire_frame *frames, size_t n,
               struct wire_message *out);
void wire_free(struct wire_message *m);

/* A message to send: its frames after the routing ids, in order. */
struct wire_sent {
    char signature[WIRE_SIGNATURE_LEN + 1];
    char *header, *content; /* allocated */
    struct wire_frame frames[WIRE_SENT_FRAMES];
};

/* content stays the caller's. id has WIRE_ID_LEN characters. 0 or -ENOMEM; on 0 wire_sent_free
 * follows. */
int wire_build(const char *key, const char *session, const char *id, const char *type,
               const json_t *content, struct wire_sent *out);
void wire_sent_free(struct wire_sent *s);
