#pragma once
/* The chain of the audit log: what makes it, and what finds where it is broken. Files only. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AUDIT_HASH_SIZE 65 /* SHA-256 in hex */
#define AUDIT_FIRST     "0000000000000000000000000000000000000000000000000000000000000000"

/* Of a line without its newline. */
void audit_hash(const char *line, size_t n, char out[static AUDIT_HASH_SIZE]);

/* The hash of the last line of name, or of name.1 where name is empty; AUDIT_FIRST where there is none.
 * *cut: it has no newline yet; put one before the next line. 0 or -errno. */
int audit_last_hash(int dir_fd, const char *name, char out[static AUDIT_HASH_SIZE], bool *cut);

struct audit_check {
    uint64_t lines;
    uint64_t broken; /* number of the first line that does not fit the one before it, or 0 */
    char file[64];   /* in which */
    uint64_t cut;    /* lines that are no whole JSON object */
};

/* Follows the chain from the oldest file of name (name.N ... name.1, name) to the newest line. */
int audit_verify(int dir_fd, const char *name, uint32_t files, struct audit_check *out);
