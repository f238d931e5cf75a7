#pragma once
/* The directories of the host that the operator gives to sandboxes: opened once, at privd's start,
 * and mounted read-only in its own mount namespace, from where each start of a sandbox gets a
 * detached copy (runtime/process_trees.c). No later name of the host's is looked up for them.
 *
 * A directory that cannot be given is logged with the reason and left out: sandboxes that ask for
 * it are refused, all others are made. Part of cay-privd's program: it needs its mount
 * namespace. */

#include "base/host_dir.h"
#include "base/util.h"

#define HOST_DIRS_MOUNT ".host-dirs" /* a mount of all of them, below privd's root */

/* Of each a detached mount, or -1, into trees. In a mount namespace of privd's own that has the
 * host's tree still. state_dir, run_dir: privd's, of which (and of what is beside the first)
 * nothing is given. */
void host_dirs_take(const struct host_dir dirs[static HOST_DIRS_MAX], const char *state_dir,
                    const char *run_dir, int trees[static HOST_DIRS_MAX]);

/* Attaches them below root, which becomes this namespace's; each of trees becomes the descriptor of
 * its root there. 0 or -errno. */
int host_dirs_put(int root, int trees[static HOST_DIRS_MAX]) WARN_UNUSED;
