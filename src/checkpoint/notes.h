#pragma once
/* Facts that a restore needs and that no file of CRIU's has in one place: a small file of the
 * image. */

#include "checkpoint/checkpoint.h"
#include "checkpoint/words.h"

#include <time.h>

#define NOTES_FILE "notes"

struct notes {
    char program[WORD_SIZE]; /* CRIU's name for the program of PID 1 */
    struct timespec monotonic, boottime;
};

/* Fills in the clocks, as they are now. 0 or -errno. */
int notes_read_clocks(struct notes *n) WARN_UNUSED;

/* 0 or -errno. */
int notes_write(int dir_fd, const struct notes *n) WARN_UNUSED;

/* 0; -errno; -EINVAL: it is not of this form. */
int notes_read(int dir_fd, struct notes *out) WARN_UNUSED;
