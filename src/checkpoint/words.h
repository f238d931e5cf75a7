#pragma once
/* The words that CRIU is started with. */

#include "base/util.h"

#include <stdbool.h>

#define WORDS_MAX 256 /* a sandbox has some fifty mounts */
#define WORD_SIZE 128
#define WORD_PATH 64

struct words {
    char *argv[WORDS_MAX + 1];
    char text[WORDS_MAX][WORD_SIZE];
    size_t n;
};

/* 0; -E2BIG, -ENAMETOOLONG: nothing was added. */
PRINTF(2, 3) int words_add(struct words *w, const char *format, ...);
int words_add_all(struct words *w, const char *const *words, size_t n) WARN_UNUSED;

/* Reads a line of mountinfo: whether it is of a mount below root ("" for /) that CRIU does not make
 * itself, and at which path it is there. */
bool words_mount(const char *line, const char *root, char path[static WORD_PATH]);

/* For each such mount in the file mountinfo: it is external, and found at the same path below
 * root. 0 or -errno. */
int words_add_mounts(struct words *w, const char *mountinfo, const char *root) WARN_UNUSED;
