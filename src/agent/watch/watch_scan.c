/* Which directories are watched, and what is in them when they come to be: a scan reads a
 * directory's names in slices and tells those that no event told (watch_tree.c says in which order
 * both may come upon one). */
#include "agent/watch/watch_scan.h"

#include "agent/watch/watch_dirs.h"
#include "agent/watch/watch_tree_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#define ENTRIES_BYTES (16u * 1024u) /* of a directory, in one loop turn */
#define WANTED                                                                     \
    (IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_MODIFY | IN_ATTRIB | \
     IN_DELETE_SELF | IN_MOVE_SELF)

void watch_scan_take_off(struct watch_tree *t, struct dir *d)
{
    if (t->scanning == d) {
        t->scanning = NULL;
        util_close(&t->scan_fd);
    }
    if (!d->to_scan)
        return;
    for (struct dir **p = &t->scan_first; *p; p = &(*p)->scan_next) {
        if (*p != d)
            continue;
        *p = d->scan_next;
        if (!*p)
            t->scan_last = p;
        break;
    }
    d->to_scan = false;
}

void watch_scan_queue(struct watch_tree *t, struct dir *d, bool report)
{
    d->report = report;
    if (d->to_scan || t->scanning == d)
        return;
    d->to_scan = true;
    d->scan_next = NULL;
    *t->scan_last = d;
    t->scan_last = &d->scan_next;
    uv_idle_start(&t->idle, watch_tree_slice);
}

int watch_scan_directory(struct watch_tree *t, struct dir *parent, const char *name, bool report)
{
    char relative[AGENT_PATH_SIZE], path[AGENT_PATH_SIZE];
    struct dir *d;
    int wd;

    if (*t->all_dirs >= WATCH_TREE_DIRS_MAX)
        return -ENOSPC;
    if (!parent)
        memcpy(path, t->root_path, sizeof(path));
    else if (watch_dirs_relative(t, parent, name, relative) < 0 ||
             watch_dirs_full(t, relative, path) < 0)
        return 0;
    wd = inotify_add_watch(t->fd, path, WANTED | IN_ONLYDIR | (parent ? IN_DONT_FOLLOW : 0));
    if (wd < 0)
        return parent && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP) ? 0 : -errno;
    d = watch_dirs_find(t, wd);
    if (d && (d == t->root || (!d->limbo && d->parent == parent && strcmp(d->name, name) == 0)))
        return 0;
    /* Known under another name: it was moved, and the move's events are still to come or were
     * lost. */
    if (d)
        watch_tree_free_dir(t, d);
    d = watch_dirs_make(wd, parent, name);
    if (!d)
        return -ENOMEM;
    watch_dirs_insert(t, d);
    if (!parent)
        t->root = d;
    if (t->recursive)
        watch_scan_queue(t, d, report);
    return 0;
}

static void found(struct watch_tree *t, struct dir *d, const struct dirent64 *e)
{
    char relative[AGENT_PATH_SIZE], path[AGENT_PATH_SIZE];
    bool is_dir = e->d_type == DT_DIR, has_bytes = false, known;
    struct stat st;

    if (d->report || e->d_type == DT_UNKNOWN) {
        if (watch_dirs_relative(t, d, e->d_name, relative) < 0 ||
            watch_dirs_full(t, relative, path) < 0 || lstat(path, &st) < 0)
            return;
        is_dir = S_ISDIR(st.st_mode);
        has_bytes = S_ISREG(st.st_mode) && st.st_size > 0;
    }
    if (is_dir)
        watch_tree_fail(t, watch_scan_directory(t, d, e->d_name, d->report));
    if (!d->report || t->closed)
        return;
    /* Its event may have been read before the scan came to it, or is still to be read. */
    if (watch_dirs_seen(t, d, e->d_name))
        return;
    known = watch_dirs_remember(t, d, e->d_name, false, has_bytes);
    watch_tree_report(t, WATCH_CREATE, d, e->d_name);
    if (has_bytes && !known)
        watch_tree_report(t, WATCH_WRITE, d, e->d_name);
}

static void scan_over(struct watch_tree *t, const struct dir *d)
{
    t->scanning = NULL;
    util_close(&t->scan_fd);
    watch_dirs_forget_events(t, d);
}

static void start(struct watch_tree *t)
{
    char relative[AGENT_PATH_SIZE], path[AGENT_PATH_SIZE];
    struct dir *d = t->scan_first;

    t->scan_first = d->scan_next;
    if (!t->scan_first)
        t->scan_last = &t->scan_first;
    d->to_scan = false;
    if (watch_dirs_relative(t, d, "", relative) == 0 && watch_dirs_full(t, relative, path) == 0)
        t->scan_fd = open(path, O_RDONLY | O_DIRECTORY | O_NONBLOCK | O_CLOEXEC |
                                    (d == t->root ? 0 : O_NOFOLLOW));
    if (t->scan_fd >= 0)
        t->scanning = d;
    else
        scan_over(t, d);
}

static void read_names(struct watch_tree *t)
{
    _Alignas(struct dirent64) char raw[ENTRIES_BYTES];
    struct dir *d = t->scanning;
    ssize_t n = getdents64(t->scan_fd, raw, sizeof(raw));

    if (n <= 0) {
        scan_over(t, d);
        return;
    }
    for (char *p = raw; p < raw + n && !t->closed && t->scanning == d;) {
        const struct dirent64 *e = (const struct dirent64 *)(const void *)p;

        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            found(t, d, e);
        p += e->d_reclen;
    }
}

bool watch_scan_step(struct watch_tree *t)
{
    if (!t->scanning && t->scan_first)
        start(t);
    if (t->scanning)
        read_names(t);
    return t->scanning || t->scan_first;
}
