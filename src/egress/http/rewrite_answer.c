/* The way back of the filter: each answer's head is read and searched, its body
 * followed by its framing, decompressed where a secret may be in it, searched, and held back
 * while one may have begun; a pause of the sender lets go of what is no secret so far. After
 * 101 or for messages the rest is searched message by message. An answer that cannot be searched is
 * refused, with an answer made here, before any byte of it passes. */

#include "egress/http/rewrite_internal.h"

#include "egress/credential/response_secrets.h"
#include "egress/http/answer_kind.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

void rewrite_wipe(struct buf *b)
{
    if (b->base)
        explicit_bzero(b->base, b->cap);
    buf_free(b);
}

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

static struct answer_kind kind_of(const struct http_head *h)
{
    struct answer_kind k = {.coding = UNZIP_NONE};

    for (size_t i = 0; i < h->header_count; i++)
        answer_kind_header(&k, h->headers[i].name, h->headers[i].value);
    return k;
}

/* -- compressed -------------------------------------------------------------------------------- */

/* The head of an answer that is decompressed here: in chunks, since its length is not known. */
static int put_unzipped_head(const struct rewrite *w, const struct http_head *h, struct buf *out)
{
    static const char version[] = "HTTP/1.1";
    size_t line = strcspn(w->answer.data, "\r"), start = sizeof(version) - 1;
    int rc = line < start ? -EBADMSG
                          : buf_printf(out, "%s%.*s\r\n", version, (int)(line - start),
                                       w->answer.data + start);

    for (size_t i = 0; i < h->header_count && rc == 0; i++)
        if (!response_secrets_is_of_coded(h->headers[i].name) &&
            strcasecmp(h->headers[i].name, "transfer-encoding") != 0)
            rc = buf_printf(out, "%s: %s\r\n", h->headers[i].name, h->headers[i].value);
    if (rc == 0 && !h->keep_alive && !http_head_get(h, "connection"))
        rc = buf_append_str(out, "Connection: close\r\n");
    return rc == 0 ? buf_append_str(out, "Transfer-Encoding: chunked\r\n\r\n") : rc;
}

static int begin_unzip(struct rewrite *w, const struct http_head *h, enum unzip_coding coding,
                       struct buf *out)
{
    CLEANUP_BUF struct buf head;
    int rc;

    buf_init(&head, HTTP_MAX_HEAD_BYTES * 2);
    w->unzip = unzip_new(coding, 2 * TLS_ENDPOINT_READ_BYTES + HTTP_MAX_HEAD_BYTES);
    rc = w->unzip ? put_unzipped_head(w, h, &head) : -ENOMEM;
    if (rc == 0)
        rc = redact_feed(w->redact, head.data, head.len, true);
    return rc == 0 ? redact_take(w->redact, true, out) : rc;
}

static int put_chunk(struct buf *out, const struct buf *b)
{
    int rc = b->len > 0 ? buf_printf(out, "%zx\r\n", b->len) : 0;

    if (rc == 0 && b->len > 0)
        rc = buf_append(out, b->data, b->len);
    return rc == 0 && b->len > 0 ? buf_append(out, "\r\n", 2) : rc;
}

/* Some of what waits, searched. > 0, 0: there was none, or -errno. */
static int unzip_step(struct rewrite *w, struct buf *out)
{
    CLEANUP_BUF struct buf raw, clean;
    int n, rc;

    buf_init(&raw, UNZIP_STEP_BYTES);
    buf_init(&clean, REDACT_WINDOW_MAX);
    n = unzip_next(w->unzip, &raw);
    if (n <= 0)
        return n;
    rc = frames_redact(&w->frames, w->redact, raw.data, raw.len);
    if (rc == 0)
        rc = redact_take(w->redact, false, &clean);
    if (rc == 0)
        rc = put_chunk(out, &clean);
    return rc < 0 ? rc : n;
}

static int end_unzip(struct rewrite *w, struct buf *out)
{
    CLEANUP_BUF struct buf clean;
    int rc = unzip_is_whole(w->unzip) ? 0 : -EBADMSG;

    buf_init(&clean, REDACT_WINDOW_MAX);
    if (rc == 0)
        rc = redact_take(w->redact, true, &clean);
    if (rc == 0)
        rc = put_chunk(out, &clean);
    if (rc == 0)
        rc = buf_append_str(out, "0\r\n\r\n");
    unzip_free(TAKE_PTR(w->unzip));
    w->response = RESPONSE_NONE;
    return rc;
}

/* As much as a reader may be given at once; the rest waits until it has that. */
int rewrite_inward_more(struct rewrite *w, struct buf *out)
{
    size_t most = out->len + 4 * UNZIP_STEP_BYTES;
    int rc = 1;

    while (w->unzip && rc > 0 && out->len < most)
        rc = unzip_step(w, out);
    if (rc < 0 || !w->unzip || rc > 0)
        return rc < 0 ? rc : 0;
    return w->parse.done || w->cut ? end_unzip(w, out) : 0;
}

/* -- heads ------------------------------------------------------------------------------------- */

/* A body whose length is known is not waited for byte by byte: all of it is to come. Conversations
 * are read message by message. */
static void choose_reading(struct rewrite *w, const struct http_head *h, const char *type)
{
    const char *upgrade = http_head_get(h, "upgrade");

    if (h->status == 101 && upgrade && strcasecmp(upgrade, "websocket") == 0) {
        w->frames.kind = FRAMES_WEBSOCKET;
        w->pause_ms = REDACT_BODY_PAUSE_MS;
    } else if (h->status == 101) {
        w->pause_ms = REDACT_TUNNEL_PAUSE_MS;
    } else if (h->status >= 200 && h->framing != HTTP_BODY_LENGTH) {
        w->pause_ms = REDACT_BODY_PAUSE_MS;
    }
    if (h->status >= 200)
        w->frames.kind = frames_kind_of(type);
}

/* None was offered (inject.c): contents would be compressed, or framed otherwise. */
static bool has_extension(const struct http_head *h)
{
    return h->status == 101 && http_head_get(h, "sec-websocket-extensions");
}

static int after_head(struct rewrite *w, const struct http_head *h, size_t n, struct buf *out)
{
    bool has_body = h->status >= 200 && h->framing != HTTP_BODY_NONE;
    const struct answer_kind kind = kind_of(h);
    enum unzip_coding coding = has_body ? kind.coding : UNZIP_NONE;
    const char *why = answer_kind_refusal(&kind, h->status);
    int rc;

    if (w->use && h->status == 401)
        credential_use_rejected(w->use);
    if (coding == UNZIP_OTHER)
        return refuse(w, ANSWER_KIND_CODED_REASON, out);
    if (has_extension(h))
        return refuse(w, RESPONSE_SECRETS_EXTENSION_REASON, out);
    if (why)
        return refuse(w, why, out);
    choose_reading(w, h, kind.type);
    if (coding != UNZIP_NONE && !w->parse.done) {
        w->response = RESPONSE_BODY;
        return begin_unzip(w, h, coding, out);
    }
    rc = redact_feed(w->redact, w->answer.data, n, true);
    if (rc == 0)
        rc = redact_take(w->redact, true, out);
    if (rc < 0)
        return rc;
    if (h->status == 101) {
        w->response = RESPONSE_TUNNEL;
    } else if (h->status >= 200 && !w->parse.done) {
        w->response = RESPONSE_BODY;
    } else if (h->status >= 200) {
        w->response = RESPONSE_NONE;
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
        *used += piece.used;
        if (w->unzip) {
            rc = unzip_feed(w->unzip, piece.data, piece.len);
            continue;
        }
        before = piece.len > 0 ? (size_t)(piece.data - at) : piece.used;
        rc = redact_feed(w->redact, at, before, false);
        if (rc == 0 && piece.len > 0)
            rc = frames_redact(&w->frames, w->redact, piece.data, piece.len);
        if (rc == 0 && piece.len > 0)
            rc = redact_feed(w->redact, piece.data + piece.len, piece.used - before - piece.len,
                             false);
    }
    if (w->unzip)
        return rc == 0 ? rewrite_inward_more(w, out) : rc;
    if (rc == 0)
        rc = redact_take(w->redact, w->parse.done, out);
    if (w->parse.done)
        w->response = RESPONSE_NONE;
    return rc;
}

/* Messages pass when they are whole. */
static int on_tunnel(struct rewrite *w, const char *data, size_t n, struct buf *out)
{
    int rc = frames_redact(&w->frames, w->redact, data, n);

    return rc == 0 ? redact_take(w->redact, false, out) : rc;
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

int rewrite_inward(struct rewrite *w, const char *data, size_t n, struct buf *out)
{
    CLEANUP(rewrite_wipe) struct buf rest;
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
        if (w->response == RESPONSE_BODY && w->parse.done) {
            rc = -EBADMSG; /* after the end of what is decompressed yet */
        } else if (w->response == RESPONSE_BODY) {
            rc = on_body(w, data, n, &used, out);
        } else if (w->response == RESPONSE_TUNNEL) {
            rc = on_tunnel(w, data, n, out);
        } else if (w->response == RESPONSE_NONE) {
            rc = -EBADMSG; /* more than one answer to one request */
        }
        data += used;
        n -= used;
    }
    return rc;
}

int rewrite_inward_end(struct rewrite *w, struct buf *out)
{
    if (!w->redact)
        return 0;
    if (w->unzip) {
        w->cut = true;
        return rewrite_inward_more(w, out);
    }
    return redact_take(w->redact, true, out);
}

size_t rewrite_held(struct rewrite *w, bool tight)
{
    size_t n = w->answer.cap + (w->unzip ? unzip_memory(w->unzip) : 0);

    if (!w->redact)
        return n;
    if (tight)
        redact_tighten(w->redact);
    return n + redact_memory(w->redact);
}

unsigned rewrite_inward_pause_ms(const struct rewrite *w, bool stalled)
{
    if (!w->redact || w->pause_ms == 0 || !redact_holds(w->redact))
        return 0;
    return stalled ? REDACT_STALL_MS : w->pause_ms;
}

int rewrite_inward_pause(struct rewrite *w, struct buf *out)
{
    CLEANUP_BUF struct buf clean;
    int rc;

    buf_init(&clean, REDACT_WINDOW_MAX);
    if (!w->redact || w->pause_ms == 0)
        return 0;
    redact_release(w->redact);
    if (!w->unzip)
        return redact_take(w->redact, false, out);
    rc = redact_take(w->redact, false, &clean);
    return rc == 0 ? put_chunk(out, &clean) : rc;
}
