/* A question is waiting (in the order of coming, within a tenant's share), running (a helper
 * thread reads one slice: audit_read.c), between two slices (back to the
 * line's end of waiting, so that others have their turn), done (its lines are sent from the
 * loop, as the client takes them), or dropped (its client has gone: at its next block). A
 * verification reads a whole log in one piece, one at a time. Threads see a question's own memory
 * and files by name; everything else is the loop's. */

#include "egress/control/audit_query.h"

#include "base/share.h"
#include "base/util.h"
#include "egress/control/audit_check.h"
#include "egress/control/audit_read.h"
#include "egress/flow/audit.h"
#include "egress/flow/egress.h"
#include "http/server.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <uv.h>

#define HELPER_NICE 10
#define LATER_MAX   ((size_t)1024 * 1024)

/* A piece of work for a helper thread. The exchange may be gone when it is done. */
struct work {
    uv_work_t work;
    struct work *next; /* that waits behind it */
    struct egress *egress;
    struct http_exchange *x; /* NULL: gone */
    struct share *share;
    char dir[4096];
    bool follow, verify, running, done; /* done: only lines to be sent, or a follower, are left */
    uint64_t follower;
    struct buf later; /* lines that came while those that were read are sent */
    struct audit_reading reading;
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

/* -- on a helper thread ------------------------------------------------------------------------ */

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
        w->rc = audit_read_slice(&w->reading, dir_fd);
}

/* -- on the loop ------------------------------------------------------------------------------- */

static void free_work(struct work *w)
{
    audit_read_close(&w->reading);
    audit_check_close(&w->check);
    buf_free(&w->later);
    free(w);
}

/* Its place, once nothing of what was read is held any more. */
static void return_share(struct work *w)
{
    if (w->share)
        share_return(TAKE_PTR(w->share));
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
    w->reading.canceled = 1;
    audit_unfollow(w->egress->audit, w->follower);
    if (w->running)
        return;
    if (!w->done)
        unlink_waiting(w->egress->audit_queries, w);
    return_share(w);
    free_work(w);
}

/* 1: it does not take what there is. */
static int add_line(struct work *w, const char *line, size_t n)
{
    if (w->reading.n_lines > 0)
        return buf_append(&w->later, line, n) < 0 || buf_append(&w->later, "\n", 1) < 0;
    http_response_write(w->x, line, n);
    return http_response_write(w->x, "\n", 1);
}

static void on_line(void *arg, const char *line, size_t n)
{
    struct work *w = arg;
    bool old;
    int fits = w->x ? audit_filter_fits(&w->reading.filter, line, n, &old) : 0;

    if (fits == 0)
        return;
    /* It does not read, or memory is out: a part is not to look like the whole. */
    if (fits < 0 || add_line(w, line, n) == 1)
        http_exchange_abort(w->x);
}

/* The oldest; 1: the client has to take it first. */
static int send_line(struct work *w)
{
    char *line = w->reading.lines[--w->reading.n_lines];
    int full = http_response_write(w->x, line, strlen(line));

    free(line);
    return full;
}

/* As many as the client takes: 10,000 at once would take milliseconds of the loop of all. */
static void send_more(struct http_exchange *x, void *data)
{
    struct work *w = data;

    while (w->reading.n_lines > 0)
        if (send_line(w) == 1 && w->reading.n_lines > 0)
            return;
    http_response_on_drain(x, NULL);
    if (w->later.len > 0)
        http_response_write(x, w->later.data, w->later.len);
    buf_free(&w->later);
    return_share(w);
    if (!w->follower)
        http_response_end(x);
}

static void send_lines(struct work *w)
{
    static const struct http_header type = {"Content-Type", "application/x-ndjson"};

    buf_init(&w->later, LATER_MAX);
    http_response_begin(w->x, 200, &type, 1, -1);
    http_response_on_drain(w->x, send_more);
    if (w->follow)
        w->follower = audit_follow(w->egress->audit, on_line, w);
    send_more(w->x, w);
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
                     (unsigned long long)c->rotated, w->reading.n_sources);

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
    return w->verify ? has_next(w) : w->reading.more;
}

static void finish(struct work *w)
{
    struct audit_queries *q = w->egress->audit_queries;

    w->done = true;
    if (!w->x || w->rc < 0 || w->verify)
        return_share(w);
    run_next(q);
    if (!w->x)
        free_work(w);
    else if (w->rc < 0)
        http_respond_error(w->x, w->rc == -ENOMEM ? 503 : 500, "the audit log cannot be read: %s",
                           strerror(-w->rc));
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
        n += q->running[i] &&
             strcmp(q->running[i]->reading.filter.tenant, w->reading.filter.tenant) == 0;
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
    w->reading.sources = calloc(MAX(n, (size_t)1), sizeof(*w->reading.sources));
    if (!w->reading.sources)
        return -ENOMEM;
    for (const struct audit_log *l = all; l; l = l->next)
        if (!*w->reading.filter.tenant || strcmp(l->tenant, w->reading.filter.tenant) == 0)
            w->reading.sources[w->reading.n_sources++] = *l;
    return 0;
}

static struct work *work_new(struct egress *eg, struct http_exchange *x,
                             const struct audit_filter *f)
{
    struct work *w = calloc(1, sizeof(*w));
    char follow[8];

    if (!w)
        return NULL;
    w->egress = eg;
    w->x = x;
    w->reading.filter = *f;
    w->work.data = w;
    w->reading.position.fd = -1;
    w->follow = http_query_get(http_exchange_head(x)->query, "follow", follow, sizeof(follow)) > 0;
    snprintf(w->dir, sizeof(w->dir), "%s", eg->config.state_dir);
    if (take_sources(w) == 0)
        return w;
    free_work(w);
    return NULL;
}

static struct share *take_share(struct audit_queries *q, const char *tenant)
{
    return share_held(q->shares, tenant, NULL) < AUDIT_QUERIES_EACH
               ? share_take(q->shares, tenant, NULL)
               : NULL;
}

static void start(struct egress *eg, struct http_exchange *x, bool verify)
{
    struct audit_queries *q = eg->audit_queries;
    struct audit_filter f = {.limit = 0};
    struct share *share;
    struct work *w;

    if (!verify && audit_filter_read(http_exchange_head(x)->query, &f) < 0) {
        http_respond_error(x, 400, "tenant, sandbox, verdict, since or limit is malformed");
        return;
    }
    share = take_share(q, f.tenant);
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
                                       .sources = w->reading.sources,
                                       .n_sources = w->reading.n_sources,
                                       .canceled = &w->reading.canceled};
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
