#pragma once
/* Heads of HTTP/2: what a peer's header block says, as a head of HTTP/1.1 that the strict gate has
 * passed, so that policy, credentials and Host's check are those of HTTP/1.1; and back. Bounded;
 * nothing blocks. Source: RFC 9113 8. */

#include "base/arena.h"
#include "base/buf.h"
#include "http/message.h"

#include <nghttp2/nghttp2.h>

#define H2_FIELDS_MAX     (HTTP_MAX_HEADERS + 28) /* cookies may come in crumbs */
#define H2_LIST_BYTES_MAX (32u * 1024u)           /* as RFC 9113 10.5.1 counts: 32 more for each */
#define H2_LINES_MAX      192                     /* of a head that goes on: with credentials */

/* A header block as it was decoded. */
struct h2_fields {
    struct buf text; /* name NUL value NUL ... */
    struct {
        uint32_t name, value;
    } at[H2_FIELDS_MAX];
    size_t count, list_bytes;
    bool over; /* there were more than may be: the rest was left out */
};

void h2_fields_reset(struct h2_fields *f);
void h2_fields_free(struct h2_fields *f);

/* 0 or -ENOMEM; a field that is too much, or has a NUL in it, sets `over`. */
int h2_fields_add(struct h2_fields *f, const uint8_t *name, size_t name_len, const uint8_t *value,
                  size_t value_len);
const char *h2_fields_name(const struct h2_fields *f, size_t i);
const char *h2_fields_value(const struct h2_fields *f, size_t i);

/* The value of that name, or NULL. */
const char *h2_fields_get(const struct h2_fields *f, const char *name);

/* 100 to 599, or 0: it says none. */
int h2_fields_status(const struct h2_fields *f);

/* A request's head, in the arena: host is Host (or :authority), authority is :authority; a body
 * whose length is not said is HTTP_BODY_CHUNKED. ends: no body follows. CONNECT has the path "/".
 * 0, or the status to refuse it with and *why. */
int h2_head_request(const struct h2_fields *f, bool ends, struct arena *a, struct http_head **out,
                    const char **why);

/* The fields that are sent: pointers to texts that live until they are submitted. */
struct h2_lines {
    nghttp2_nv list[H2_LINES_MAX];
    size_t count;
    bool over;
};

/* secret: in no table of the compression. Names are lower case. */
void h2_lines_add(struct h2_lines *l, const char *name, const char *value, bool secret);

/* Is it one that concerns a connection and not the message? Names without case. */
bool h2_is_hop(const char *name);
