#pragma once
/* Decompresses a body as it comes, so that it can be searched: gzip and deflate (RFC 1950 to 1952).
 * It is pulled: input waits, compressed, until its output has been passed on, so that a small body
 * that becomes a large one costs time of its receiver, and no memory here. zlib's own memory is
 * UNZIP_STATE_BYTES. Pure: no I/O. */

#include "base/buf.h"

#include <stdbool.h>

enum unzip_coding {
    UNZIP_NONE,    /* not compressed */
    UNZIP_GZIP,    /* gzip, x-gzip */
    UNZIP_DEFLATE, /* with zlib's head, or without, as some servers have it */
    UNZIP_OTHER    /* several, or one that is not read here */
};

/* Of a member of Content-Encoding with its length; an empty one is none. */
enum unzip_coding unzip_coding_of(const char *name, size_t n);

struct unzip;

#define UNZIP_STATE_BYTES ((size_t)48 * 1024)

/* UNZIP_GZIP or UNZIP_DEFLATE; at most waiting_max bytes wait. NULL: memory is out. */
struct unzip *unzip_new(enum unzip_coding coding, size_t waiting_max);
void unzip_free(struct unzip *u);

/* The next n bytes. 0, -EMSGSIZE or -ENOMEM. */
int unzip_feed(struct unzip *u, const char *data, size_t n);

/* Appends at most UNZIP_STEP_BYTES to out. Their number; 0: more has to come in; -EBADMSG: it is
 * not what it says it is, or something stands after its end; -ENOMEM. */
#define UNZIP_STEP_BYTES ((size_t)32 * 1024)
int unzip_next(struct unzip *u, struct buf *out);

/* Bytes that wait, and the memory that they take. */
size_t unzip_waiting(const struct unzip *u);
size_t unzip_memory(const struct unzip *u);

/* Nothing waits, and it has come to its end (or to none at all). */
bool unzip_is_whole(const struct unzip *u);
