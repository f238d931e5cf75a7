#include "egress/rewrite.h"

#include "egress/reflect.h"
#include "http/parse.h"

#include <errno.h>
#include <string.h>

#define METHOD_SIZE   32
#define TUNNEL_PASSES 3 /* redact_set_lenient: each side may wait for the other's last byte */

enum request_state {
    REQUEST_HEAD,    /* of the next one */
    REQUEST_COLLECT, /* its body is held */
    REQUEST_PASS
};

enum response_state {
    RESPONSE_NONE, /* nothing was asked */
    RESPONSE_HEAD,
    RESPONSE_BODY,
    RESPONSE_TUNNEL,
    RESPONSE_REFUSED
};

struct rewrite {
    struct rewrite_job *job;
    struct redact *redact;
    enum request_state request;
    enum response_state response;
    char method[METHOD_SIZE];
    struct buf head; /* of the request; then the body that is collected stands in body */
    struct buf body;
    size_t scanned;
    struct buf answer; /* its head in the making */
    size_t answer_scanned;
    struct parse_body parse;
};

/* -- jobs -------------------------------------------------------------------------------------- */

static void wipe(struct buf *b)
{
    if (b->base)
        explicit_bzero(b->base, b->cap);
    buf_free(b);
}

struct rewrite_job *rewrite_job_new(void)
{
    struct rewrite_job *job = calloc(1, sizeof(*job));

    if (job)
        buf_init(&job->lines, REWRITE_LINES_MAX);
    return job;
}

void rewrite_job_free(struct rewrite_job *job)
{
    if (!job)
        return;
    if (job->free_arg)
        job->free_arg(job->arg);
    if (job->target)
        explicit_bzero(job->target, strlen(job->target));
    free(job->target);
    wipe(&job->lines);
    free(job);
}

/* -- requests ---------------------------------------------------------------------------------- */

static int note_method(struct rewrite *w)
{
    size_t n = strcspn(w->head.data, " ");

    if (n == 0 || n >= sizeof(w->method))
        return -EBADMSG;
    memcpy(w->method, w->head.data, n);
    w->method[n] = '\0';
    return 0;
}

/* The first line with its target replaced. */
static int put_first_line(struct rewrite *w, size_t line, struct buf *out)
{
    const char *target = w->job ? w->job->target : NULL;
    const char *version = memrchr(w->head.data, ' ', line);
    int rc;

    if (!target)
        return buf_append(out, w->head.data, line);
    if (!version)
        return -EBADMSG;
    rc = buf_printf(out, "%s %s", w->method, target);
    return rc < 0 ? rc : buf_append(out, version, line - (size_t)(version - w->head.data));
}

/* The head with what the job has for it. Room for all of it is made first: a buffer that grows leaves
 * copies behind. */
static int put_head(struct rewrite *w, struct buf *out)
{
    size_t line = strcspn(w->head.data, "\r"), end = w->head.len - 2; /* without the last CRLF */
    size_t room = w->head.len + w->body.len + 128;
    int rc;

    if (w->job)
        room += w->job->lines.len + (w->job->target ? strlen(w->job->target) : 0);
    rc = buf_reserve(out, room);
    if (rc == 0)
        rc = put_first_line(w, line, out);
    if (rc == 0)
        rc = buf_append(out, w->head.data + line, end - line);
    if (rc == 0 && w->job && w->job->lines.len > 0)
        rc = buf_append(out, w->job->lines.data, w->job->lines.len);
    if (rc == 0 && w->request == REQUEST_COLLECT)
        rc = buf_printf(out, "Content-Length: %zu\r\n", w->body.len);
    return rc == 0 ? buf_append(out, "\r\n", 2) : rc;
}

/* What was held leaves, and the rest of the request follows as it comes. */
static int let_go(struct rewrite *w, struct buf *out)
{
    int rc = put_head(w, out);

    if (rc == 0 && w->body.len > 0)
        rc = buf_append(out, w->body.data, w->body.len);
    buf_free(&w->head);
    wipe(&w->body);
    rewrite_job_free(TAKE_PTR(w->job));
    w->request = REQUEST_PASS;
    return rc;
}

static int collect(struct rewrite *w, const char *data, size_t n, struct buf *out)
{
    size_t take = MIN(n, w->job->body_bytes - w->body.len);
    int rc = buf_append(&w->body, data, take);

    if (rc < 0 || w->body.len < w->job->body_bytes)
        return rc;
    if (w->job->finish)
        rc = w->job->finish(w->job, &w->body);
    if (rc == 0)
        rc = let_go(w, out);
    return rc == 0 && take < n ? buf_append(out, data + take, n - take) : rc;
}

static int begin_request(struct rewrite *w, struct buf *out)
{
    int rc = note_method(w);

    if (rc < 0)
        return rc;
    w->response = RESPONSE_HEAD;
    if (w->job && w->job->collect) {
        w->request = REQUEST_COLLECT;
        return w->job->body_bytes == 0 ? collect(w, "", 0, out) : 0;
    }
    return let_go(w, out);
}

static int on_head_bytes(struct rewrite *w, const char *data, size_t n, struct buf *out)
{
    CLEANUP_BUF struct buf rest;
    int rc = buf_append(&w->head, data, n);
    ssize_t end;

    buf_init(&rest, TLSEND_READ_BYTES + HTTP_MAX_HEAD_BYTES);
    if (rc < 0)
        return rc;
    end = gate_head_end(w->head.data, w->head.len, &w->scanned);
    if (end <= 0)
        return end < 0 ? -EBADMSG : 0;
    rc = buf_append(&rest, w->head.data + end, w->head.len - (size_t)end);
    w->head.len = (size_t)end;
    w->head.data[end] = '\0';
    w->scanned = 0;
    if (rc == 0)
        rc = begin_request(w, out);
    if (rc < 0 || rest.len == 0)
        return rc;
    return w->request == REQUEST_COLLECT ? collect(w, rest.data, rest.len, out)
                                         : buf_append(out, rest.data, rest.len);
}

static int outward(void *arg, const char *data, size_t n, struct buf *out)
{
    struct rewrite *w = arg;

    switch (w->request) {
    case REQUEST_HEAD: return on_head_bytes(w, data, n, out);
    case REQUEST_COLLECT: return collect(w, data, n, out);
    default: return buf_append(out, data, n);
    }
}

/* -- responses --------------------------------------------------------------------------------- */

static int refuse(struct rewrite *w, const char *why, struct buf *out)
{
    CLEANUP_BUF struct buf body;
    int rc;

    buf_init(&body, 1024);
    rc = buf_printf(&body, "{\"error\":\"egress_unreachable\",\"message\":\"%s\"}", why);
    w->response = RESPONSE_REFUSED;
    return rc < 0 ? rc
                  : buf_printf(out,
                               "HTTP/1.1 502 Bad Gateway\r\nContent-Type: application/json\r\n"
                               "Connection: close\r\nContent-Length: %zu\r\n\r\n%s",
                               body.len, body.data);
}

static bool is_encoded(const struct http_head *h)
{
    for (size_t i = 0; i < h->header_count; i++)
        if (reflect_is_coded(&h->headers[i]))
            return true;
    return false;
}

static int after_head(struct rewrite *w, const struct http_head *h, size_t n, struct buf *out)
{
    int rc;

    if (h->status >= 200 && h->framing != HTTP_BODY_NONE && is_encoded(h))
        return refuse(w, REFLECT_CODED_REASON, out);
    if (reflect_is_part(h->status, http_head_get(h, "content-type")))
        return refuse(w, REFLECT_PART_REASON, out);
    rc = redact_feed(w->redact, w->answer.data, n, true);
    if (rc == 0)
        rc = redact_take(w->redact, true, out);
    if (rc < 0)
        return rc;
    if (h->status == 101) {
        w->response = RESPONSE_TUNNEL;
        redact_set_lenient(w->redact, TUNNEL_PASSES);
    } else if (h->status >= 200 && !w->parse.done) {
        w->response = RESPONSE_BODY;
    } else if (h->status >= 200) {
        w->response = RESPONSE_NONE;
        w->request = REQUEST_HEAD;
    }
    return 0;
}

/* A whole head in w->answer, or 0 for more. */
static ssize_t take_head(struct rewrite *w, struct buf *out)
{
    ssize_t n = gate_head_end(w->answer.data, w->answer.len, &w->answer_scanned);
    CLEANUP_FREE char *storage = NULL;
    struct http_head head;
    const char *why = "";
    int rc;

    if (n < 0 || (n == 0 && w->answer.len > HTTP_MAX_HEAD_BYTES))
        return -EBADMSG;
    if (n == 0)
        return 0;
    storage = malloc(gate_storage_bytes((size_t)n));
    if (!storage)
        return -ENOMEM;
    if (parse_response(w->answer.data, (size_t)n, w->method, storage, &head, &w->parse, &why) != 0)
        return -EBADMSG;
    w->answer_scanned = 0;
    rc = after_head(w, &head, (size_t)n, out);
    return rc < 0 ? rc : n;
}

static int on_body(struct rewrite *w, const char *data, size_t n, size_t *used, struct buf *out)
{
    int rc = 0;

    *used = 0;
    while (rc == 0 && *used < n && !w->parse.done) {
        const char *at = data + *used;
        struct parse_piece piece;
        size_t before;

        if (parse_body_next(&w->parse, at, n - *used, &piece) < 0)
            return -EBADMSG;
        before = piece.len > 0 ? (size_t)(piece.data - at) : piece.used;
        rc = redact_feed(w->redact, at, before, false);
        if (rc == 0 && piece.len > 0)
            rc = redact_feed(w->redact, piece.data, piece.len, true);
        if (rc == 0 && piece.len > 0)
            rc = redact_feed(w->redact, piece.data + piece.len, piece.used - before - piece.len,
                             false);
        *used += piece.used;
    }
    if (rc == 0)
        rc = redact_take(w->redact, w->parse.done, out);
    if (w->parse.done) {
        w->response = RESPONSE_NONE;
        w->request = REQUEST_HEAD;
    }
    return rc;
}

static int on_answer_bytes(struct rewrite *w, const char *data, size_t n, struct buf *out)
{
    int rc = buf_append(&w->answer, data, n);

    while (rc == 0 && w->response == RESPONSE_HEAD && w->answer.len > 0) {
        ssize_t end = take_head(w, out);

        if (end <= 0)
            return (int)end;
        buf_consume(&w->answer, (size_t)end);
    }
    return rc;
}

static int inward(void *arg, const char *data, size_t n, struct buf *out)
{
    struct rewrite *w = arg;
    CLEANUP_BUF struct buf rest;
    size_t used = 0;
    int rc = 0;

    buf_init(&rest, 0);
    if (!w->redact)
        return buf_append(out, data, n);
    if (w->response == RESPONSE_HEAD) {
        rc = on_answer_bytes(w, data, n, out);
        if (rc < 0 || w->response == RESPONSE_HEAD)
            return rc;
        rest = w->answer;
        buf_init(&w->answer, rest.max);
        data = rest.data;
        n = rest.len;
    }
    while (rc == 0 && n > 0) {
        used = n;
        if (w->response == RESPONSE_BODY) {
            rc = on_body(w, data, n, &used, out);
        } else if (w->response == RESPONSE_TUNNEL) {
            rc = redact_feed(w->redact, data, n, true);
            if (rc == 0)
                rc = redact_take(w->redact, false, out);
        } else if (w->response == RESPONSE_NONE) {
            rc = -EBADMSG; /* more than one answer to one request */
        }
        data += used;
        n -= used;
    }
    return rc;
}

static int inward_end(void *arg, bool clean, struct buf *out)
{
    struct rewrite *w = arg;

    return w->redact ? redact_take(w->redact, true, out) : 0;
}

/* -- the filter -------------------------------------------------------------------------------- */

static bool active(void *arg)
{
    const struct rewrite *w = arg;

    return w->redact || w->job || w->request == REQUEST_COLLECT;
}

static void drop(void *arg)
{
    struct rewrite *w = arg;

    rewrite_job_free(w->job);
    redact_free(w->redact);
    buf_free(&w->head);
    wipe(&w->body);
    buf_free(&w->answer);
    free(w);
}

const struct tlspipe_filter rewrite_filter = {active, outward, inward, inward_end, drop};

struct rewrite *rewrite_new(void)
{
    struct rewrite *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    buf_init(&w->head, HTTP_MAX_HEAD_BYTES * 2 + TLSEND_READ_BYTES);
    buf_init(&w->body, (size_t)2 * REWRITE_BODY_MAX);
    buf_init(&w->answer, HTTP_MAX_HEAD_BYTES + TLSEND_READ_BYTES);
    return w;
}

void rewrite_set(struct rewrite *w, struct rewrite_job *job, struct redact *redact)
{
    rewrite_job_free(w->job);
    redact_free(w->redact);
    w->job = job;
    w->redact = redact;
    w->request = REQUEST_HEAD;
    w->response = RESPONSE_NONE;
    w->method[0] = '\0';
    w->scanned = w->answer_scanned = 0;
    buf_free(&w->head);
    buf_clear(&w->answer);
}

bool rewrite_has(const struct tlspipe *p)
{
    return tlspipe_filter_arg(p) != NULL;
}

int rewrite_prepare(struct tlspipe *p, struct rewrite_job *job, struct redact *redact)
{
    struct rewrite *w = tlspipe_filter_arg(p);

    if (!w) {
        w = rewrite_new();
        if (!w) {
            rewrite_job_free(job);
            redact_free(redact);
            return -ENOMEM;
        }
        tlspipe_set_filter(p, &rewrite_filter, w);
    }
    rewrite_set(w, job, redact);
    return 0;
}
