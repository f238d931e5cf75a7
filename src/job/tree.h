#pragma once
/* Whole trees: removing, measuring, copying. Paths are relative to the working directory unless
 * they begin with a slash; links are never followed. Blocking; every loop is bounded by what is
 * there. */

#include "base/util.h"

#include <stdbool.h>
#include <sys/types.h>

#define TREE_COPY_MAX_FILES 50000
#define TREE_COPY_MAX_BYTES (512ull * 1024 * 1024)

/* Removes path and all below it, on this file system only. Success where it is not there. */
int tree_remove(const char *path) WARN_UNUSED;

/* Bytes on disk of all below path. */
int tree_size(const char *path, uint64_t *out_bytes) WARN_UNUSED;

/* The lengths of all regular files below path, holes too; each name of a file with several counts
 * for its part. The walk ends when they are more than max. -errno: a part could not be read. */
int tree_length(const char *path, uint64_t max, uint64_t *out_bytes) WARN_UNUSED;

/* Copies what all users may read: directories, links, regular files with their modes, all owned by
 * root. Files that only their owner may read are left out, whatever they are: a host's secrets are
 * among them. A file that is not there, or that is removed meanwhile (by the host's package
 * manager), is left out too. -EFBIG past the maxima. */
int tree_copy(const char *from, const char *to) WARN_UNUSED;

/* The building blocks: a file with this text, a directory, a link. An existing one is replaced (a
 * directory: kept, owner and mode set). Modes are as given, whatever the umask. */
int tree_put_text(const char *path, mode_t mode, const char *text) WARN_UNUSED;
int tree_put_dir(const char *path, mode_t mode, uid_t uid, gid_t gid) WARN_UNUSED;
int tree_put_link(const char *path, const char *target) WARN_UNUSED;
