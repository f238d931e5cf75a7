#pragma once
/* Walks a directory tree in lexical order and writes its entries as JSON, in bounded steps.
 *
 * The order is that of Go's filepath.WalkDir: each directory's names by bytes, a directory before
 * what is in it; links are not entered. Names that vanish meanwhile are left out. A walk holds the
 * names of the directories on its current path, nothing else; no recursion, no open directory
 * between steps. Belongs on the file worker. */

#include "agent/common/user.h"

#define FS_LIST_ENTRIES_MAX    100000u
#define FS_LIST_NAME_BYTES_MAX (8u * 1024u * 1024u)

struct fs_lister;

/* Lists dir (clean, absolute, links resolved); entries are shown below `shown`. depth 1 is the
 * directory's own entries. With count_only nothing is written: it finds out whether the whole
 * answer keeps within the maxima. 0 or -ENOMEM. */
int fs_lister_new(const char *dir, const char *shown, uint32_t depth, bool count_only,
                  struct fs_lister **out) WARN_UNUSED;

/* Appends entries, comma-separated, until about piece_bytes more are in out or some milliseconds
 * passed. 1: there is more; 0: all; -EMSGSIZE: over FS_LIST_ENTRIES_MAX or FS_LIST_NAME_BYTES_MAX;
 * -ENAMETOOLONG: a path below is longer than PATH_MAX; -errno. */
int fs_lister_step(struct fs_lister *l, size_t piece_bytes, struct buf *out) WARN_UNUSED;

/* Before the first step: entries are written by fn, which appends one and returns 0 or -errno
 * (-ENOENT: it has vanished; out is as before). */
typedef int (*fs_lister_entry_fn)(struct buf *out, const char *path, const char *shown);
void fs_lister_write_by(struct fs_lister *l, fs_lister_entry_fn fn);

/* Before the first step: fewer entries than FS_LIST_ENTRIES_MAX. */
void fs_lister_limit(struct fs_lister *l, size_t entries);

void fs_lister_free(struct fs_lister *l);
