#include "egress/audit_query.h"

#include "base/buf.h"
#include "base/util.h"
#include "egress/audit.h"
#include "egress/audit_chain.h"
#include "http/server.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>

#define ANSWER_MAX    (32u * 1024u * 1024u)
#define DEFAULT_LIMIT 100u

struct filter {
    char tenant[EGRESS_TENANT_MAX + 1], sandbox[PRIVSEP_ID_SIZE], verdict[8], since[64];
    size_t limit;
};

/* A piece of work for the helper thread. The exchange may be gone when it is done. */
struct work {
    uv_work_t work;
    struct egress *egress;
    struct http_exchange *x; /* NULL: gone */
    char dir[4096], name[32];
    uint32_t files;
    bool follow;
    uint64_t follower;
    struct filter filter;
    char **lines; /* ring of the newest that fit */
    size_t n_lines, next;
    size_t bytes;
    struct audit_check check;
    int rc;
    bool done; /* only a follower is left */
};

/* -- which lines ------------------------------------------------------------------------------- */

static bool member_is(const json_t *o, const char *key, const char *wanted)
{
    const char *value = json_string_value(json_object_get(o, key));

    return !*wanted || (value && strcmp(value, wanted) == 0);
}

/* Times are all of one form (UTC, milliseconds), so that text order is time order. */
static bool fits(const struct filter *f, const char *line, size_t n)
{
    json_t *o = json_loadb(line, n, 0, NULL);
    const char *time = json_string_value(json_object_get(o, "time"));
    bool ok = o && member_is(o, "tenant", f->tenant) && member_is(o, "sandbox", f->sandbox) &&
              member_is(o, "verdict", f->verdict) &&
              (!*f->since || (time && strcmp(time, f->since) >= 0));

    json_decref(o);
    return ok;
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

/* -- on the helper thread ---------------------------------------------------------------------- */

static void keep_line(struct work *w, char *line, size_t n)
{
    char **place = &w->lines[w->next];

    if (*place)
        w->bytes -= strlen(*place);
    free(*place);
    *place = strndup(line, n);
    w->bytes += n;
    w->next = (w->next + 1) % w->filter.limit;
    w->n_lines = MIN(w->n_lines + 1, w->filter.limit);
}

static int read_file(struct work *w, int dir_fd, const char *name)
{
    int fd = openat(dir_fd, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    char *line = NULL;
    size_t room = 0;
    ssize_t n;
    FILE *f;

    if (fd < 0)
        return errno == ENOENT ? 0 : -errno;
    f = fdopen(fd, "r");
    if (!f) {
        close(fd);
        return -ENOMEM;
    }
    while ((n = getline(&line, &room, f)) > 0)
        if (line[n - 1] == '\n' && fits(&w->filter, line, (size_t)n - 1))
            keep_line(w, line, (size_t)n);
    free(line);
    fclose(f);
    return 0;
}

static void do_query(uv_work_t *req)
{
    struct work *w = req->data;
    CLEANUP_CLOSE int dir_fd = open(w->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
    char older[64];

    w->lines = calloc(w->filter.limit, sizeof(*w->lines));
    w->rc = dir_fd < 0 ? -errno : w->lines ? 0 : -ENOMEM;
    for (uint32_t i = w->files; i > 0 && w->rc == 0; i--) {
        snprintf(older, sizeof(older), "%s.%u", w->name, i);
        w->rc = read_file(w, dir_fd, older);
    }
    if (w->rc == 0)
        w->rc = read_file(w, dir_fd, w->name);
}

static void do_verify(uv_work_t *req)
{
    struct work *w = req->data;
    CLEANUP_CLOSE int dir_fd = open(w->dir, O_PATH | O_DIRECTORY | O_CLOEXEC);

    w->rc = dir_fd < 0 ? -errno : audit_verify(dir_fd, w->name, w->files, &w->check);
}

/* -- on the loop ------------------------------------------------------------------------------- */

static void free_work(struct work *w)
{
    for (size_t i = 0; w->lines && i < w->filter.limit; i++)
        free(w->lines[i]);
    free(w->lines);
    free(w);
}

static void on_exchange_end(struct http_exchange *x, void *data)
{
    struct work *w = data;

    w->x = NULL;
    audit_unfollow(w->egress->audit, w->follower);
    if (w->done)
        free_work(w);
}

static void on_line(void *arg, const char *line, size_t n)
{
    struct work *w = arg;

    if (!w->x || !fits(&w->filter, line, n))
        return;
    http_response_write(w->x, line, n);
    if (http_response_write(w->x, "\n", 1) == 1)
        http_exchange_abort(w->x); /* it does not read: a part is not to look like the whole */
}

static void send_lines(struct work *w)
{
    static const struct http_header type = {"Content-Type", "application/x-ndjson"};
    size_t first = (w->next + w->filter.limit - w->n_lines) % w->filter.limit;

    http_response_begin(w->x, 200, &type, 1, -1);
    for (size_t i = 0; i < w->n_lines; i++) {
        const char *line = w->lines[(first + i) % w->filter.limit];

        if (line)
            http_response_write(w->x, line, strlen(line));
    }
    if (!w->follow) {
        http_response_end(w->x);
        return;
    }
    w->follower = audit_follow(w->egress->audit, on_line, w);
    if (!w->follower)
        http_response_end(w->x);
}

static void on_query_done(uv_work_t *req, int status)
{
    struct work *w = req->data;

    w->done = true;
    if (!w->x) {
        free_work(w);
        return;
    }
    if (w->rc < 0)
        http_respond_error(w->x, 500, "the audit log cannot be read: %s", strerror(-w->rc));
    else
        send_lines(w);
}

static void on_verify_done(uv_work_t *req, int status)
{
    static const struct http_header type = {"Content-Type", "application/json"};
    struct work *w = req->data;
    const struct audit_check *c = &w->check;
    char text[256];
    int n;

    w->done = true;
    if (!w->x) {
        free_work(w);
        return;
    }
    if (w->rc < 0) {
        http_respond_error(w->x, 500, "the audit log cannot be read: %s", strerror(-w->rc));
        return;
    }
    n = snprintf(
        text, sizeof(text),
        "{\"ok\":%s,\"lines\":%llu,\"broken_line\":%llu,\"file\":\"%s\",\"cut_lines\":%llu}",
        c->broken ? "false" : "true", (unsigned long long)c->lines, (unsigned long long)c->broken,
        c->file, (unsigned long long)c->cut);
    http_respond(w->x, 200, &type, 1, text, (size_t)n);
}

static void start(struct egress *eg, struct http_exchange *x, bool verify)
{
    struct work *w = calloc(1, sizeof(*w));
    char follow[8];

    if (!w) {
        http_respond_error(x, 503, "out of memory");
        return;
    }
    if (!verify && take_filter(http_exchange_head(x)->query, &w->filter) < 0) {
        free(w);
        http_respond_error(x, 400, "tenant, sandbox, verdict, since or limit is malformed");
        return;
    }
    w->egress = eg;
    w->x = x;
    w->work.data = w;
    w->files = eg->config.audit_files;
    w->follow = http_query_get(http_exchange_head(x)->query, "follow", follow, sizeof(follow)) > 0;
    snprintf(w->dir, sizeof(w->dir), "%s", eg->config.state_dir);
    snprintf(w->name, sizeof(w->name), "audit-%u.log", eg->config.shard);
    http_exchange_set(x, w, on_exchange_end);
    audit_flush(eg->audit);
    uv_queue_work(eg->loop, &w->work, verify ? do_verify : do_query,
                  verify ? on_verify_done : on_query_done);
}

void audit_query_start(struct egress *eg, struct http_exchange *x)
{
    start(eg, x, false);
}

void audit_verify_start(struct egress *eg, struct http_exchange *x)
{
    start(eg, x, true);
}
