#pragma once
/* The chains of the audit log: their making, and the search for the place where one is broken. Each
 * line has the hash of the one before it ("prev", the last member) and its own number ("seq",
 * before that), so that a line which was changed, taken out or put in is found, and of those at the
 * beginning that made room for newer ones is known how many there were. Files only. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define AUDIT_HASH_SIZE 65 /* SHA-256 in hex */
#define AUDIT_FIRST     "0000000000000000000000000000000000000000000000000000000000000000"

/* Of a line without its newline. */
void audit_hash(const char *line, size_t n, char out[static AUDIT_HASH_SIZE]);

struct audit_last {
    char hash[AUDIT_HASH_SIZE];
    uint64_t seq; /* its number; 0: it has none */
    bool cut;     /* it has no newline yet: put one before the next line */
};

/* The last line of a file. 1; 0: there is none, and *out stays; -errno. */
int audit_last_of(int dir_fd, const char *name, struct audit_last *out);

struct audit_check {
    uint64_t lines;
    uint64_t broken;  /* number of the first line that does not fit the one before it, or 0 */
    char file[256];   /* in which */
    uint64_t cut;     /* lines that are no whole JSON object */
    uint64_t rotated; /* lines before the oldest that is kept, which made room for others */
};

/* A chain that is followed from its oldest line, file by file. */
struct audit_walk {
    struct audit_check *out;
    char prev[AUDIT_HASH_SIZE];
    uint64_t seq;           /* of the line before; 0: it has none */
    bool begun;             /* there was one; false: those before the next made room for others */
    volatile int *canceled; /* or NULL: ends when it is not 0 */
};

/* Opens a file of the log for audit_walk_on; *bytes: what it has now. 1; 0: there is none; -errno,
 * -EINVAL where it is no plain file. */
int audit_walk_open(int dir_fd, const char *name, FILE **out, size_t *bytes);

/* Adds the lines of f, from where it is, to what *w has found, until *most bytes were read and a
 * line has ended; the rest of them in *most. name: what f is called, for the line that does not
 * fit. 1: there may be more; 0: that was the end; -ECANCELED or -errno. */
int audit_walk_on(struct audit_walk *w, FILE *f, const char *name, size_t *most);

/* Of the whole file. A file that is not there counts as empty. 0, -ECANCELED or -errno. */
int audit_walk_file(struct audit_walk *w, int dir_fd, const char *name);
