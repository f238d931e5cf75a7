/* For each request a job is set before its head passes; the filter then reads the head from the
 * stream, writes it anew, and collects or follows the body by its framing, until the next head.
 * Answers are matched to requests in order (rewrite_answer.c). A request without a job passes
 * as it is. Errors cut the connection: half of a rewritten request must not be followed by
 * anything. */

#include "egress/http/rewrite_internal.h"

#include <errno.h>
#include <string.h>

/* -- jobs -------------------------------------------------------------------------------------- */

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
    rewrite_wipe(&job->lines);
    credential_use_free(job->use);
    held_body_return(&job->held);
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

/* The head with what the job has for it. Room for all of it is made first: a buffer that grows
 * leaves copies behind. */
static int put_head(struct rewrite *w, struct buf *out)
{
    size_t line = strcspn(w->head.data, "\r"), end = w->head.len - 2; /* without the last CRLF */
    size_t needed = w->head.len + MAX(w->body.len, w->chunked.len) + 128;
    int rc;

    if (w->job)
        needed += w->job->lines.len + (w->job->target ? strlen(w->job->target) : 0);
    rc = buf_reserve(out, needed);
    if (rc == 0)
        rc = put_first_line(w, line, out);
    if (rc == 0)
        rc = buf_append(out, w->head.data + line, end - line);
    if (rc == 0 && w->job && w->job->lines.len > 0)
        rc = buf_append(out, w->job->lines.data, w->job->lines.len);
    if (rc == 0 && w->request == REQUEST_COLLECT && !w->job->chunked)
        rc = buf_printf(out, "Content-Length: %zu\r\n", w->body.len);
    return rc == 0 ? buf_append(out, "\r\n", 2) : rc;
}

/* The body as one chunk, and its end. */
static int put_chunks(struct rewrite *w, struct buf *out)
{
    int rc = 0;

    if (w->body.len > 0)
        rc = buf_printf(out, "%zx\r\n", w->body.len);
    if (rc == 0 && w->body.len > 0)
        rc = buf_append(out, w->body.data, w->body.len);
    return rc == 0 ? buf_append_str(out, w->body.len > 0 ? "\r\n0\r\n\r\n" : "0\r\n\r\n") : rc;
}

/* The held bytes leave, and the rest of the request follows as it comes. */
static int let_go(struct rewrite *w, struct buf *out)
{
    bool chunks = w->request == REQUEST_COLLECT && w->job->chunked;
    int rc = put_head(w, out);

    if (rc == 0 && chunks && w->sent.done)
        rc = put_chunks(w, out);
    else if (rc == 0 && chunks) /* too long for a change: as it came */
        rc = buf_append(out, w->chunked.data, w->chunked.len);
    else if (rc == 0 && w->body.len > 0)
        rc = buf_append(out, w->body.data, w->body.len);
    buf_free(&w->head);
    rewrite_wipe(&w->body);
    rewrite_wipe(&w->chunked);
    if (w->job)
        held_body_move(&w->held, &w->job->held);
    rewrite_job_free(TAKE_PTR(w->job));
    w->request = REQUEST_PASS;
    return rc;
}

/* The contents of n bytes with chunk lines. */
static int follow_chunks(struct rewrite *w, const char *data, size_t n)
{
    int rc = 0;

    while (rc == 0 && n > 0 && !w->sent.done) {
        struct parse_piece piece;

        rc = parse_body_next(&w->sent, data, n, &piece);
        if (rc == 0 && piece.len > 0)
            rc = buf_append(&w->body, piece.data, piece.len);
        if (rc == 0) {
            data += piece.used;
            n -= piece.used;
        }
    }
    return rc == 0 && n > 0 ? -EBADMSG : rc; /* the relay sends one request at a time */
}

/* A longer one than may be held goes on as it is; where all of it has to be known, it does not. */
static int collect_chunks(struct rewrite *w, const char *data, size_t n, struct buf *out)
{
    int rc = buf_append(&w->chunked, data, n);

    if (rc == 0)
        rc = follow_chunks(w, data, n);
    if (rc < 0)
        return rc;
    if (w->sent.done) {
        rc = w->job->finish ? w->job->finish(w->job, &w->body) : 0;
        return rc == 0 ? let_go(w, out) : rc;
    }
    if (w->chunked.len <= REWRITE_BODY_MAX)
        return 0;
    return w->job->whole ? -EMSGSIZE : let_go(w, out);
}

/* Reads the head once more, for how its body comes. */
static int begin_chunks(struct rewrite *w)
{
    CLEANUP_FREE char *storage = malloc(gate_storage_bytes(w->head.len));
    struct http_head head;
    const char *why = "";

    if (!storage)
        return -ENOMEM;
    return parse_request(w->head.data, w->head.len, storage, &head, &w->sent, &why) == 0 &&
                   head.framing == HTTP_BODY_CHUNKED
               ? 0
               : -EBADMSG;
}

static int collect(struct rewrite *w, const char *data, size_t n, struct buf *out)
{
    size_t take = w->job->chunked ? 0 : MIN(n, w->job->body_bytes - w->body.len);
    int rc;

    if (w->job->chunked)
        return collect_chunks(w, data, n, out);
    rc = buf_append(&w->body, data, take);
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
        if (w->job->chunked)
            return begin_chunks(w);
        return w->job->body_bytes == 0 ? collect(w, "", 0, out) : 0;
    }
    return let_go(w, out);
}

static int on_head_bytes(struct rewrite *w, const char *data, size_t n, struct buf *out)
{
    CLEANUP_BUF struct buf rest;
    int rc = buf_append(&w->head, data, n);
    ssize_t end;

    buf_init(&rest, TLS_ENDPOINT_READ_BYTES + HTTP_MAX_HEAD_BYTES);
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

int rewrite_outward(struct rewrite *w, const char *data, size_t n, struct buf *out)
{
    switch (w->request) {
    case REQUEST_HEAD: return on_head_bytes(w, data, n, out);
    case REQUEST_COLLECT: return collect(w, data, n, out);
    default: return buf_append(out, data, n);
    }
}

/* -- the filter -------------------------------------------------------------------------------- */

bool rewrite_is_active(const struct rewrite *w)
{
    return w->redact || w->job || w->request == REQUEST_COLLECT;
}

void rewrite_free(struct rewrite *w)
{
    if (!w)
        return;
    rewrite_job_free(w->job);
    redact_free(w->redact);
    credential_use_free(w->use);
    buf_free(&w->head);
    rewrite_wipe(&w->body);
    rewrite_wipe(&w->chunked);
    unzip_free(w->unzip);
    rewrite_wipe(&w->answer);
    held_body_return(&w->held);
    free(w);
}

struct rewrite *rewrite_new(void)
{
    struct rewrite *w = calloc(1, sizeof(*w));

    if (!w)
        return NULL;
    buf_init(&w->head, HTTP_MAX_HEAD_BYTES * 2 + TLS_ENDPOINT_READ_BYTES);
    buf_init(&w->body, (size_t)2 * REWRITE_BODY_MAX);
    buf_init(&w->chunked, (size_t)REWRITE_BODY_MAX + TLS_ENDPOINT_READ_BYTES);
    buf_init(&w->answer, HTTP_MAX_HEAD_BYTES + TLS_ENDPOINT_READ_BYTES);
    return w;
}

void rewrite_set(struct rewrite *w, struct rewrite_job *job, struct redact *redact)
{
    rewrite_job_free(w->job);
    redact_free(w->redact);
    credential_use_free(w->use);
    held_body_return(&w->held);
    w->use = job ? TAKE_PTR(job->use) : NULL;
    w->job = job;
    w->redact = redact;
    w->request = REQUEST_HEAD;
    w->response = RESPONSE_NONE;
    w->method[0] = '\0';
    w->scanned = w->answer_scanned = 0;
    w->cut = false;
    w->pause_ms = 0;
    w->frames = (struct frames){.kind = FRAMES_NONE};
    unzip_free(TAKE_PTR(w->unzip));
    rewrite_wipe(&w->chunked);
    buf_free(&w->head);
    buf_clear(&w->answer);
}
