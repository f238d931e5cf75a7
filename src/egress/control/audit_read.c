/* On a helper thread: a log is read backwards from its newest line, in blocks, one slice at a time;
 * between two slices the reading lies still, with its file open. It sees its own memory and files
 * by name, nothing of the loop's but the word that it is not wanted any more. */

#include "egress/control/audit_read.h"

#include "base/util.h"
#include "egress/control/audit_query.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define ANSWER_MAX    (32u * 1024u * 1024u)
#define BLOCK_BYTES   65536u /* a line is far shorter */
#define OLD_LINES_MAX 1000u

static int keep_line(struct audit_reading *r, const char *line, size_t n)
{
    if (r->n_lines == r->capacity) {
        size_t capacity = r->capacity ? r->capacity * 2 : 128;
        char **grown = realloc(r->lines, capacity * sizeof(*grown));

        if (!grown)
            return -ENOMEM;
        r->lines = grown;
        r->capacity = capacity;
    }
    r->lines[r->n_lines] = strndup(line, n);
    if (!r->lines[r->n_lines])
        return -ENOMEM;
    r->n_lines++;
    r->bytes += n;
    return 0;
}

/* A clock that was set back leaves a few older ones among the newer. */
static bool has_enough(const struct audit_reading *r)
{
    return r->n_lines - r->position.from >= r->filter.limit || r->bytes >= ANSWER_MAX ||
           r->position.old >= OLD_LINES_MAX;
}

/* The lines in text, which begins at a line's beginning, from the last to the first. */
static int take_lines(struct audit_reading *r, const char *text, size_t n)
{
    int rc = 0;

    while (n > 0 && rc == 0 && !has_enough(r) && !r->canceled) {
        const char *end = text + n, *start;
        int fits = 0;
        size_t len;
        bool old = false;

        start = n > 1 ? memrchr(text, '\n', n - 1) : NULL;
        start = start ? start + 1 : text;
        len = (size_t)(end - start);
        if (end[-1] == '\n')
            fits = audit_filter_fits(&r->filter, start, len - 1, &old);
        if (fits < 0) {
            rc = fits;
        } else if (fits) {
            rc = keep_line(r, start, len);
            r->position.old = 0;
        } else {
            r->position.old = old ? r->position.old + 1 : 0;
        }
        n = (size_t)(start - text);
    }
    return rc;
}

/* Backwards, in blocks; what a block begins with is the end of a line that the one before has. */
static int read_blocks(struct audit_reading *r, char *block)
{
    struct audit_position *p = &r->position;
    off_t at = p->at;
    size_t carried = 0; /* bytes at the block's end that are the rest of a line */
    int rc = 0;

    while (at > 0 && rc == 0 && r->slice_left > 0 && !has_enough(r) && !r->canceled) {
        size_t want = (size_t)MIN(at, (off_t)BLOCK_BYTES), n, skip;
        const char *line;

        memmove(block + want, block, carried);
        at -= (off_t)want;
        if (pread(p->fd, block, want, at) != (ssize_t)want)
            return -EIO;
        n = want + carried;
        line = memchr(block, '\n', n);
        skip = at == 0 ? 0 : line ? (size_t)(line + 1 - block) : n;
        rc = take_lines(r, block + skip, n - skip);
        carried = skip <= BLOCK_BYTES ? skip : 0; /* no line of ours is that long */
        r->slice_left -= MIN(want, r->slice_left);
    }
    p->at = at + (off_t)carried; /* where a line begins */
    return rc;
}

/* Opens the next file, at its end. A file that made room for others meanwhile is empty. */
static int open_file(struct audit_position *p, int dir_fd, const struct audit_log *l)
{
    char name[AUDIT_NAME_SIZE];
    struct stat st;

    p->at = 0;
    if (p->file == 0)
        snprintf(name, sizeof(name), "%s", l->name);
    else
        audit_store_file(l, l->end - p->file, name);
    p->fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (p->fd < 0)
        return errno == ENOENT ? 0 : -errno;
    if (fstat(p->fd, &st) < 0)
        return -errno;
    p->at = st.st_size;
    return 0;
}

/* On in the source, as far as the slice goes. *done: all of it was read that is wanted. */
static int read_source(struct audit_reading *r, int dir_fd, char *block, bool *done)
{
    const struct audit_log *l = &r->sources[r->position.source];
    struct audit_position *p = &r->position;
    int rc = 0;

    for (*done = false; !*done && rc == 0 && r->slice_left > 0 && !r->canceled;) {
        if (p->fd < 0)
            rc = open_file(p, dir_fd, l);
        if (rc == 0 && p->fd >= 0)
            rc = read_blocks(r, block);
        if (p->at > 0 && !has_enough(r))
            continue; /* the slice has ended in it */
        util_close(&p->fd);
        p->file++;
        *done = has_enough(r) || p->file > l->end - l->first;
    }
    return rc;
}

static const char *time_of(const char *line)
{
    const char *at = strstr(line, "\"time\":\"");

    return at ? at + strlen("\"time\":\"") : "";
}

static int by_time(const void *a, const void *b)
{
    return strncmp(time_of(*(char *const *)b), time_of(*(char *const *)a), 24);
}

/* Of many tenants: the newest of all. */
static void merge(struct audit_reading *r)
{
    if (r->n_sources > 1)
        qsort(r->lines, r->n_lines, sizeof(*r->lines), by_time);
    for (; r->n_lines > r->filter.limit; r->n_lines--) {
        r->bytes -= strlen(r->lines[r->n_lines - 1]);
        free(r->lines[r->n_lines - 1]);
    }
}

int audit_read_slice(struct audit_reading *r, int dir_fd)
{
    CLEANUP_FREE char *block = malloc(2 * (size_t)BLOCK_BYTES);
    struct audit_position *p = &r->position;
    bool done = true;
    int rc = 0;

    r->slice_left = AUDIT_SLICE_BYTES;
    r->more = false;
    if (!block)
        return -ENOMEM;
    while (p->source < r->n_sources && done && rc == 0 && !r->canceled) {
        rc = read_source(r, dir_fd, block, &done);
        if (!done)
            break;
        merge(r);
        *p = (struct audit_position){.source = p->source + 1, .fd = -1, .from = r->n_lines};
    }
    r->more = rc == 0 && p->source < r->n_sources;
    return rc;
}

void audit_read_close(struct audit_reading *r)
{
    for (size_t i = 0; i < r->n_lines; i++)
        free(r->lines[i]);
    util_close(&r->position.fd);
    free(r->lines);
    free(r->sources);
}
