#pragma once
/* The state of a watched tree, and which directory of it is where, and which names were told. Only
 * the files of the tree include it: watch_tree.c (its life), watch_scan.c, watch_events.c and
 * watch_dirs.c. */

#include "agent/watch/watch_tree.h"

/* A watched directory. */
struct dir {
    struct dir *next; /* in its bucket */
    struct dir *scan_next;
    struct dir *parent; /* NULL for the root, and in limbo */
    size_t children;
    int wd;
    bool to_scan;
    bool report; /* entries that a scan finds are reported */
    bool limbo;
    uint32_t cookie; /* of the move that took it away */
    char name[];
};

#define SEEN_MAX 4096u /* of struct seen, in one tree */

/* A name that was told as created, by a scan or by an event, while the other may come upon it. */
struct seen {
    int wd;
    bool by_event;     /* an event told it: only the scan is still to come upon it */
    bool unsaid_write; /* a scan found bytes; whether an event tells of them is not known yet */
    char *name;
};

struct watch_tree {
    uv_poll_t poll;
    uv_idle_t idle;
    uv_timer_t timer;
    unsigned open_handles;
    bool closed, recursive, ready, limbo;
    const struct watch_tree_callbacks *cb;
    void *arg;
    int fd;
    char root_path[AGENT_PATH_SIZE];
    struct dir *root;
    struct dir **buckets;
    size_t bucket_count, dir_count, *all_dirs;
    struct dir *scan_first, **scan_last;
    struct dir *scanning;
    int scan_fd;
    struct seen *seen;
    size_t seen_count;
};

/* By watch descriptor, or by place (slow: looks at all). NULL when there is none. */
struct dir *watch_dirs_find(const struct watch_tree *t, int wd);
struct dir *watch_dirs_find_child(const struct watch_tree *t, const struct dir *parent,
                                  const char *name);

/* A new entry below parent, not yet in the table; NULL when memory is out. */
struct dir *watch_dirs_make(int wd, struct dir *parent, const char *name);
void watch_dirs_set_parent(struct dir *d, struct dir *parent);

void watch_dirs_insert(struct watch_tree *t, struct dir *d);
void watch_dirs_take_off(struct watch_tree *t, struct dir *d);

/* Is d top, or below it? */
bool watch_dirs_below(const struct dir *d, const struct dir *top);

/* The path of name in d ("" for d itself), relative to the root, into out; "." is the root. 0;
 * -EINVAL when d is not in the tree any more; -ENAMETOOLONG. */
int watch_dirs_relative(const struct watch_tree *t, const struct dir *d, const char *name,
                        char out[static AGENT_PATH_SIZE]);

/* That as an absolute path. */
int watch_dirs_full(const struct watch_tree *t, const char *relative,
                    char out[static AGENT_PATH_SIZE]);

/* Names told by a scan (or by an event) that the other is still to come upon. remember is false
 * when there is no room for the name. seen is NULL when it was not remembered; what it gives holds
 * until the next call; forget takes it. watch_dirs_forget_events takes those of d that only its
 * scan could still come upon, when that scan is over. clear forgets all. */
bool watch_dirs_remember(struct watch_tree *t, const struct dir *d, const char *name, bool by_event,
                         bool unsaid_write);
struct seen *watch_dirs_seen(struct watch_tree *t, const struct dir *d, const char *name);
void watch_dirs_forget(struct watch_tree *t, struct seen *seen);
void watch_dirs_forget_events(struct watch_tree *t, const struct dir *d);
void watch_dirs_clear_seen(struct watch_tree *t);
