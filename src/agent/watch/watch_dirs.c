#include "agent/watch/watch_dirs.h"

#include "agent/common/path.h"

#include <errno.h>
#include <string.h>

/* -- the table of directories ------------------------------------------------------------------ */

static struct dir **bucket_of(const struct watch_tree *t, int wd)
{
    return &t->buckets[(unsigned)wd & (t->bucket_count - 1)];
}

struct dir *watch_dirs_find(const struct watch_tree *t, int wd)
{
    for (struct dir *d = *bucket_of(t, wd); d; d = d->next)
        if (d->wd == wd)
            return d;
    return NULL;
}

struct dir *watch_dirs_find_child(const struct watch_tree *t, const struct dir *parent,
                                  const char *name)
{
    for (size_t i = 0; i < t->bucket_count; i++)
        for (struct dir *d = t->buckets[i]; d; d = d->next)
            if (d->parent == parent && strcmp(d->name, name) == 0)
                return d;
    return NULL;
}

static int grow(struct watch_tree *t)
{
    size_t count = t->bucket_count * 2;
    struct dir **old = t->buckets, **fresh = calloc(count, sizeof(*fresh));
    size_t old_count = t->bucket_count;

    if (!fresh)
        return -ENOMEM;
    t->buckets = fresh;
    t->bucket_count = count;
    for (size_t i = 0; i < old_count; i++) {
        for (struct dir *d = old[i], *next; d; d = next) {
            struct dir **b = bucket_of(t, d->wd);

            next = d->next;
            d->next = *b;
            *b = d;
        }
    }
    free(old);
    return 0;
}

void watch_dirs_insert(struct watch_tree *t, struct dir *d)
{
    struct dir **b;

    if (t->dir_count >= t->bucket_count)
        (void)!grow(t); /* without it the table is slower, not wrong */
    b = bucket_of(t, d->wd);
    d->next = *b;
    *b = d;
    t->dir_count++;
    (*t->all_dirs)++;
}

void watch_dirs_take_off(struct watch_tree *t, struct dir *d)
{
    for (struct dir **p = bucket_of(t, d->wd); *p; p = &(*p)->next) {
        if (*p != d)
            continue;
        *p = d->next;
        t->dir_count--;
        (*t->all_dirs)--;
        return;
    }
}

struct dir *watch_dirs_make(int wd, struct dir *parent, const char *name)
{
    struct dir *d = calloc(1, sizeof(*d) + strlen(name) + 1);

    if (!d)
        return NULL;
    d->wd = wd;
    memcpy(d->name, name, strlen(name) + 1);
    watch_dirs_set_parent(d, parent);
    return d;
}

void watch_dirs_set_parent(struct dir *d, struct dir *parent)
{
    if (d->parent)
        d->parent->children--;
    d->parent = parent;
    if (parent)
        parent->children++;
}

bool watch_dirs_below(const struct dir *d, const struct dir *top)
{
    /* No path is longer; lost events could have made a ring of parents. */
    for (unsigned i = 0; d && d != top && i < AGENT_PATH_SIZE; i++)
        d = d->parent;
    return d == top;
}

/* -- names ------------------------------------------------------------------------------------- */

/* The path of name in d, relative to the root, into out. -EINVAL when d is not in the tree any
 * more. */
int watch_dirs_relative(const struct watch_tree *t, const struct dir *d, const char *name,
                        char out[static AGENT_PATH_SIZE])
{
    size_t at = AGENT_PATH_SIZE - 1, n = strlen(name);

    out[at] = '\0';
    for (;;) {
        if (n > 0) {
            if (n + 1 > at)
                return -ENAMETOOLONG;
            at -= n;
            memcpy(out + at, name, n);
            out[--at] = '/';
        }
        if (d == t->root)
            break;
        if (!d || d->limbo)
            return -EINVAL;
        name = d->name;
        n = strlen(name);
        d = d->parent;
    }
    if (out[at] == '/')
        at++;
    memmove(out, out + at, AGENT_PATH_SIZE - at);
    if (!out[0])
        memcpy(out, ".", 2);
    return 0;
}

int watch_dirs_full(const struct watch_tree *t, const char *relative,
                    char out[static AGENT_PATH_SIZE])
{
    if (strcmp(relative, ".") == 0) {
        memcpy(out, t->root_path, strlen(t->root_path) + 1);
        return 0;
    }
    return path_join(t->root_path, relative, out);
}

bool watch_dirs_remember(struct watch_tree *t, const struct dir *d, const char *name, bool by_event,
                         bool unsaid_write)
{
    struct seen *seen;

    if (!t->seen)
        t->seen = calloc(SEEN_MAX, sizeof(*t->seen));
    if (!t->seen || t->seen_count == SEEN_MAX)
        return false;
    seen = &t->seen[t->seen_count];
    *seen = (struct seen){d->wd, by_event, unsaid_write, strdup(name)};
    if (!seen->name)
        return false;
    t->seen_count++;
    return true;
}

struct seen *watch_dirs_seen(struct watch_tree *t, const struct dir *d, const char *name)
{
    for (size_t i = 0; i < t->seen_count; i++)
        if (t->seen[i].wd == d->wd && strcmp(t->seen[i].name, name) == 0)
            return &t->seen[i];
    return NULL;
}

void watch_dirs_forget(struct watch_tree *t, struct seen *seen)
{
    free(seen->name);
    *seen = t->seen[--t->seen_count];
}

void watch_dirs_forget_events(struct watch_tree *t, const struct dir *d)
{
    for (size_t i = t->seen_count; i > 0; i--)
        if (t->seen[i - 1].wd == d->wd && t->seen[i - 1].by_event)
            watch_dirs_forget(t, &t->seen[i - 1]);
}

void watch_dirs_clear_seen(struct watch_tree *t)
{
    while (t->seen_count > 0)
        free(t->seen[--t->seen_count].name);
    free(t->seen);
    t->seen = NULL;
}
