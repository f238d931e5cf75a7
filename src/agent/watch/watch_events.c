/* Events of inotify, one buffer at a time: they become what fsnotify would tell, and move
 * directories about in the tree. watch_tree.c says in which order an event and a scan may come upon
 * a name. */
#include "agent/watch/watch_events.h"

#include "agent/watch/watch_dirs.h"
#include "agent/watch/watch_scan.h"
#include "agent/watch/watch_tree_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/inotify.h>

#define EVENTS_BYTES (16u * 1024u) /* of inotify, in one loop turn */

static void moved_away(struct watch_tree *t, struct dir *d, const struct inotify_event *e)
{
    struct dir *child = watch_dirs_find_child(t, d, e->name);

    if (child)
        watch_tree_put_in_limbo(t, child, e->cookie);
}

/* True when the directory that arrives is one of ours that was just moved: then it, and the tree
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
    fresh->report = old->report;
    watch_tree_free_dir(t, old);
    watch_dirs_insert(t, fresh);
    if (to_scan)
        watch_scan_queue(t, fresh, fresh->report);
    return true;
}

static void directory_arrived(struct watch_tree *t, struct dir *d, const struct inotify_event *e)
{
    if ((e->mask & IN_MOVED_TO) && moved_back(t, d, e))
        return;
    /* The contents of a moved-in tree are older than its arrival: no event, as with fsnotify. */
    watch_tree_fail(t, watch_scan_directory(t, d, e->name, (e->mask & IN_CREATE) != 0));
}

/* Will a scan tell what it finds in d? */
static bool is_to_report(const struct watch_tree *t, const struct dir *d)
{
    return d->report && (d->to_scan || t->scanning == d);
}

/* Before an event of a name that neither an event nor the scan told yet: it is older than the
 * directory's watch, so the event of its creation was never queued. With no room to remember names
 * it is not known what was told. */
static void report_older(struct watch_tree *t, const struct dir *d, const char *name)
{
    if (!is_to_report(t, d) || t->seen_count == SEEN_MAX || watch_dirs_seen(t, d, name))
        return;
    if (watch_dirs_remember(t, d, name, true, false))
        watch_tree_report(t, WATCH_CREATE, d, name);
}

/* A name is gone: no event of before tells of the bytes that a scan found in it. */
static void forget_gone(struct watch_tree *t, const struct dir *d, const char *name)
{
    struct seen *seen = watch_dirs_seen(t, d, name);
    bool unsaid = seen && seen->unsaid_write;

    if (seen)
        watch_dirs_forget(t, seen);
    if (unsaid)
        watch_tree_report(t, WATCH_WRITE, d, name);
}

/* An event tells what a scan would have told of the same name when all events were read. */
static void write_event(struct watch_tree *t, const struct dir *d, const char *name)
{
    struct seen *seen = watch_dirs_seen(t, d, name);

    if (seen)
        seen->unsaid_write = false;
    watch_tree_report(t, WATCH_WRITE, d, name);
}

/* IN_CREATE or IN_MOVED_TO. A scan that told the name did so without the events of its writes: they
 * follow. */
static void arrival_event(struct watch_tree *t, struct dir *d, const struct inotify_event *e)
{
    struct seen *seen = watch_dirs_seen(t, d, e->name);

    if (seen && !seen->by_event && (e->mask & IN_CREATE)) {
        seen->by_event = true;
        seen->unsaid_write = false;
        if (!is_to_report(t, d))
            watch_dirs_forget(t, seen);
        return;
    }
    if (!seen && is_to_report(t, d))
        watch_dirs_remember(t, d, e->name, true, false);
    if ((e->mask & IN_ISDIR) && t->recursive)
        directory_arrived(t, d, e);
    watch_tree_report(t, WATCH_CREATE, d, e->name);
}

static void entry_event(struct watch_tree *t, struct dir *d, const struct inotify_event *e)
{
    bool is_dir = (e->mask & IN_ISDIR) != 0;

    if (e->mask & (IN_CREATE | IN_MOVED_TO))
        arrival_event(t, d, e);
    else
        report_older(t, d, e->name);
    if (e->mask & IN_MOVED_FROM) {
        forget_gone(t, d, e->name);
        watch_tree_report(t, WATCH_RENAME, d, e->name);
        if (is_dir && t->recursive && !t->closed)
            moved_away(t, d, e);
    }
    if (e->mask & IN_ATTRIB)
        watch_tree_report(t, WATCH_CHMOD, d, e->name);
    if (e->mask & IN_MODIFY)
        write_event(t, d, e->name);
    if (e->mask & IN_DELETE) {
        forget_gone(t, d, e->name);
        watch_tree_report(t, WATCH_REMOVE, d, e->name);
    }
}

/* Of the watched directory itself. For one below the root its parent tells the same. */
static void self_event(struct watch_tree *t, struct dir *d, uint32_t mask)
{
    if (d == t->root) {
        if (mask & IN_ATTRIB)
            watch_tree_report(t, WATCH_CHMOD, d, "");
        if (mask & IN_DELETE_SELF)
            watch_tree_report(t, WATCH_REMOVE, d, "");
        if ((mask & IN_MOVE_SELF) && !t->recursive) {
            watch_tree_report(t, WATCH_RENAME, d, "");
            /* Its path names something else from now on. */
            inotify_rm_watch(t->fd, d->wd);
        }
    }
    if (mask & IN_IGNORED)
        watch_tree_free_dir(t, d);
}

static void overflowed(struct watch_tree *t)
{
    t->cb->on_lost(t->arg);
    for (size_t i = 0; t->recursive && !t->closed && i < t->bucket_count; i++)
        for (struct dir *d = t->buckets[i]; d; d = d->next)
            watch_scan_queue(t, d, false);
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
            watch_tree_report(t, WATCH_WRITE, d, t->seen[i].name);
    }
    watch_dirs_clear_seen(t);
}

bool watch_events_read(struct watch_tree *t)
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
