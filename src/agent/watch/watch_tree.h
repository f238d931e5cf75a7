#pragma once
/* Watches a directory, or the whole tree below it, with inotify.
 *
 * Events are those of Go's fsnotify, which E2B's envd uses: create (also what is moved in), write,
 * remove, rename (the old name of what is moved), chmod. A directory that appears in a watched tree
 * is watched before its create event is told, and what it already held by then is told as created
 * (and written, when it is not empty), once each. A directory that is moved within the tree keeps
 * its watch under its new name; one that is moved out loses it.
 * Everything is on the loop: a tree is read in slices of one buffer of names, between which the
 * loop serves others. Bounded: WATCH_TREE_DIRS_MAX directories for all trees together. */

#include "agent/common/agent.h"

#define WATCH_TREE_DIRS_MAX 32768u

enum watch_type {
    WATCH_CREATE,
    WATCH_WRITE,
    WATCH_REMOVE,
    WATCH_RENAME,
    WATCH_CHMOD,
    WATCH_TYPE_COUNT
};

/* Every callback may close the tree. */
struct watch_tree_callbacks {
    /* The tree is watched from now on. Once, unless on_error comes first. */
    void (*on_ready)(void *arg);
    /* Something happened to path; name is relative to the root ("." for the root itself). */
    void (*on_event)(void *arg, enum watch_type type, const char *name, const char *path);
    /* The kernel or a limit dropped events; how many is not known. */
    void (*on_lost)(void *arg);
    /* It could not be set up: -errno, -ENOSPC for too many directories. Close it. */
    void (*on_error)(void *arg, int error);
};

struct watch_tree;

/* root is an absolute path of a directory, which may be a link. dirs counts directories over all
 * trees of the caller. 0 or -errno. */
int watch_tree_new(uv_loop_t *loop, const char *root, bool recursive, size_t *dirs,
                   const struct watch_tree_callbacks *cb, void *arg,
                   struct watch_tree **out) WARN_UNUSED;

/* Reads what the kernel has queued by now and scans the directories that came with it (a bounded
 * amount): a client that asks for events after a change that it made itself finds them, also below
 * a directory that it has just made. */
void watch_tree_catch_up(struct watch_tree *t);

/* No callback comes after it; memory goes at a later loop turn. NULL is allowed. */
void watch_tree_close(struct watch_tree *t);
