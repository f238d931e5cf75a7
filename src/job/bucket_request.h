#pragma once
/* A request to the operator's S3 server, by curl in walls (archive_walls.h), which signs it, and
 * the hash of a file, by sha256sum in the same. They block. */

#include "job/run.h"

#include <stdint.h>

#define BUCKET_HASH_CHARS 64

enum bucket_method { BUCKET_PUT, BUCKET_GET, BUCKET_DELETE };

struct bucket_request {
    enum bucket_method method;
    const char *key;
    int layer_fd;       /* put: whose archive is sent */
    const char *sha256; /* put: of that, in hex */
    int to_fd;          /* get: an empty file, which gets the object */
    uint64_t bytes;     /* get: at most */
};

struct bucket_why {
    char text[RUN_LINE_MAX + 64];
};

/* Tried again, some times, where that may help. 0 or -errno and *why, a sentence without its end:
 * -ENODATA: there is no such object; -EACCES: the bucket refuses; -EFBIG: the object is longer;
 * -EOPNOTSUPP: there is no curl, or no bucket is configured; -EIO. */
int bucket_request(const struct bucket_request *r, struct bucket_why *why);

/* SHA-256 in hex of that name in a layer. 0 or -EIO. */
int bucket_hash(int layer_fd, const char *name, char out[static BUCKET_HASH_CHARS + 1]);
