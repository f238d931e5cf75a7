#pragma once
/* Names of archives, and places in a tree that is not trusted: every directory on the way to a name
 * is opened beneath the root, through no link, and only the last name is used for a change. Below,
 * "path" is what place_clean made. */

#include "base/err.h"
#include "base/util.h"

#include <stdbool.h>
#include <sys/stat.h>

#define PLACE_PATH_MAX  3500u /* bytes: with what stands before it no call gets over PATH_MAX */
#define PLACE_DEPTH_MAX 128u  /* names in a path */
#define PLACE_NAME_MAX  255u

/* "./a//b/" becomes "a/b", the root "". ERR_INVALID: absolute, a "..", too long or too deep. */
enum err_code place_clean(const char *raw, char out[static PLACE_PATH_MAX + 1], struct err *e);

struct place {
    int dir_fd;       /* the parent, O_PATH */
    const char *name; /* the last part of the path that was given */
    unsigned made;    /* directories on the way that were not there */
};

#define PLACE_NONE ((struct place){.dir_fd = -1})

/* Opens the parent of path, which is not "". make: directories that are not there are made, 0755
 * and root's. ERR_NOT_FOUND without make; ERR_INVALID: one of them is a link or a file. */
enum err_code place_open(int root_fd, const char *path, bool make, struct place *out,
                         struct err *e);
void place_close(struct place *p);

/* The file of that name: 0, or -ENOENT. */
int place_stat(const struct place *p, struct stat *out);

/* Removes what is there, a directory with all in it. 0 (also where nothing is) or -errno. */
int place_remove(const struct place *p);

/* All that is in the directory p, which stays. */
int place_empty(const struct place *p);
