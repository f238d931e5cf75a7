#pragma once
/* Finds secrets in a stream and writes over them, wherever the stream is cut into pieces: what could
 * be the beginning of one is kept back until more comes or the message ends. Lengths do not change, so
 * that no framing has to be made anew: what is put there is `[redacted]`, cut or followed by stars.
 *
 * There are two streams in one: contents, which are searched as if nothing stood between them, and
 * framing (chunk lines, trailers), likewise. What is kept back is bounded by REDACT_WINDOW_MAX. Pure: no
 * I/O. All secrets are searched for at once: see automaton.h for what a byte costs,
 * and finder.h for how its characters may be escaped. */

#include "base/buf.h"

#include <stdbool.h>

#define REDACT_SECRETS_MAX 1024u
#define REDACT_SECRET_MAX  32768u          /* bytes of one */
#define REDACT_TOTAL_MAX   (512u * 1024u)  /* of all */
#define REDACT_WINDOW_MAX  (1024u * 1024u) /* contents that may be a secret, and framing in it */

struct redact;

struct redact *redact_new(void);
void redact_free(struct redact *r);

/* Another stream that is searched for the same secrets, of which there is one copy. NULL:
 * memory is out. */
struct redact *redact_share(struct redact *r);

/* Copies it; the same one twice is one. To a shared one: what was shared is copied first. Before the first redact_feed. 0, -EMSGSIZE or -ENOMEM. */
int redact_add(struct redact *r, const char *secret, size_t n);
size_t redact_count(const struct redact *r);

/* So many characters that begin a secret are not kept back (those after them are still written over): for
 * conversations in which a byte that is kept back would be waited for. 0 at first. */
void redact_set_lenient(struct redact *r, size_t n);

/* The next n bytes. 0, -EMSGSIZE (nothing may pass any more) or -ENOMEM. */
int redact_feed(struct redact *r, const char *data, size_t n, bool contents);

/* Appends to out what may pass. end: the message has ended, all of it may. 0 or -errno. */
int redact_take(struct redact *r, bool end, struct buf *out);
