#pragma once
/* A request to the operator's S3 server, by curl in walls (archive_walls.h), which signs it, and
 * the hash of a file, by sha256sum in the same. They block. */

#include "job/run.h"

#include <stdint.h>

#define BUCKET_HASH_CHARS 64

enum bucket_method { BUCKET_PUT, BUCKET_GET, BUCKET_GET_END, BUCKET_DELETE };

struct bucket_request {
    enum bucket_method method;
    const char *key;
    int layer_fd;       /* put: whose archive is sent */
    const char *sha256; /* put: of that, in hex */
    int to_fd;          /* get: an empty file, which gets the object, or its end */
    uint64_t bytes;     /* put: of that; get: at most; of its end: from the last on */
};

struct bucket_why {
    char text[RUN_LINE_MAX + 64];
};

/* Tried again, some times, where that may help, within a time for all of them. 0 or -errno and
 * *why, a sentence without its end: -ENODATA: there is no such object; -EACCES: the bucket refuses;
 * -EFBIG: the object is longer; -EPROTO: its answer to a PUT or DELETE is longer than one is;
 * -EOPNOTSUPP: there is no curl, or no bucket is configured; -EIO. */
int bucket_request(const struct bucket_request *r, struct bucket_why *why);

/* SHA-256 in hex of a file. 0 or -errno. */
int bucket_hash(int fd, char out[static BUCKET_HASH_CHARS + 1]);
