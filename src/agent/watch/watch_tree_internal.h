#pragma once
/* The functions of watch_tree.c that the other files of a watched tree use. */

#include "agent/watch/watch_dirs.h"

/* Without a place in the tree: nothing is told of it, and it is dropped soon. */
void watch_tree_put_in_limbo(struct watch_tree *t, struct dir *d, uint32_t cookie);

/* Forgets d. Its directory is gone, or out of the tree. Directories below it are normally forgotten
 * already; if events were lost they are left without a place. */
void watch_tree_free_dir(struct watch_tree *t, struct dir *d);

/* Tells the owner of name in d ("" for d itself). The owner may close the tree. */
void watch_tree_report(struct watch_tree *t, enum watch_type type, const struct dir *d,
                       const char *name);

/* error: of a directory that should be watched. The owner is told that it does not see all, or,
 * before the tree is ready, why not. 0: nothing. */
void watch_tree_fail(struct watch_tree *t, int error);

/* The idle callback while there is something to scan. */
void watch_tree_slice(uv_idle_t *idle);
