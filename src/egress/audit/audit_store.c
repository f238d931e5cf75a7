/* A line goes to the newest file of its tenant's log, at once or with those pending when the
 * turn ends; a file that is full is closed and counted, and a new one begun; at the maximum the
 * tenant that holds most loses its oldest file. A helper thread syncs on a timer by names
 * alone. A write that fails ends the program: nothing is decided that is not recorded. At the
 * start all files are found, counted, and the newest of each log gone on with behind its last
 * whole line. */

#include "egress/audit/audit_store_internal.h"

#include "base/log.h"
#include "base/util.h"
#include "egress/audit/audit_name.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PENDING_MAX (16u * 1024u * 1024u) /* of one turn; far more than a turn can decide */

/* -- logs -------------------------------------------------------------------------------------- */

void audit_store_file(const struct audit_log *l, uint32_t n, char out[static AUDIT_NAME_SIZE])
{
    if (n == AUDIT_NEWEST)
        snprintf(out, AUDIT_NAME_SIZE, "%s", l->name);
    else
        snprintf(out, AUDIT_NAME_SIZE, "%s.%08" PRIu32, l->name, n);
}

static struct audit_log *find(const struct audit_store *s, const char *tenant)
{
    struct audit_log *l = s->logs;

    while (l && strcmp(l->tenant, tenant) != 0)
        l = l->next;
    return l;
}

struct audit_log *audit_store_log(struct audit_store *s, const char *tenant)
{
    struct audit_log *l = find(s, tenant);
    char part[AUDIT_NAME_SIZE - 64];

    if (l)
        return l;
    l = calloc(1, sizeof(*l));
    if (!l)
        return NULL;
    l->tenant = strdup(tenant);
    if (!l->tenant) {
        free(l);
        return NULL;
    }
    audit_name_put_tenant(tenant, part, sizeof(part));
    snprintf(l->name, sizeof(l->name), "%s%s%s%s", s->prefix, *part ? "." : "", part, AUDIT_SUFFIX);
    memcpy(l->prev, AUDIT_FIRST, sizeof(l->prev));
    buf_init(&l->pending, PENDING_MAX);
    l->next = s->logs;
    s->logs = l;
    s->count++;
    return l;
}

struct audit_log *audit_store_first(const struct audit_store *s)
{
    return s->logs;
}

/* -- writing ----------------------------------------------------------------------------------- */

NORETURN static void cannot_write(int err)
{
    log_error("the audit log cannot be written: %s; nothing passes unrecorded", strerror(err));
    abort();
}

static int open_to_write(struct audit_store *s, const struct audit_log *l)
{
    const int flags = O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW;
    int fd = openat(s->dir_fd, l->name, flags, 0600);

    if (fd < 0 && (errno == EMFILE || errno == ENFILE) && s->reserve_fd >= 0) {
        util_close(&s->reserve_fd);
        fd = openat(s->dir_fd, l->name, flags, 0600);
    }
    return fd < 0 ? -errno : fd;
}

static void take_reserve(struct audit_store *s)
{
    if (s->reserve_fd < 0)
        s->reserve_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

static void write_all(struct audit_store *s, struct audit_log *l, int fd, const char *bytes,
                      size_t len)
{
    while (len > 0) {
        ssize_t n = write(fd, bytes, len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            cannot_write(errno);
        l->bytes += (uint64_t)n;
        l->file_bytes += (uint64_t)n;
        s->bytes += (uint64_t)n;
        bytes += n;
        len -= (size_t)n;
    }
}

/* Writes the pending lines, then one line more, if any. */
static void write_pending(struct audit_store *s, struct audit_log *l, const char *line, size_t n)
{
    int fd = open_to_write(s, l);

    if (fd < 0)
        cannot_write(-fd);
    write_all(s, l, fd, l->pending.data, l->pending.len);
    buf_free(&l->pending);
    write_all(s, l, fd, line, n);
    write_all(s, l, fd, "\n", n > 0);
    close(fd);
    take_reserve(s);
    l->is_unsynced = true;
}

/* So that a tenant's share is in several files, of which the oldest can go alone. */
static uint64_t full_at(const struct audit_store *s)
{
    uint64_t part = s->limits.total_bytes / (AUDIT_FULL_PARTS * MAX(s->count, (size_t)1));

    return MIN(s->limits.file_bytes, MAX(part, (uint64_t)AUDIT_FILE_MIN_BYTES));
}

static void begin_new_file(struct audit_store *s, struct audit_log *l)
{
    char to[AUDIT_NAME_SIZE];

    if (l->file_bytes == 0)
        return;
    audit_store_file(l, l->end, to);
    if (renameat(s->dir_fd, l->name, s->dir_fd, to) < 0 && errno != ENOENT)
        cannot_write(errno);
    l->end++;
    l->file_bytes = 0;
}

static void drop_oldest_file(struct audit_store *s, struct audit_log *l)
{
    char name[AUDIT_NAME_SIZE];
    struct stat st;
    uint64_t n;

    audit_store_file(l, l->first, name);
    n = fstatat(s->dir_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_size : 0;
    if (unlinkat(s->dir_fd, name, 0) < 0 && errno != ENOENT)
        log_error("an old file of the audit log cannot be removed: %s", strerror(errno));
    l->first++;
    l->unsynced = MAX(l->unsynced, l->first);
    l->bytes -= MIN(n, l->bytes);
    s->bytes -= MIN(n, s->bytes);
}

/* The tenant that holds most gives way; the newest file of a tenant stays until it is full or is
 * all there is. */
static void keep_total(struct audit_store *s)
{
    while (s->bytes > s->limits.total_bytes) {
        struct audit_log *most = NULL;

        for (struct audit_log *l = s->logs; l; l = l->next)
            if (!most || l->bytes > most->bytes)
                most = l;
        if (!most || most->bytes == 0)
            return;
        if (most->first == most->end)
            begin_new_file(s, most);
        drop_oldest_file(s, most);
    }
}

void audit_store_append(struct audit_store *s, struct audit_log *l, const char *line, size_t n)
{
    if (buf_reserve(&l->pending, n + 1) == 0) {
        memcpy(l->pending.data + l->pending.len, line, n);
        l->pending.data[l->pending.len + n] = '\n';
        buf_commit(&l->pending, n + 1);
    } else {
        write_pending(s, l, line, n); /* memory is out, or much is pending: at once */
    }
    audit_hash(line, n, l->prev);
    l->seq++;
    if (!l->is_dirty) {
        l->is_dirty = true;
        l->next_dirty = s->dirty;
        s->dirty = l;
    }
}

void audit_store_flush(struct audit_store *s)
{
    while (s->dirty) {
        struct audit_log *l = s->dirty;

        s->dirty = l->next_dirty;
        l->is_dirty = false;
        write_pending(s, l, NULL, 0);
        if (l->file_bytes >= full_at(s))
            begin_new_file(s, l);
    }
    keep_total(s);
}

/* -- the disk ---------------------------------------------------------------------------------- */

/* Names, so that nothing of the store is used by another thread. */
struct sync {
    uv_work_t work;
    struct audit_store *store;
    int dir_fd, rc;
    size_t n;
    char (*names)[AUDIT_NAME_SIZE];
};

static void do_sync(uv_work_t *w)
{
    struct sync *y = w->data;

    for (size_t i = 0; i < y->n; i++) {
        int fd = openat(y->dir_fd, y->names[i], O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW);

        /* ENOENT: it was full meanwhile, and is in the next list. ENXIO: the operator has a FIFO in
         * its place, which without O_NONBLOCK held the thread. */
        if (fd < 0 && (errno == ENOENT || errno == ENXIO))
            continue;
        if (fd < 0 || fdatasync(fd) < 0)
            y->rc = -errno;
        util_close(&fd);
    }
}

static size_t count_unsynced(const struct audit_store *s)
{
    size_t n = 0;

    for (const struct audit_log *l = s->logs; l; l = l->next)
        if (l->is_unsynced)
            n += 1 + (l->end - l->unsynced);
    return n;
}

static void list_unsynced(struct audit_store *s, struct sync *y)
{
    for (struct audit_log *l = s->logs; l; l = l->next) {
        if (!l->is_unsynced)
            continue;
        for (; l->unsynced < l->end; l->unsynced++)
            audit_store_file(l, l->unsynced, y->names[y->n++]);
        audit_store_file(l, AUDIT_NEWEST, y->names[y->n++]);
        l->is_unsynced = false;
    }
}

static void free_sync(struct sync *y)
{
    free(y->names);
    free(y);
}

static struct sync *sync_new(struct audit_store *s)
{
    size_t n = count_unsynced(s);
    struct sync *y = n ? calloc(1, sizeof(*y)) : NULL;

    if (!y)
        return NULL;
    y->names = calloc(n, sizeof(*y->names));
    if (!y->names) {
        free(y);
        return NULL;
    }
    y->work.data = y;
    y->store = s;
    y->dir_fd = s->dir_fd;
    list_unsynced(s, y);
    return y;
}

static void maybe_free(struct audit_store *s)
{
    if (!s->closed || s->syncing)
        return;
    for (struct audit_log *l = s->logs, *next; l; l = next) {
        next = l->next;
        buf_free(&l->pending);
        free(l->tenant);
        free(l);
    }
    util_close(&s->reserve_fd);
    util_close(&s->dir_fd);
    free(s);
}

static void on_synced(uv_work_t *w, int status)
{
    struct sync *y = w->data;
    struct audit_store *s = y->store;

    if (y->rc < 0)
        log_error("the audit log cannot be synced: %s", strerror(-y->rc));
    free_sync(y);
    s->syncing = false;
    if (s->closing)
        maybe_free(s);
}

/* A file that became full while the last list was worked on: `unsynced` has it for this one. */
static void on_tick(uv_timer_t *t)
{
    struct audit_store *s = t->data;
    struct sync *y = s->syncing ? NULL : sync_new(s);

    if (!y)
        return;
    s->syncing = uv_queue_work(s->loop, &y->work, do_sync, on_synced) == 0;
    if (!s->syncing)
        free_sync(y);
}

/* -- start ------------------------------------------------------------------------------------- */

/* A line that was cut by a crash of the machine is ended, so that the next one stands alone: the
 * verifier names it. */
static int go_on(struct audit_store *s, struct audit_log *l)
{
    struct audit_last last = {.hash = AUDIT_FIRST};
    char name[AUDIT_NAME_SIZE];
    int rc = audit_last_of(s->dir_fd, l->name, &last);

    if (rc == 0 && l->end > l->first) {
        audit_store_file(l, l->end - 1, name);
        rc = audit_last_of(s->dir_fd, name, &last);
        last.cut = false;
    }
    if (rc < 0)
        return rc;
    memcpy(l->prev, last.hash, sizeof(l->prev));
    l->seq = last.seq;
    l->unsynced = l->end;
    if (last.cut) {
        log_warn("the last line of %s was cut short; the chain goes on behind it", l->name);
        if (buf_append(&l->pending, "\n", 1) < 0)
            return -ENOMEM;
        write_pending(s, l, NULL, 0);
    }
    return 0;
}

static int go_on_all(struct audit_store *s)
{
    int rc = 0;

    for (struct audit_log *l = s->logs; l && rc == 0; l = l->next)
        rc = go_on(s, l);
    return rc;
}

enum err_code audit_store_open(uv_loop_t *loop, const char *dir, uint32_t shard,
                               const struct audit_store_limits *limits, struct audit_store **out,
                               struct err *e)
{
    struct audit_store *s = calloc(1, sizeof(*s));
    int rc;

    if (!s)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    s->loop = loop;
    s->limits = *limits;
    s->reserve_fd = -1;
    snprintf(s->prefix, sizeof(s->prefix), "audit-%" PRIu32, shard);
    s->dir_fd = open(dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    rc = s->dir_fd < 0 ? -errno : audit_store_find_files(s, audit_store_log);
    if (rc == 0)
        rc = go_on_all(s);
    if (rc < 0) {
        s->closed = true;
        maybe_free(s);
        return err_set_sys(e, ERR_INTERNAL, rc, "cannot open the audit log in %s", dir);
    }
    take_reserve(s);
    keep_total(s);
    uv_timer_init(loop, &s->tick);
    s->tick.data = s;
    uv_timer_start(&s->tick, on_tick, AUDIT_SYNC_MS, AUDIT_SYNC_MS);
    *out = s;
    return ERR_OK;
}

static void on_closed(uv_handle_t *h)
{
    struct audit_store *s = h->data;

    s->closed = true;
    maybe_free(s);
}

void audit_store_free(struct audit_store *s)
{
    struct sync *y;

    if (!s)
        return;
    audit_store_flush(s);
    y = sync_new(s);
    if (y) {
        do_sync(&y->work);
        free_sync(y);
    }
    s->closing = true;
    uv_close((uv_handle_t *)&s->tick, on_closed);
}
