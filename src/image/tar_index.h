#pragma once
/* Where the files of a tar archive are: just enough of ustar, pax and GNU headers to find the
 * members of a docker archive by name. Nothing is extracted, links are not followed, and a member
 * whose name is not one of ours is only skipped. Pure but for reads of the descriptor. */

#include "base/err.h"
#include "base/util.h"

#include <stdbool.h>
#include <sys/types.h>

#define TAR_INDEX_BLOCK       512u
#define TAR_INDEX_MEMBERS_MAX 4096u
#define TAR_INDEX_NAME_SIZE   256u
#define TAR_INDEX_PAX_MAX     (64u * 1024) /* bytes of one pax header */

struct tar_index_member {
    char name[TAR_INDEX_NAME_SIZE]; /* "" when it is longer */
    char type;                      /* '0' a file; others as in POSIX pax(1), ustar */
    uint64_t size;
};

/* Reads a header. 1: a block of zeros, the end; 0; -EBADMSG: not a header. */
int tar_index_header(const uint8_t block[static TAR_INDEX_BLOCK], struct tar_index_member *out);

/* path= and size= of a pax header's records replace what out has. 0 or -EBADMSG. */
int tar_index_pax(const char *text, size_t len, struct tar_index_member *out);

/* The regular file of that name: its place and length. ERR_NOT_FOUND: there is none; ERR_INVALID:
 * no archive, or a damaged one. `what`: the archive's name in errors. */
enum err_code tar_index_find(int fd, const char *what, const char *name, off_t *offset,
                             uint64_t *size, struct err *e);
