/* A watched tree. inotify watches directories, not trees, so each directory that appears gets a
 * watch of its own and is then scanned for what was put into it before that watch was there. The
 * same name can therefore be met twice, by a scan and by an event, in either order: the first one
 * tells it and remembers it (`seen`), the second one does not tell it again. An event of a name
 * that is older than the watch can also come before the scan does (the event of its creation was
 * never queued): such a name is told as created first. A name is remembered until its directory's
 * scan is over and its events were read; what is left when the queue is empty is forgotten
 * (`settle`). Scans go on in slices, in an idle callback; events come by poll. A callback may close
 * the tree: each loop asks `closed`. A directory that is moved keeps its watch and waits without a
 * place (`limbo`) for the second half of the move. */
#include "agent/watch/watch_dirs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/stat.h>

#define EVENTS_BYTES  (16u * 1024u) /* of inotify, in one loop turn */
#define ENTRIES_BYTES (16u * 1024u) /* of a directory, in one loop turn */
#define FIRST_BUCKETS 64u
#define CATCH_UP_MAX  16u
#define LIMBO_MS      200 /* for the second half of a move to arrive */
#define WANTED                                                                     \
    (IN_CREATE | IN_MOVED_TO | IN_MOVED_FROM | IN_DELETE | IN_MODIFY | IN_ATTRIB | \
     IN_DELETE_SELF | IN_MOVE_SELF)

static void take_off_scan(struct watch_tree *t, struct dir *d)
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

static void flush_limbo(uv_timer_t *timer);

/* Without a place in the tree: nothing is told of it, and it is dropped soon. */
static void put_in_limbo(struct watch_tree *t, struct dir *d, uint32_t cookie)
{
    watch_dirs_set_parent(d, NULL);
    d->limbo = true;
    d->cookie = cookie;
    t->limbo = true;
    uv_timer_start(&t->timer, flush_limbo, LIMBO_MS, 0);
}

/* Forgets d. Its directory is gone, or out of the tree. Directories below it are normally forgotten
 * already; if events were lost they are left without a place. */
static void free_dir(struct watch_tree *t, struct dir *d)
{
    watch_dirs_take_off(t, d);
    take_off_scan(t, d);
    watch_dirs_set_parent(d, NULL);
    for (size_t i = 0; d->children > 0 && i < t->bucket_count; i++)
        for (struct dir *c = t->buckets[i]; c; c = c->next)
            if (c->parent == d)
                put_in_limbo(t, c, 0);
    if (t->root == d)
        t->root = NULL;
    free(d);
}

static void tell(struct watch_tree *t, enum watch_type type, const struct dir *d, const char *name)
{
    char relative[AGENT_PATH_SIZE], path[AGENT_PATH_SIZE];

    if (t->closed || watch_dirs_relative(t, d, name, relative) < 0 ||
        watch_dirs_full(t, relative, path) < 0)
        return;
    t->cb->on_event(t->arg, type, relative, path);
}

/* -- watching and scanning --------------------------------------------------------------------- */

static void scan_slice(uv_idle_t *idle);

static void queue_scan(struct watch_tree *t, struct dir *d, bool news)
{
    d->tell = news;
    if (d->to_scan || t->scanning == d)
        return;
    d->to_scan = true;
    d->scan_next = NULL;
    *t->scan_last = d;
    t->scan_last = &d->scan_next;
    uv_idle_start(&t->idle, scan_slice);
}

/* Watches the directory name in parent (NULL and "" for the root). 0, also when it has vanished;
 * -ENOSPC over a limit; -errno. */
static int watch_directory(struct watch_tree *t, struct dir *parent, const char *name, bool news)
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
        free_dir(t, d);
    d = watch_dirs_make(wd, parent, name);
    if (!d)
        return -ENOMEM;
    watch_dirs_insert(t, d);
    if (!parent)
        t->root = d;
    if (t->recursive)
        queue_scan(t, d, news);
    return 0;
}

static void fail_or_lose(struct watch_tree *t, int error)
{
    if (error == 0 || t->closed)
        return;
    if (t->ready)
        t->cb->on_lost(t->arg);
    else
        t->cb->on_error(t->arg, error);
}

static void found(struct watch_tree *t, struct dir *d, const struct dirent64 *e)
{
    char relative[AGENT_PATH_SIZE], path[AGENT_PATH_SIZE];
    bool is_dir = e->d_type == DT_DIR, has_bytes = false, known;
    struct stat st;

    if (d->tell || e->d_type == DT_UNKNOWN) {
        if (watch_dirs_relative(t, d, e->d_name, relative) < 0 ||
            watch_dirs_full(t, relative, path) < 0 || lstat(path, &st) < 0)
            return;
        is_dir = S_ISDIR(st.st_mode);
        has_bytes = S_ISREG(st.st_mode) && st.st_size > 0;
    }
    if (is_dir)
        fail_or_lose(t, watch_directory(t, d, e->d_name, d->tell));
    if (!d->tell || t->closed)
        return;
    /* Its event may have been read before the scan came to it, or is still to be read. */
    if (watch_dirs_seen(t, d, e->d_name))
        return;
    known = watch_dirs_remember(t, d, e->d_name, false, has_bytes);
    tell(t, WATCH_CREATE, d, e->d_name);
    if (has_bytes && !known)
        tell(t, WATCH_WRITE, d, e->d_name);
}

static void scan_over(struct watch_tree *t, const struct dir *d)
{
    t->scanning = NULL;
    util_close(&t->scan_fd);
    watch_dirs_forget_events(t, d);
}

static void scan_start(struct watch_tree *t)
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

static void scan_read(struct watch_tree *t)
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

static void become_ready(struct watch_tree *t)
{
    if (t->ready)
        return;
    t->ready = true;
    t->cb->on_ready(t->arg);
}

static void scan_slice(uv_idle_t *idle)
{
    struct watch_tree *t = idle->data;

    if (!t->scanning && t->scan_first)
        scan_start(t);
    if (t->scanning)
        scan_read(t);
    if (t->closed || t->scanning || t->scan_first)
        return;
    uv_idle_stop(&t->idle);
    become_ready(t);
    watch_tree_catch_up(t);
}

/* -- events ------------------------------------------------------------------------------------ */

/* A directory that was moved out of the tree, and all below it. */
static void drop_subtree(struct watch_tree *t, struct dir *top)
{
    for (size_t i = 0; i < t->bucket_count; i++) {
        for (struct dir *d = t->buckets[i], *next; d; d = next) {
            next = d->next;
            if (d == top || !watch_dirs_below(d, top))
                continue;
            inotify_rm_watch(t->fd, d->wd);
            /* Its own children are below top too: they must still find the way. Only the watch
             * goes now; IN_IGNORED takes the entry. */
        }
    }
    inotify_rm_watch(t->fd, top->wd);
}

static void flush_limbo(uv_timer_t *timer)
{
    struct watch_tree *t = timer->data;

    t->limbo = false;
    for (size_t i = 0; i < t->bucket_count; i++)
        for (struct dir *d = t->buckets[i]; d; d = d->next)
            if (d->limbo)
                drop_subtree(t, d);
}

static void moved_away(struct watch_tree *t, struct dir *d, const struct inotify_event *e)
{
    struct dir *child = watch_dirs_find_child(t, d, e->name);

    if (child)
        put_in_limbo(t, child, e->cookie);
}

/* True when the directory that arrives is one of ours that was just moved: then it, and what is
 * below, is watched already. */
static bool moved_back(struct watch_tree *t, struct dir *d, const struct inotify_event *e)
{
    struct dir *old = NULL, *fresh;
    bool to_scan;

    if (!t->limbo)
        return false;
    for (size_t i = 0; i < t->bucket_count && !old; i++)
        for (struct dir *c = t->buckets[i]; c && !old; c = c->next)
            if (c->limbo && c->cookie == e->cookie)
                old = c;
    if (!old)
        return false;
    /* The name has another length: the entry is made anew, and its children are handed over. */
    fresh = watch_dirs_make(old->wd, d, e->name);
    if (!fresh)
        return false;
    for (size_t i = 0; old->children > 0 && i < t->bucket_count; i++)
        for (struct dir *c = t->buckets[i]; c; c = c->next)
            if (c->parent == old)
                watch_dirs_set_parent(c, fresh);
    to_scan = old->to_scan || t->scanning == old;
    fresh->tell = old->tell;
    free_dir(t, old);
    watch_dirs_insert(t, fresh);
    if (to_scan)
        queue_scan(t, fresh, fresh->tell);
    return true;
}

static void directory_arrived(struct watch_tree *t, struct dir *d, const struct inotify_event *e)
{
    if ((e->mask & IN_MOVED_TO) && moved_back(t, d, e))
        return;
    /* What a moved-in tree holds is older than its arrival: no news, as with fsnotify. */
    fail_or_lose(t, watch_directory(t, d, e->name, (e->mask & IN_CREATE) != 0));
}

/* Will a scan tell what it finds in d? */
static bool to_be_told(const struct watch_tree *t, const struct dir *d)
{
    return d->tell && (d->to_scan || t->scanning == d);
}

/* Before an event of a name that neither an event nor the scan told yet: it is older than the
 * directory's watch, so the event of its creation was never queued. With no room to remember names
 * it is not known what was told. */
static void tell_older(struct watch_tree *t, const struct dir *d, const char *name)
{
    if (!to_be_told(t, d) || t->seen_count == SEEN_MAX || watch_dirs_seen(t, d, name))
        return;
    if (watch_dirs_remember(t, d, name, true, false))
        tell(t, WATCH_CREATE, d, name);
}

/* A name is gone: no event of before tells of the bytes that a scan found in it. */
static void forget_gone(struct watch_tree *t, const struct dir *d, const char *name)
{
    struct seen *seen = watch_dirs_seen(t, d, name);
    bool unsaid = seen && seen->unsaid_write;

    if (seen)
        watch_dirs_forget(t, seen);
    if (unsaid)
        tell(t, WATCH_WRITE, d, name);
}

/* An event tells what a scan would have told of the same name when all events were read. */
static void write_event(struct watch_tree *t, const struct dir *d, const char *name)
{
    struct seen *seen = watch_dirs_seen(t, d, name);

    if (seen)
        seen->unsaid_write = false;
    tell(t, WATCH_WRITE, d, name);
}

/* IN_CREATE or IN_MOVED_TO. A scan that told the name did so without the events of its writes: they
 * follow. */
static void arrival_event(struct watch_tree *t, struct dir *d, const struct inotify_event *e)
{
    struct seen *seen = watch_dirs_seen(t, d, e->name);

    if (seen && !seen->by_event && (e->mask & IN_CREATE)) {
        seen->by_event = true;
        seen->unsaid_write = false;
        if (!to_be_told(t, d))
            watch_dirs_forget(t, seen);
        return;
    }
    if (!seen && to_be_told(t, d))
        watch_dirs_remember(t, d, e->name, true, false);
    if ((e->mask & IN_ISDIR) && t->recursive)
        directory_arrived(t, d, e);
    tell(t, WATCH_CREATE, d, e->name);
}

static void entry_event(struct watch_tree *t, struct dir *d, const struct inotify_event *e)
{
    bool is_dir = (e->mask & IN_ISDIR) != 0;

    if (e->mask & (IN_CREATE | IN_MOVED_TO))
        arrival_event(t, d, e);
    else
        tell_older(t, d, e->name);
    if (e->mask & IN_MOVED_FROM) {
        forget_gone(t, d, e->name);
        tell(t, WATCH_RENAME, d, e->name);
        if (is_dir && t->recursive && !t->closed)
            moved_away(t, d, e);
    }
    if (e->mask & IN_ATTRIB)
        tell(t, WATCH_CHMOD, d, e->name);
    if (e->mask & IN_MODIFY)
        write_event(t, d, e->name);
    if (e->mask & IN_DELETE) {
        forget_gone(t, d, e->name);
        tell(t, WATCH_REMOVE, d, e->name);
    }
}

/* Of the watched directory itself. For one below the root its parent tells the same. */
static void self_event(struct watch_tree *t, struct dir *d, uint32_t mask)
{
    if (d == t->root) {
        if (mask & IN_ATTRIB)
            tell(t, WATCH_CHMOD, d, "");
        if (mask & IN_DELETE_SELF)
            tell(t, WATCH_REMOVE, d, "");
        if ((mask & IN_MOVE_SELF) && !t->recursive) {
            tell(t, WATCH_RENAME, d, "");
            /* Its path names something else from now on. */
            inotify_rm_watch(t->fd, d->wd);
        }
    }
    if (mask & IN_IGNORED)
        free_dir(t, d);
}

static void overflowed(struct watch_tree *t)
{
    t->cb->on_lost(t->arg);
    for (size_t i = 0; t->recursive && !t->closed && i < t->bucket_count; i++)
        for (struct dir *d = t->buckets[i]; d; d = d->next)
            queue_scan(t, d, false);
}

static void one_event(struct watch_tree *t, const struct inotify_event *e)
{
    struct dir *d;

    if (e->mask & IN_Q_OVERFLOW) {
        overflowed(t);
        return;
    }
    d = watch_dirs_find(t, e->wd);
    if (!d)
        return;
    if (e->len > 0 && e->name[0])
        entry_event(t, d, e);
    else
        self_event(t, d, e->mask);
}

/* The queue is empty and no scan is under way. A name that a scan told and no event did is older
 * than its directory's watch, as are its bytes if no event told of those. */
static void settle(struct watch_tree *t)
{
    for (size_t i = 0; i < t->seen_count && !t->closed; i++) {
        const struct dir *d = t->seen[i].unsaid_write ? watch_dirs_find(t, t->seen[i].wd) : NULL;

        if (d)
            tell(t, WATCH_WRITE, d, t->seen[i].name);
    }
    watch_dirs_clear_seen(t);
}

/* One buffer of events. True when there may be more. */
static bool read_events(struct watch_tree *t)
{
    _Alignas(struct inotify_event) char raw[EVENTS_BYTES];
    ssize_t n = read(t->fd, raw, sizeof(raw));
    bool full = n > (ssize_t)(sizeof(raw) - sizeof(struct inotify_event) - NAME_MAX - 1);

    if (n < 0 && errno == EINTR)
        return false;
    for (char *p = raw; n > 0 && p < raw + n && !t->closed;) {
        const struct inotify_event *e = (const struct inotify_event *)(const void *)p;

        one_event(t, e);
        p += sizeof(*e) + e->len;
    }
    if (!full && !t->scanning && !t->scan_first)
        settle(t);
    return full && !t->closed;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    read_events(poll->data);
}

void watch_tree_catch_up(struct watch_tree *t)
{
    for (unsigned i = 0; i < CATCH_UP_MAX && !t->closed && read_events(t); i++)
        ;
}

/* -- life -------------------------------------------------------------------------------------- */

static void handle_closed(uv_handle_t *handle)
{
    struct watch_tree *t = handle->data;
    bool large;

    if (--t->open_handles > 0)
        return;
    for (size_t i = 0; i < t->bucket_count; i++) {
        for (struct dir *d = t->buckets[i], *next; d; d = next) {
            next = d->next;
            free(d);
        }
    }
    large = t->bucket_count > FIRST_BUCKETS;
    free(t->buckets);
    free(t);
    if (large)
        malloc_trim(0);
}

void watch_tree_close(struct watch_tree *t)
{
    if (!t || t->closed)
        return;
    t->closed = true;
    *t->all_dirs -= t->dir_count;
    watch_dirs_clear_seen(t);
    uv_poll_stop(&t->poll);
    /* With the descriptor all watches go. */
    util_close(&t->scan_fd);
    util_close(&t->fd);
    uv_close((uv_handle_t *)&t->poll, handle_closed);
    uv_close((uv_handle_t *)&t->idle, handle_closed);
    uv_close((uv_handle_t *)&t->timer, handle_closed);
}

static void open_handles(struct watch_tree *t, uv_loop_t *loop)
{
    /* uv_poll_init fails only for descriptors that epoll refuses, which inotify's are not. */
    uv_poll_init(loop, &t->poll, t->fd);
    uv_idle_init(loop, &t->idle);
    uv_timer_init(loop, &t->timer);
    t->poll.data = t->idle.data = t->timer.data = t;
    t->open_handles = 3;
}

int watch_tree_new(uv_loop_t *loop, const char *root, bool recursive, size_t *dirs,
                   const struct watch_tree_callbacks *cb, void *arg, struct watch_tree **out)
{
    struct watch_tree *t = calloc(1, sizeof(*t));
    int r;

    if (!t)
        return -ENOMEM;
    t->recursive = recursive;
    t->cb = cb;
    t->arg = arg;
    t->all_dirs = dirs;
    t->scan_fd = -1;
    t->scan_last = &t->scan_first;
    memcpy(t->root_path, root, strlen(root) + 1);
    t->bucket_count = FIRST_BUCKETS;
    t->buckets = calloc(t->bucket_count, sizeof(struct dir *));
    t->fd = inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
    if (!t->buckets || t->fd < 0) {
        r = t->buckets ? -errno : -ENOMEM;
        util_close(&t->fd);
        free(t->buckets);
        free(t);
        return r;
    }
    open_handles(t, loop);
    r = watch_directory(t, NULL, "", false);
    if (r < 0) {
        watch_tree_close(t);
        return r;
    }
    uv_poll_start(&t->poll, UV_READABLE, on_readable);
    uv_idle_start(&t->idle, scan_slice);
    *out = t;
    return 0;
}
