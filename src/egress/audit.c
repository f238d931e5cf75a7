#include "egress/audit.h"

#include "base/buf.h"
#include "base/ids.h"
#include "base/log.h"
#include "base/util.h"
#include "egress/audit_chain.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define PENDING_MAX (16u * 1024u * 1024u) /* of one turn; far more than a turn can decide */
#define SYNC_MS     1000
#define FOLLOWERS   32
#define TEXT_MAX    1024 /* of one string in a line */

struct follower {
    uint64_t id;
    void (*cb)(void *arg, const char *line, size_t n);
    void *arg;
};

struct audit {
    struct egress *egress;
    int dir_fd, fd;
    char name[32];
    uint64_t size_bytes;
    char prev[AUDIT_HASH_SIZE];
    struct buf pending; /* lines of this turn */
    uv_prepare_t flush;
    uv_timer_t sync;
    uv_fs_t sync_request;
    bool syncing, unsynced, closing;
    struct follower followers[FOLLOWERS];
    uint64_t last_follower;
    unsigned handles;
};

/* -- lines ------------------------------------------------------------------------------------- */

static const char *const event_names[] = {"connection", "request", "end"};
static const char *const via_names[] = {"redirect", "socks", "connect", "proxy"};

static const char *source_name(enum policy_source s)
{
    static const char *const names[] = {"never", "ceiling", "rule", "preset", "default", "sandbox"};

    return s < ARRAY_SIZE(names) ? names[s] : "rule";
}

/* Text of a peer: cut, and what is not printable ASCII replaced, so that the line is plain text. */
static void put_text(json_t *o, const char *key, const char *text, bool is_path)
{
    char out[TEXT_MAX];
    size_t n = 0;

    if (!text || !*text)
        return;
    for (; n < sizeof(out) - 1 && text[n] && !(is_path && text[n] == '?'); n++)
        out[n] = text[n] >= 0x20 && text[n] < 0x7f ? text[n] : '?';
    out[n] = '\0';
    json_object_set_new(o, key, json_string(out));
}

static void put_destination(json_t *o, const struct audit_record *r)
{
    const struct target *t = r->target ? r->target : &r->flow->target;
    static const struct in6_addr none = IN6ADDR_ANY_INIT;
    char address[INET6_ADDRSTRLEN];

    put_text(o, "name", t->name, false);
    if (memcmp(&t->address.in6, &none, sizeof(none)) != 0) {
        policy_address_format(&t->address, address);
        put_text(o, "address", address, false);
    }
    json_object_set_new(o, "port", json_integer(t->port));
}

static json_t *line_of(const struct audit *a, const struct audit_record *r)
{
    char time[CLOCK_RFC3339_SIZE];
    json_t *o = json_object();

    clock_format_rfc3339(clock_real_ms(), time);
    put_text(o, "time", time, false);
    put_text(o, "event", event_names[r->event], false);
    put_text(o, "sandbox", r->sandbox->id, false);
    put_text(o, "tenant", r->sandbox->tenant, false);
    if (r->sandbox->room)
        json_object_set_new(o, "command", json_integer(r->sandbox->room));
    json_object_set_new(o, "flow", json_integer((json_int_t)r->flow->id));
    put_text(o, "via", via_names[r->flow->via], false);
    put_text(o, "protocol", flow_kind_name(r->flow->kind), false);
    put_destination(o, r);
    put_text(o, "verdict", r->allowed ? "allow" : "deny", false);
    put_text(o, "rule", r->rule, false);
    if (r->event != AUDIT_END)
        put_text(o, "source", source_name(r->source), false);
    put_text(o, "reason", r->reason, false);
    put_text(o, "method", r->method, false);
    put_text(o, "path", r->path, true);
    put_text(o, "credential", r->credential, false);
    if (r->event == AUDIT_END) {
        json_object_set_new(o, "bytes_up", json_integer((json_int_t)r->up_bytes));
        json_object_set_new(o, "bytes_down", json_integer((json_int_t)r->down_bytes));
        json_object_set_new(o, "duration_ms", json_integer((json_int_t)r->duration_ms));
    }
    put_text(o, "prev", a->prev, false);
    return o;
}

static void tell_followers(struct audit *a, const char *line, size_t n)
{
    for (size_t i = 0; i < FOLLOWERS; i++)
        if (a->followers[i].id)
            a->followers[i].cb(a->followers[i].arg, line, n);
}

static void flush_now(struct audit *a);

static void on_prepare(uv_prepare_t *p)
{
    flush_now(p->data);
}

void audit_record(struct audit *a, const struct audit_record *r)
{
    json_t *o = line_of(a, r);
    char *text = o ? json_dumps(o, JSON_COMPACT | JSON_ENSURE_ASCII) : NULL;
    size_t n = text ? strlen(text) : 0;

    json_decref(o);
    if (!text || buf_append(&a->pending, text, n) < 0 || buf_append(&a->pending, "\n", 1) < 0) {
        log_error("a decision cannot be recorded: out of memory");
        abort();
    }
    audit_hash(text, n, a->prev);
    tell_followers(a, text, n);
    free(text);
    if (!uv_is_active((uv_handle_t *)&a->flush))
        uv_prepare_start(&a->flush, on_prepare);
}

/* -- the file ---------------------------------------------------------------------------------- */

NORETURN static void cannot_write(int err)
{
    log_error("the audit log cannot be written: %s; nothing passes unrecorded", strerror(err));
    abort();
}

static int open_file(struct audit *a)
{
    struct stat st;

    a->fd = openat(a->dir_fd, a->name, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (a->fd < 0 || fstat(a->fd, &st) < 0)
        return -errno;
    a->size_bytes = (uint64_t)st.st_size;
    return 0;
}

/* The oldest goes; the file under its own name is always the newest. */
static void rotate(struct audit *a)
{
    char from[48], to[48];
    int rc;

    if (fdatasync(a->fd) < 0)
        cannot_write(errno);
    for (uint32_t i = a->egress->config.audit_files; i > 0; i--) {
        snprintf(to, sizeof(to), "%s.%u", a->name, i);
        snprintf(from, sizeof(from), i > 1 ? "%s.%u" : "%s", a->name, i - 1);
        if (renameat(a->dir_fd, from, a->dir_fd, to) < 0 && errno != ENOENT)
            cannot_write(errno);
    }
    close(a->fd);
    rc = open_file(a);
    if (rc < 0)
        cannot_write(-rc);
}

static void flush_now(struct audit *a)
{
    while (a->pending.len > 0) {
        ssize_t n = write(a->fd, a->pending.data, a->pending.len);

        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            cannot_write(errno);
        a->size_bytes += (uint64_t)n;
        buf_consume(&a->pending, (size_t)n);
        a->unsynced = true;
    }
    uv_prepare_stop(&a->flush);
    if (a->size_bytes >= a->egress->config.audit_size_bytes && a->egress->config.audit_size_bytes)
        rotate(a);
}

static void maybe_free(struct audit *a)
{
    if (a->handles > 0 || a->syncing)
        return;
    buf_free(&a->pending);
    util_close(&a->fd);
    util_close(&a->dir_fd);
    free(a);
}

static void on_synced(uv_fs_t *req)
{
    struct audit *a = req->data;

    a->syncing = false;
    if (req->result < 0 && req->result != UV_EBADF) /* rotated meanwhile, which synced it */
        log_error("the audit log cannot be synced: %s", uv_strerror((int)req->result));
    uv_fs_req_cleanup(req);
    if (a->closing)
        maybe_free(a);
}

static void on_sync(uv_timer_t *t)
{
    struct audit *a = t->data;

    if (!a->unsynced || a->syncing)
        return;
    a->unsynced = false;
    a->sync_request.data = a;
    a->syncing = uv_fs_fdatasync(a->egress->loop, &a->sync_request, a->fd, on_synced) == 0;
}

/* -- life -------------------------------------------------------------------------------------- */

/* A line that was cut by a crash of the machine is ended, so that the next one stands alone: the
 * verifier names it. */
static enum err_code continue_chain(struct audit *a, struct err *e)
{
    bool cut = false;
    int rc = audit_last_hash(a->dir_fd, a->name, a->prev, &cut);

    if (rc < 0)
        return err_set_sys(e, ERR_INTERNAL, rc, "cannot read the audit log %s", a->name);
    if (cut) {
        log_warn("the last line of the audit log was cut short; the chain goes on behind it");
        if (write(a->fd, "\n", 1) != 1)
            return err_set_sys(e, ERR_INTERNAL, errno, "cannot write the audit log");
        a->size_bytes++;
    }
    return ERR_OK;
}

enum err_code audit_open(struct egress *eg, struct audit **out, struct err *e)
{
    struct audit *a = calloc(1, sizeof(*a));
    int rc;

    if (!a)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    a->egress = eg;
    a->fd = -1;
    buf_init(&a->pending, PENDING_MAX);
    snprintf(a->name, sizeof(a->name), "audit-%u.log", eg->config.shard);
    a->dir_fd = open(eg->config.state_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    rc = a->dir_fd < 0 ? -errno : open_file(a);
    if (rc < 0) {
        err_set_sys(e, ERR_INTERNAL, rc, "cannot open the audit log in %s", eg->config.state_dir);
        maybe_free(a);
        return ERR_INTERNAL;
    }
    if (continue_chain(a, e) != ERR_OK) {
        maybe_free(a);
        return e->code;
    }
    uv_prepare_init(eg->loop, &a->flush);
    uv_timer_init(eg->loop, &a->sync);
    a->flush.data = a->sync.data = a;
    a->handles = 2;
    uv_timer_start(&a->sync, on_sync, SYNC_MS, SYNC_MS);
    *out = a;
    return ERR_OK;
}

static void on_closed(uv_handle_t *h)
{
    struct audit *a = h->data;

    a->handles--;
    maybe_free(a);
}

void audit_free(struct audit *a)
{
    if (!a)
        return;
    flush_now(a);
    (void)!fdatasync(a->fd);
    a->closing = true;
    uv_close((uv_handle_t *)&a->flush, on_closed);
    uv_close((uv_handle_t *)&a->sync, on_closed);
}

uint64_t audit_follow(struct audit *a, void (*cb)(void *arg, const char *line, size_t n), void *arg)
{
    for (size_t i = 0; i < FOLLOWERS; i++) {
        if (a->followers[i].id)
            continue;
        a->followers[i] = (struct follower){++a->last_follower, cb, arg};
        return a->last_follower;
    }
    return 0;
}

void audit_unfollow(struct audit *a, uint64_t id)
{
    for (size_t i = 0; id && i < FOLLOWERS; i++)
        if (a->followers[i].id == id)
            a->followers[i] = (struct follower){0};
}

void audit_flush(struct audit *a)
{
    flush_now(a);
}
