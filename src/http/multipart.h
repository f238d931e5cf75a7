#pragma once
/* multipart/form-data, streaming (RFC 7578, RFC 2046). Bounded: a part's head is at most 8 KiB, a
 * boundary at most 70 characters, max_parts parts. Never holds a part's contents. */

#include "base/buf.h"

#include <stdbool.h>

struct multipart_part {
    const char *name;         /* "" when absent; unescaped */
    const char *filename;     /* NULL when absent; raw UTF-8, filename* decoded when given */
    const char *content_type; /* "" when absent */
};

struct multipart_callbacks {
    /* Each returns 0, or -errno, which multipart_feed returns. */
    int (*on_part)(void *arg, const struct multipart_part *part);
    int (*on_data)(void *arg, const char *data, size_t len);
    int (*on_part_end)(void *arg);
};

struct multipart;

/* content_type is the request's header. -EINVAL when it is not multipart/form-data with a
 * boundary. */
int multipart_new(const char *content_type, size_t max_parts, const struct multipart_callbacks *cb,
                  void *arg, struct multipart **out);

/* 0; -EINVAL malformed; -EMSGSIZE over a limit; or what a callback returned. After a failure only
 * multipart_free may follow. */
int multipart_feed(struct multipart *m, const char *data, size_t len);

/* Was the closing boundary seen? */
bool multipart_complete(const struct multipart *m);
void multipart_free(struct multipart *m);
