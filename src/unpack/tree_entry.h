#pragma once
/* Names of archives, and entries of a tree that is not trusted: every directory on the way to a
 * name is opened beneath the root, through no link, and only the last name is used for a change.
 * Below, "path" is what tree_entry_clean made. */

#include "base/err.h"
#include "base/util.h"

#include <stdbool.h>
#include <sys/stat.h>

/* Bytes: with what stands before it no call gets over PATH_MAX. */
#define TREE_ENTRY_PATH_MAX  3500u
#define TREE_ENTRY_DEPTH_MAX 128u /* names in a path */
#define TREE_ENTRY_NAME_MAX  255u

/* "./a//b/" becomes "a/b", the root "". ERR_INVALID: absolute, a "..", too long or too deep. */
enum err_code tree_entry_clean(const char *raw, char out[static TREE_ENTRY_PATH_MAX + 1],
                               struct err *e);

struct tree_entry {
    int dir_fd;       /* the parent, O_PATH */
    const char *name; /* the last part of the path that was given */
    unsigned made;    /* directories on the way that were not there */
};

#define TREE_ENTRY_NONE ((struct tree_entry){.dir_fd = -1})

/* Opens the parent of path, which is not "". make: directories that are not there are made, 0755
 * and root's. ERR_NOT_FOUND without make; ERR_INVALID: one of them is a link or a file. */
enum err_code tree_entry_open(int root_fd, const char *path, bool make, struct tree_entry *out,
                              struct err *e);
void tree_entry_close(struct tree_entry *p);

/* The file of that name: 0, or -ENOENT. */
int tree_entry_stat(const struct tree_entry *p, struct stat *out);

/* Removes what is there, a directory with all in it. 0 (also where nothing is) or -errno. */
int tree_entry_remove(const struct tree_entry *p);

/* All that is in the directory p, which stays. */
int tree_entry_empty(const struct tree_entry *p);
