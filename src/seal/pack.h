#pragma once
/* The files of one directory as a stream, and back: the sealed form of a memory image.
 *
 * Regular files with plain names alone, without their modes and owners. Each is a struct
 * pack_head and its bytes; a head without a name ends the stream and tells how many there were.
 * The directory is that of a program that had a tenant's memory before it, so its names and
 * files are looked at like a stranger's: no link is followed, nothing but a regular file is
 * read, and all of it is counted. */

#include "seal/seal.h"

#define PACK_FILES_MAX 65536u /* six for each process, and one for each thread */
#define PACK_NAME_MAX  63u

struct pack_head {
    uint64_t size;                /* of the file; in the last head: how many files there were */
    char name[PACK_NAME_MAX + 1]; /* padded with NUL; empty: the end */
};

/* Why it could not be done: a sentence without the path, which is the caller's. */
struct pack_why {
    char text[160];
};

/* Writes all files of dir_fd; the caller has begun s, and ends it. 0 or -errno with *why. */
int pack_write(struct seal *s, int dir_fd, struct pack_why *why);

/* The reverse: makes them in dir_fd, which is empty, with mode 0600. On failure those that were
 * made are removed again. Nothing may use them before this answers 0. */
int pack_read(struct seal *s, int dir_fd, struct pack_why *why);

/* [A-Za-z0-9_-] and dots within, 1 to PACK_NAME_MAX bytes. */
bool pack_is_name(const char *name);
