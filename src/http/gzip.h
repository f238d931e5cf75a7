#pragma once
/* gzip as a content coding, streaming, over zlib. Bounded: a compressed body of a kilobyte may
 * stand for gigabytes, so inflating has a maximum given by the caller, and both directions hand out
 * pieces of at most GZIP_PIECE_BYTES: a sink that is full answers 1, and is called again by the
 * next gzip_feed, with nothing in between held but the input that was not used yet. Nothing
 * blocks. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GZIP_PIECE_BYTES (32u * 1024u)

struct gzip;

/* Takes one piece of output. 0 to go on, 1 when full (the piece was taken; stop), or -errno. */
typedef int (*gzip_sink)(void *arg, const void *data, size_t len);

/* max: total bytes that may come out, UINT64_MAX for no limit (a sink with back-pressure). */
int gzip_inflate_new(uint64_t max, gzip_sink sink, void *arg, struct gzip **out);

/* level 1 to 9; 1 is right for what is made once. */
int gzip_deflate_new(int level, gzip_sink sink, void *arg, struct gzip **out);

/* Feeds n bytes. *used says how many were taken, all of them unless 1 is returned: then feed the
 * rest again when the sink has room. Inflating: -EBADMSG when it is not gzip (several members in a
 * row are); -EMSGSIZE above max. Else what the sink returned. */
int gzip_feed(struct gzip *z, const void *data, size_t n, size_t *used);

/* After the last input. Deflating: writes the end; 1 when the sink was full: call again. Inflating:
 * 0 when the stream was complete, 1 as above, -EBADMSG when it was cut. */
int gzip_finish(struct gzip *z);

void gzip_free(struct gzip *z);

/* Does this Accept-Encoding (NULL: absent) allow gzip and prefer it to nothing? RFC 9110 12.5.3. */
bool gzip_accepted(const char *accept_encoding);

/* Does it forbid identity, so that a client that does not take gzip must get 406? */
bool gzip_identity_refused(const char *accept_encoding);
