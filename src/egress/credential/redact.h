#pragma once
/* Finds secrets in a stream and writes over them, wherever the stream is cut into pieces: as many
 * bytes as the longest of them may take are kept back until more comes or the message ends. Lengths
 * do not change, so that no framing has to be made anew: the text put there is `[redacted]`, cut or
 * followed by stars.
 *
 * How much is kept back, and when it passes, depends on the secrets' lengths and on the stream's
 * framing and lines, and never on whether a byte matches. Otherwise the reader would learn from a
 * delay, or from the size of a piece, that a guess which a server echoes is the beginning of a
 * secret, and could find the secret one character after the other.
 *
 * There are streams in one: contents, which are searched as if nothing stood between them, and
 * framing (chunk lines, trailers), likewise; in conversations also contents with what frames them.
 * The bytes that are kept back are at most REDACT_WINDOW_MAX. Where no secret has a line feed in
 * it, everything up to the last one passes at once: no secret goes on behind it. Pure: no I/O. All
 * secrets are searched for at once: see automaton.h for what a byte costs, and finder.h for how its
 * characters may be escaped. */

#include "base/buf.h"

#include <stdbool.h>

#define REDACT_SECRETS_MAX 1024u
#define REDACT_SECRET_MAX  32768u         /* bytes of one */
#define REDACT_TOTAL_MAX   (512u * 1024u) /* of all */
/* Of a body whose length is not known: kept bytes pass after so much silence. */
#define REDACT_BODY_PAUSE_MS   200u
#define REDACT_TUNNEL_PAUSE_MS 20u   /* likewise after an upgrade to what is not read here */
#define REDACT_STALL_MS        2000u /* either, where its reader was waited for before */
/* contents that are kept back; less than an HTTP/2 window */
#define REDACT_KEPT_MAX   (128u * 1024u)
#define REDACT_WINDOW_MAX (1024u * 1024u) /* contents that are kept back, and framing in it */

struct redact;

struct redact *redact_new(void);
void redact_free(struct redact *r);

/* Another stream that is searched for the same secrets, of which there is one copy. NULL:
 * memory is out. */
struct redact *redact_share(struct redact *r);

/* Copies it; the same one twice is one. To a shared one: the shared part is copied first. Before
 * the first redact_feed. 0, -EMSGSIZE or -ENOMEM. */
int redact_add(struct redact *r, const char *secret, size_t n);
size_t redact_count(const struct redact *r);

/* Bytes of all secrets; 16 bytes of memory for each, as a rule. */
size_t redact_total(const struct redact *r);

/* The bytes that were fed so far are not kept back any longer: a message has ended there, or the
 * stream pauses. The search goes on: of a secret that has begun before, the rest is still written
 * over. */
void redact_release(struct redact *r);

/* Is anything kept back? */
bool redact_holds(const struct redact *r);

/* The memory that what is kept back takes; and makes that no longer than it has to be, where memory
 * is there for it. */
size_t redact_memory(const struct redact *r);
void redact_tighten(struct redact *r);

/* How many bytes of contents are kept back, where there are as many. */
size_t redact_kept(const struct redact *r);

/* The next n bytes. 0, -EMSGSIZE (nothing may pass any more) or -ENOMEM. */
int redact_feed(struct redact *r, const char *data, size_t n, bool contents);

/* The same of a conversation (frames.h): contents, and between them what its messages are framed
 * with, control frames with all that they have. A secret is found in the contents as if nothing
 * stood between them, and in all of it as it stands. Nothing is released by lines. */
int redact_feed_message(struct redact *r, const char *data, size_t n, bool head);

/* Appends to out what may pass. end: the message has ended, all of it may. 0 or -errno. */
int redact_take(struct redact *r, bool end, struct buf *out);
