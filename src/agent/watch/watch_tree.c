/* A watched tree. inotify watches directories, not trees, so each directory that appears gets a
 * watch of its own and is then scanned for what was put into it before that watch was there. The
 * same name can therefore be met twice, by a scan and by an event, in either order: the first one
 * tells it and remembers it (`seen`), the second one does not tell it again. An event of a name
 * that is older than the watch can also come before the scan does (the event of its creation was
 * never queued): such a name is told as created first. A name is remembered until its directory's
 * scan is over and its events were read; names left when the queue is empty are forgotten (`settle`
 * of watch_events.c). Scans go on in slices, in an idle callback; events come by poll. A callback
 * may close the tree: each loop asks `closed`. A directory that is moved keeps its watch and waits
 * without a place (`limbo`) for the second half of the move. */
#include "agent/watch/watch_dirs.h"

#include "agent/watch/watch_events.h"
#include "agent/watch/watch_scan.h"
#include "agent/watch/watch_tree_internal.h"

#include <errno.h>
#include <malloc.h>
#include <string.h>
#include <sys/inotify.h>

#define FIRST_BUCKETS 64u
#define CATCH_UP_MAX  32u /* reads of events and of names, of 16 KiB each */
#define LIMBO_MS      200 /* for the second half of a move to arrive */

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

void watch_tree_put_in_limbo(struct watch_tree *t, struct dir *d, uint32_t cookie)
{
    watch_dirs_set_parent(d, NULL);
    d->limbo = true;
    d->cookie = cookie;
    t->limbo = true;
    uv_timer_start(&t->timer, flush_limbo, LIMBO_MS, 0);
}

void watch_tree_free_dir(struct watch_tree *t, struct dir *d)
{
    watch_dirs_take_off(t, d);
    watch_scan_take_off(t, d);
    watch_dirs_set_parent(d, NULL);
    for (size_t i = 0; d->children > 0 && i < t->bucket_count; i++)
        for (struct dir *c = t->buckets[i]; c; c = c->next)
            if (c->parent == d)
                watch_tree_put_in_limbo(t, c, 0);
    if (t->root == d)
        t->root = NULL;
    free(d);
}

void watch_tree_report(struct watch_tree *t, enum watch_type type, const struct dir *d,
                       const char *name)
{
    char relative[AGENT_PATH_SIZE], path[AGENT_PATH_SIZE];

    if (t->closed || watch_dirs_relative(t, d, name, relative) < 0 ||
        watch_dirs_full(t, relative, path) < 0)
        return;
    t->cb->on_event(t->arg, type, relative, path);
}

void watch_tree_fail(struct watch_tree *t, int error)
{
    if (error == 0 || t->closed)
        return;
    if (t->ready)
        t->cb->on_lost(t->arg);
    else
        t->cb->on_error(t->arg, error);
}

static void become_ready(struct watch_tree *t)
{
    if (t->ready)
        return;
    t->ready = true;
    t->cb->on_ready(t->arg);
}

void watch_tree_slice(uv_idle_t *idle)
{
    struct watch_tree *t = idle->data;

    if (watch_scan_step(t) || t->closed)
        return;
    uv_idle_stop(&t->idle);
    become_ready(t);
    watch_tree_catch_up(t);
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    watch_events_read(poll->data);
}

void watch_tree_catch_up(struct watch_tree *t)
{
    bool more = true;

    for (unsigned i = 0; i < CATCH_UP_MAX && !t->closed && more; i++) {
        more = watch_events_read(t);
        if (t->closed || (!t->scanning && !t->scan_first))
            continue;
        (void)watch_scan_step(t);
        more = true; /* finds of the last scan are told after the events of meanwhile */
    }
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
    r = watch_scan_directory(t, NULL, "", false);
    if (r < 0) {
        watch_tree_close(t);
        return r;
    }
    uv_poll_start(&t->poll, UV_READABLE, on_readable);
    uv_idle_start(&t->idle, watch_tree_slice);
    *out = t;
    return 0;
}
