#include "egress/control/audit_check.h"

#include "base/util.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

void audit_check_close(struct audit_checking *c)
{
    if (c->file)
        fclose(TAKE_PTR(c->file));
}

static const struct audit_log *live_log(const struct audit_checking *c)
{
    const struct audit_log *l = audit_store_first(c->store);

    while (l && strcmp(l->tenant, c->sources[c->source].tenant) != 0)
        l = l->next;
    return l;
}

/* A file that made room for others since the check began is not missed: the chain is followed from
 * the next one on. A file that is gone otherwise is missed: the line after it does not fit. */
static int open_number(struct audit_checking *c, const struct audit_log *l)
{
    CLEANUP_CLOSE int dir_fd = open(c->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    int rc;

    if (dir_fd < 0)
        return -errno;
    if (c->number < l->first) {
        c->number = l->first;
        c->walk.begun = false;
    }
    audit_store_file(l, c->number < l->end ? c->number : UINT32_MAX, c->name);
    rc = audit_walk_open(dir_fd, c->name, &c->file, &c->left);
    return rc < 0 ? rc : 0;
}

static void begin_source(struct audit_checking *c)
{
    c->walk = (struct audit_walk){.out = &c->found, .canceled = c->canceled};
    c->number = c->sources[c->source].first;
}

/* To the file behind the one that was read, or was not there. */
static void step(struct audit_checking *c)
{
    audit_check_close(c);
    if (++c->number > c->sources[c->source].end) {
        c->source++;
        c->walk.out = NULL;
    }
}

int audit_check_next(struct audit_checking *c)
{
    if (c->file && c->left > 0)
        return 1;
    if (c->file)
        step(c);
    while (c->source < c->n_sources) {
        int rc;

        if (!c->walk.out)
            begin_source(c);
        rc = open_number(c, live_log(c));
        if (rc < 0)
            return rc;
        if (c->file && c->left > 0)
            return 1;
        step(c);
    }
    return 0;
}

int audit_check_slice(struct audit_checking *c, size_t bytes)
{
    size_t slice = MIN(bytes, c->left), unread = slice;
    int rc = audit_walk_on(&c->walk, c->file, c->name, &unread);

    c->left = rc == 1 ? c->left - (slice - unread) : 0;
    return MIN(rc, 0);
}
