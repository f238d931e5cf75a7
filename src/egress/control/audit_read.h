#pragma once
/* The reading of a question's lines, in slices, on a helper thread. */

#include "egress/audit/audit_store.h"
#include "egress/control/audit_filter.h"

#include <sys/types.h>

/* How far a question has been read, between two of its slices. The file stays open: it may get
 * another name meanwhile. */
struct audit_position {
    size_t source;
    uint32_t file; /* of the source, newest first; 0 has the newest lines */
    int fd;        /* -1: the file is not open yet */
    off_t at;      /* bytes before it were not read */
    size_t from;   /* lines[from..] are of this source */
    unsigned old;  /* lines in a row from before `since` */
};

/* Made by its owner, with filter, sources and place.fd -1; ended by audit_read_close. */
struct audit_reading {
    struct audit_filter filter;
    struct audit_log *sources; /* copies: names and numbers are read; owned */
    size_t n_sources;
    struct audit_position position;
    size_t slice_left; /* bytes */
    bool more;         /* of it, in another slice */
    char **lines;      /* that fit, as they were read: newest first of each source */
    size_t n_lines, capacity, bytes;
    volatile int canceled; /* set by the loop: the reading ends at its next block */
};

/* Reads AUDIT_SLICE_BYTES on at the most, below the directory dir_fd. 0, with more set; or
 * -errno. */
int audit_read_slice(struct audit_reading *r, int dir_fd);

/* Frees what it holds. Not while a slice is being read. */
void audit_read_close(struct audit_reading *r);
