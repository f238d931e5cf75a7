/* A question is waiting (in the order of coming, within a tenant's share), running (a helper
 * thread reads one slice backwards from the newest line), between two slices (back to the
 * line's end of waiting, so that others have their turn), done (its lines are sent from the
 * loop), or dropped (its client has gone: at its next block). A verification reads a whole log
 * in one piece, one at a time. Threads see a question's own memory and files by name;
 * everything else is the loop's. */

#include "egress/control/audit_query.h"

#include "base/clock.h"
#include "base/share.h"
#include "base/util.h"
#include "egress/audit/audit_store.h"
#include "egress/control/audit_check.h"
#include "egress/flow/audit.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/sandbox.h"
#include "http/server.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <uv.h>

#define ANSWER_MAX    (32u * 1024u * 1024u)
#define DEFAULT_LIMIT 100u
#define BLOCK_BYTES   65536u /* a line is far shorter */
#define OLD_LINES_MAX 1000u
#define HELPER_NICE   10

struct filter {
    char tenant[EGRESS_TENANT_MAX + 1], sandbox[PRIVSEP_ID_SIZE], verdict[8], since[64];
    size_t limit;
};

/* How far a question has been read, between two of its slices. The file stays open: it may get
 * another name meanwhile. */
struct place {
    size_t source;
    uint32_t file; /* of the source, newest first; 0 has the newest lines */
    int fd;        /* -1: the file is not open yet */
    off_t at;      /* what is before it was not read */
    size_t from;   /* lines[from..] are of this source */
    unsigned old;  /* lines in a row from before `since` */
};

/* A piece of work for a helper thread. The exchange may be gone when it is done. */
struct work {
    uv_work_t work;
    struct work *next; /* that waits behind it */
    struct egress *egress;
    struct http_exchange *x; /* NULL: gone */
    struct share *share;
    char dir[4096];
    struct audit_log *sources; /* copies: names and numbers are read */
    size_t n_sources;
    bool follow, verify, running, done; /* done: only a follower is left */
    volatile int canceled;
    uint64_t follower;
    struct filter filter;
    struct place place;
    size_t slice_left; /* bytes */
    bool more;         /* of it, in another slice */
    char **lines;      /* that fit, as they were read: newest first of each source */
    size_t n_lines, room, bytes;
    struct audit_checking check;
    int rc;
};

struct audit_queries {
    struct share_pool *shares;
    struct work *waiting;
    struct work *running[AUDIT_QUERIES_AT_ONCE];
};

int audit_queries_new(struct egress *eg, struct audit_queries **out)
{
    struct audit_queries *q = calloc(1, sizeof(*q));

    if (q)
        q->shares = share_pool_new(AUDIT_QUERIES_MAX);
    if (!q || !q->shares) {
        free(q);
        return -ENOMEM;
    }
    *out = q;
    return 0;
}

/* -- which lines ------------------------------------------------------------------------------- */

static bool member_is(const json_t *o, const char *key, const char *wanted)
{
    const char *value = json_string_value(json_object_get(o, key));

    return !*wanted || (value && strcmp(value, wanted) == 0);
}

/* Times are all of one form (UTC, milliseconds), so that text order is time order. */
static bool is_old(const struct filter *f, const json_t *o)
{
    const char *time = json_string_value(json_object_get(o, "time"));

    return *f->since && (!time || strcmp(time, f->since) < 0);
}

static bool has_text(const char *line, size_t n, const char *wanted)
{
    return memmem(line, n, wanted, strlen(wanted)) != NULL;
}

/* As is_old, of a line as audit.c writes them. False: it is not known without its JSON. */
static bool is_old_by_text(const struct filter *f, const char *line, size_t n, bool *old)
{
    static const char begin[] = "{\"time\":\"";
    const size_t at = sizeof(begin) - 1, len = strlen(f->since);

    *old = false;
    if (len == 0)
        return true;
    if (n < at + len + 1 || memcmp(line, begin, at) != 0 || line[at + len] != '"')
        return false;
    *old = memcmp(line + at, f->since, len) < 0;
    return true;
}

/* Most of a long log is not asked about: what a line has to have is looked for before its JSON is
 * read, which takes fifty times as long. Only an escape could spell it otherwise. True: the line
 * does not fit, and *old is known. */
static bool is_other(const struct filter *f, const char *line, size_t n, bool *old)
{
    if (has_text(line, n, f->tenant) && has_text(line, n, f->sandbox) &&
        has_text(line, n, f->verdict))
        return false;
    return !memchr(line, '\\', n) && is_old_by_text(f, line, n, old);
}

/* *old: it is from before `since`. */
static bool fits(const struct filter *f, const char *line, size_t n, bool *old)
{
    json_t *o;
    bool ok;

    if (is_other(f, line, n, old))
        return false;
    o = json_loadb(line, n, 0, NULL);
    ok = o && member_is(o, "tenant", f->tenant) && member_is(o, "sandbox", f->sandbox) &&
         member_is(o, "verdict", f->verdict);
    *old = o && is_old(f, o);
    json_decref(o);
    return ok && !*old;
}

static int take_text(const char *query, const char *key, char *out, size_t size)
{
    ssize_t n = http_query_get(query, key, out, size);

    if (n == -ENOENT)
        out[0] = '\0';
    return n < 0 && n != -ENOENT ? -EINVAL : 0;
}

static int take_filter(const char *query, struct filter *f)
{
    char number[16], since[64];
    int64_t ms;

    if (take_text(query, "tenant", f->tenant, sizeof(f->tenant)) < 0 ||
        take_text(query, "sandbox", f->sandbox, sizeof(f->sandbox)) < 0 ||
        take_text(query, "verdict", f->verdict, sizeof(f->verdict)) < 0 ||
        take_text(query, "since", since, sizeof(since)) < 0 ||
        take_text(query, "limit", number, sizeof(number)) < 0)
        return -EINVAL;
    if (*since) {
        if (clock_parse_rfc3339(since, &ms) < 0)
            return -EINVAL;
        clock_format_rfc3339(ms, f->since);
    }
    f->limit = *number ? strtoul(number, NULL, 10) : DEFAULT_LIMIT;
    f->limit = MIN(MAX(f->limit, (size_t)1), (size_t)AUDIT_QUERY_MAX);
    return 0;
}

/* -- on a helper thread ------------------------------------------------------------------------ */

static int keep_line(struct work *w, const char *line, size_t n)
{
    if (w->n_lines == w->room) {
        size_t room = w->room ? w->room * 2 : 128;
        char **grown = realloc(w->lines, room * sizeof(*grown));

        if (!grown)
            return -ENOMEM;
        w->lines = grown;
        w->room = room;
    }
    w->lines[w->n_lines] = strndup(line, n);
    if (!w->lines[w->n_lines])
        return -ENOMEM;
    w->n_lines++;
    w->bytes += n;
    return 0;
}

/* A clock that was set back leaves a few older ones among the newer. */
static bool has_enough(const struct work *w)
{
    return w->n_lines - w->place.from >= w->filter.limit || w->bytes >= ANSWER_MAX ||
           w->place.old >= OLD_LINES_MAX;
}

/* The lines in text, which begins at a line's beginning, from the last to the first. */
static int take_lines(struct work *w, const char *text, size_t n)
{
    int rc = 0;

    while (n > 0 && rc == 0 && !has_enough(w) && !w->canceled) {
        const char *end = text + n, *start;
        size_t len;
        bool old;

        start = n > 1 ? memrchr(text, '\n', n - 1) : NULL;
        start = start ? start + 1 : text;
        len = (size_t)(end - start);
        if (end[-1] == '\n' && fits(&w->filter, start, len - 1, &old)) {
            rc = keep_line(w, start, len);
            w->place.old = 0;
        } else {
            w->place.old = end[-1] == '\n' && old ? w->place.old + 1 : 0;
        }
        n = (size_t)(start - text);
    }
    return rc;
}

/* Backwards, in blocks; what a block begins with is the end of a line that the one before has. */
static int read_blocks(struct work *w, char *block)
{
    struct place *p = &w->place;
    off_t at = p->at;
    size_t carried = 0; /* bytes at the block's end that are the rest of a line */
    int rc = 0;

    while (at > 0 && rc == 0 && w->slice_left > 0 && !has_enough(w) && !w->canceled) {
        size_t want = (size_t)MIN(at, (off_t)BLOCK_BYTES), n, skip;
        const char *line;

        memmove(block + want, block, carried);
        at -= (off_t)want;
        if (pread(p->fd, block, want, at) != (ssize_t)want)
            return -EIO;
        n = want + carried;
        line = memchr(block, '\n', n);
        skip = at == 0 ? 0 : line ? (size_t)(line + 1 - block) : n;
        rc = take_lines(w, block + skip, n - skip);
        carried = skip <= BLOCK_BYTES ? skip : 0; /* no line of ours is that long */
        w->slice_left -= MIN(want, w->slice_left);
    }
    p->at = at + (off_t)carried; /* where a line begins */
    return rc;
}

/* The file that is next, at its end. One that made room for others meanwhile is empty. */
static int open_file(struct place *p, int dir_fd, const struct audit_log *l)
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
static int read_source(struct work *w, int dir_fd, char *block, bool *done)
{
    const struct audit_log *l = &w->sources[w->place.source];
    struct place *p = &w->place;
    int rc = 0;

    for (*done = false; !*done && rc == 0 && w->slice_left > 0 && !w->canceled;) {
        if (p->fd < 0)
            rc = open_file(p, dir_fd, l);
        if (rc == 0 && p->fd >= 0)
            rc = read_blocks(w, block);
        if (p->at > 0 && !has_enough(w))
            continue; /* the slice has ended in it */
        util_close(&p->fd);
        p->file++;
        *done = has_enough(w) || p->file > l->end - l->first;
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
static void merge(struct work *w)
{
    if (w->n_sources > 1)
        qsort(w->lines, w->n_lines, sizeof(*w->lines), by_time);
    for (; w->n_lines > w->filter.limit; w->n_lines--) {
        w->bytes -= strlen(w->lines[w->n_lines - 1]);
        free(w->lines[w->n_lines - 1]);
    }
}

static void do_query(struct work *w, int dir_fd)
{
    CLEANUP_FREE char *block = malloc(2 * (size_t)BLOCK_BYTES);
    struct place *p = &w->place;
    bool done = true;

    w->slice_left = AUDIT_SLICE_BYTES;
    if (!block)
        w->rc = -ENOMEM;
    while (p->source < w->n_sources && done && w->rc == 0 && !w->canceled) {
        w->rc = read_source(w, dir_fd, block, &done);
        if (!done)
            break;
        merge(w);
        *p = (struct place){.source = p->source + 1, .fd = -1, .from = w->n_lines};
    }
    w->more = w->rc == 0 && p->source < w->n_sources;
}

/* The loop and what sandboxes run go first: a helper thread gets what they leave. Of the thread
 * alone (setpriority(2), C library/kernel differences); where it is refused, the thread goes on as
 * it is. */
static void yield(void)
{
    (void)setpriority(PRIO_PROCESS, 0, HELPER_NICE);
}

static void do_work(uv_work_t *req)
{
    struct work *w = req->data;
    CLEANUP_CLOSE int dir_fd = -1;

    yield();
    if (w->verify) {
        w->rc = audit_check_slice(&w->check, AUDIT_SLICE_BYTES);
        return;
    }
    dir_fd = open(w->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dir_fd < 0)
        w->rc = -errno;
    else
        do_query(w, dir_fd);
}

/* -- on the loop ------------------------------------------------------------------------------- */

static void free_work(struct work *w)
{
    for (size_t i = 0; i < w->n_lines; i++)
        free(w->lines[i]);
    util_close(&w->place.fd);
    audit_check_close(&w->check);
    free(w->lines);
    free(w->sources);
    free(w);
}

static void unlink_waiting(struct audit_queries *q, struct work *w)
{
    struct work **at = &q->waiting;

    while (*at && *at != w)
        at = &(*at)->next;
    if (*at)
        *at = w->next;
}

/* Its client is gone: a waiting question is dropped, a running one ends at its next block. */
static void on_exchange_end(struct http_exchange *x, void *data)
{
    struct work *w = data;

    w->x = NULL;
    w->canceled = 1;
    audit_unfollow(w->egress->audit, w->follower);
    if (w->running)
        return;
    if (!w->done) {
        unlink_waiting(w->egress->audit_queries, w);
        share_return(w->share);
    }
    free_work(w);
}

static void on_line(void *arg, const char *line, size_t n)
{
    struct work *w = arg;
    bool old;

    if (!w->x || !fits(&w->filter, line, n, &old))
        return;
    http_response_write(w->x, line, n);
    if (http_response_write(w->x, "\n", 1) == 1)
        http_exchange_abort(w->x); /* it does not read: a part is not to look like the whole */
}

static void send_lines(struct work *w)
{
    static const struct http_header type = {"Content-Type", "application/x-ndjson"};

    http_response_begin(w->x, 200, &type, 1, -1);
    for (size_t i = w->n_lines; i > 0; i--)
        http_response_write(w->x, w->lines[i - 1], strlen(w->lines[i - 1]));
    if (!w->follow) {
        http_response_end(w->x);
        return;
    }
    w->follower = audit_follow(w->egress->audit, on_line, w);
    if (!w->follower)
        http_response_end(w->x);
}

/* NULL: none that is free. */
static struct work **free_slot(struct audit_queries *q)
{
    for (size_t i = 0; i < AUDIT_QUERIES_AT_ONCE; i++)
        if (!q->running[i])
            return &q->running[i];
    return NULL;
}

static void leave_slot(struct audit_queries *q, const struct work *w)
{
    for (size_t i = 0; i < AUDIT_QUERIES_AT_ONCE; i++)
        if (q->running[i] == w)
            q->running[i] = NULL;
}

static void send_check(struct work *w)
{
    static const struct http_header type = {"Content-Type", "application/json"};
    const struct audit_check *c = &w->check.found;
    char text[512];
    int n = snprintf(text, sizeof(text),
                     "{\"ok\":%s,\"lines\":%llu,\"broken_line\":%llu,\"file\":\"%s\","
                     "\"cut_lines\":%llu,\"rotated_out\":%llu,\"logs\":%zu}",
                     c->broken ? "false" : "true", (unsigned long long)c->lines,
                     (unsigned long long)c->broken, c->file, (unsigned long long)c->cut,
                     (unsigned long long)c->rotated, w->n_sources);

    http_respond(w->x, 200, &type, 1, text, (size_t)n);
}

static void run_next(struct audit_queries *q);
static void wait_for_turn(struct audit_queries *q, struct work *w);

/* The next slice of a check; false: there is none, or w->rc says why. */
static bool has_next(struct work *w)
{
    int rc = audit_check_next(&w->check);

    w->rc = MIN(rc, 0);
    return rc > 0;
}

/* Between two slices: the others have their turn. */
static bool goes_on(struct work *w)
{
    if (!w->x || w->rc < 0)
        return false;
    return w->verify ? has_next(w) : w->more;
}

static void finish(struct work *w)
{
    struct audit_queries *q = w->egress->audit_queries;

    w->done = true;
    share_return(w->share);
    run_next(q);
    if (!w->x)
        free_work(w);
    else if (w->rc < 0)
        http_respond_error(w->x, 500, "the audit log cannot be read: %s", strerror(-w->rc));
    else if (w->verify)
        send_check(w);
    else
        send_lines(w);
}

static void on_done(uv_work_t *req, int status)
{
    struct work *w = req->data;
    struct audit_queries *q = w->egress->audit_queries;

    w->running = false;
    leave_slot(q, w);
    if (goes_on(w))
        wait_for_turn(q, w);
    else
        finish(w);
}

static unsigned running_of(const struct audit_queries *q, const struct work *w)
{
    unsigned n = 0;

    for (size_t i = 0; i < AUDIT_QUERIES_AT_ONCE; i++)
        n += q->running[i] && strcmp(q->running[i]->filter.tenant, w->filter.tenant) == 0;
    return n;
}

/* Of those that wait, the first of a tenant that has fewest running: so one tenant's questions run
 * side by side only where no other tenant's wait. */
static struct work *next_of(const struct audit_queries *q)
{
    struct work *best = NULL;

    for (struct work *w = q->waiting; w; w = w->next)
        if (!best || running_of(q, w) < running_of(q, best))
            best = w;
    return best;
}

static void run_next(struct audit_queries *q)
{
    struct work **slot, *w;

    while ((slot = free_slot(q)) && (w = next_of(q))) {
        unlink_waiting(q, w);
        w->next = NULL;
        w->running = true;
        *slot = w;
        uv_queue_work(w->egress->loop, &w->work, do_work, on_done);
    }
}

static void wait_for_turn(struct audit_queries *q, struct work *w)
{
    struct work **at = &q->waiting;

    while (*at)
        at = &(*at)->next;
    *at = w;
    run_next(q);
}

/* The tenant's log, or every one where none is asked about. */
static int take_sources(struct work *w)
{
    const struct audit_log *all = audit_store_first(audit_files(w->egress->audit));
    size_t n = 0;

    for (const struct audit_log *l = all; l; l = l->next)
        n++;
    w->sources = calloc(MAX(n, (size_t)1), sizeof(*w->sources));
    if (!w->sources)
        return -ENOMEM;
    for (const struct audit_log *l = all; l; l = l->next)
        if (!*w->filter.tenant || strcmp(l->tenant, w->filter.tenant) == 0)
            w->sources[w->n_sources++] = *l;
    return 0;
}

static struct work *work_new(struct egress *eg, struct http_exchange *x, const struct filter *f)
{
    struct work *w = calloc(1, sizeof(*w));
    char follow[8];

    if (!w)
        return NULL;
    w->egress = eg;
    w->x = x;
    w->filter = *f;
    w->work.data = w;
    w->place.fd = -1;
    w->follow = http_query_get(http_exchange_head(x)->query, "follow", follow, sizeof(follow)) > 0;
    snprintf(w->dir, sizeof(w->dir), "%s", eg->config.state_dir);
    if (take_sources(w) == 0)
        return w;
    free_work(w);
    return NULL;
}

static struct share *take_place(struct audit_queries *q, const char *tenant)
{
    return share_held(q->shares, tenant, NULL) < AUDIT_QUERIES_EACH
               ? share_take(q->shares, tenant, NULL)
               : NULL;
}

static void start(struct egress *eg, struct http_exchange *x, bool verify)
{
    struct audit_queries *q = eg->audit_queries;
    struct filter f = {.limit = 0};
    struct share *share;
    struct work *w;

    if (!verify && take_filter(http_exchange_head(x)->query, &f) < 0) {
        http_respond_error(x, 400, "tenant, sandbox, verdict, since or limit is malformed");
        return;
    }
    share = take_place(q, f.tenant);
    if (!share) {
        http_respond_error(x, 429,
                           "%u questions about the audit log are answered already: wait for them",
                           AUDIT_QUERIES_EACH);
        return;
    }
    audit_flush(eg->audit);
    w = work_new(eg, x, &f);
    if (!w) {
        share_return(share);
        http_respond_error(x, 503, "out of memory");
        return;
    }
    w->share = share;
    w->verify = verify;
    w->check = (struct audit_checking){.store = audit_files(eg->audit),
                                       .dir = w->dir,
                                       .sources = w->sources,
                                       .n_sources = w->n_sources,
                                       .canceled = &w->canceled};
    http_exchange_set(x, w, on_exchange_end);
    if (verify && !has_next(w))
        finish(w);
    else
        wait_for_turn(q, w);
}

void audit_query_start(struct egress *eg, struct http_exchange *x)
{
    start(eg, x, false);
}

void audit_verify_start(struct egress *eg, struct http_exchange *x)
{
    start(eg, x, true);
}
