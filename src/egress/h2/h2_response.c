/* An answer on its way back: its head is searched for secrets and sent; its body is fed
 * (decompressed where that is needed, searched, held back while a secret may have begun),
 * paused and gone on with; its trailers likewise, and its end. Or an answer that is made here,
 * when a request is refused or its server is lost, in the words of what the client speaks
 * (gRPC's in trailers). Called by h2_stream.c and h2.c in that order of events. */

#include "egress/h2/h2_response.h"

#include "egress/credential/response_secrets.h"
#include "egress/flow/deny.h"
#include "egress/h2/h2_end.h"
#include "egress/h2/h2_held.h"
#include "egress/h2/h2_internal.h"
#include "egress/h2/h2_pause.h"
#include "egress/h2/h2_stream.h"
#include "egress/http/answer_kind.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* -- searched ---------------------------------------------------------------------------------- */

/* Copies a text of a head without its secrets; *out lives in b, which has room. 0 or -errno. */
static int clean(struct h2_stream *s, const char *text, struct buf *b, const char **out)
{
    size_t at = b->len, n = strlen(text);
    int rc = redact_feed(s->redact, text, n, true);

    if (rc == 0)
        rc = redact_take(s->redact, true, b);
    if (rc == 0)
        rc = buf_append(b, "", 1);
    *out = b->data + at;
    return rc;
}

/* The fields of an answer into out, without secrets, and without what is of the connection. */
static int clean_fields(struct h2_stream *s, const struct h2_fields *f, struct h2_fields *out)
{
    CLEANUP_BUF struct buf b;
    int rc;

    buf_init(&b, (size_t)4 * H2_LIST_BYTES_MAX);
    rc = buf_reserve(&b, f->text.len + 1);
    for (size_t i = 0; i < f->count && rc == 0; i++) {
        const char *name = h2_fields_name(f, i), *value = h2_fields_value(f, i), *said = name;

        if (name[0] == ':' || h2_is_hop(name) || (s->unzip && response_secrets_is_of_coded(name)))
            continue;
        buf_clear(&b);
        if (s->redact) {
            rc = clean(s, name, &b, &said);
            if (rc == 0 && strcmp(said, name) != 0)
                continue; /* no name for a header, then */
            if (rc == 0)
                rc = clean(s, value, &b, &value);
        }
        if (rc == 0)
            rc = h2_fields_add(out, (const uint8_t *)name, strlen(name), (const uint8_t *)value,
                               strlen(value));
    }
    return rc;
}

static struct answer_kind kind_of(const struct h2_fields *f)
{
    struct answer_kind k = {.coding = UNZIP_NONE};

    for (size_t i = 0; i < f->count; i++)
        answer_kind_header(&k, h2_fields_name(f, i), h2_fields_value(f, i));
    return k;
}

/* A body whose length is known is not waited for byte by byte: all of it is to come. */
static void choose_reading(struct h2_stream *s, const struct h2_fields *f, const char *type)
{
    s->pause_ms = h2_fields_get(f, "content-length") ? 0 : REDACT_BODY_PAUSE_MS;
    s->frames.kind = frames_kind_of(type);
}

/* -- sent back --------------------------------------------------------------------------------- */

/* Bytes of a head as RFC 9113 10.5.1 counts them. */
static size_t weight(const nghttp2_nv *lines, size_t n)
{
    size_t bytes = 0;

    for (size_t i = 0; i < n; i++)
        bytes += lines[i].namelen + lines[i].valuelen + 32;
    return bytes;
}

static int submit_interim(struct h2_stream *s, const struct h2_lines *l)
{
    int rc = nghttp2_submit_headers(s->conn->end[H2_CLIENT].session, NGHTTP2_FLAG_NONE,
                                    s->id[H2_CLIENT], NULL, l->list, l->count, NULL);

    if (rc == 0)
        s->interim_bytes += weight(l->list, l->count);
    return rc;
}

/* The final head comes after all of them: it finds 0. */
void response_head_sent(struct h2_stream *s, const nghttp2_nv *lines, size_t n)
{
    s->interim_bytes -= MIN(s->interim_bytes, weight(lines, n));
}

static int submit_head(struct h2_stream *s, int status, const struct h2_fields *f, bool ends)
{
    nghttp2_session *session = s->conn->end[H2_CLIENT].session;
    const nghttp2_data_provider body = stream_provider(s);
    struct h2_lines l = {.count = 0};
    char digits[8];
    int rc;

    snprintf(digits, sizeof(digits), "%d", status);
    h2_lines_add(&l, ":status", digits, false);
    for (size_t i = 0; i < f->count; i++)
        h2_lines_add(&l, h2_fields_name(f, i), h2_fields_value(f, i), false);
    if (status < 200)
        return submit_interim(s, &l);
    rc = nghttp2_submit_response(session, s->id[H2_CLIENT], l.list, l.count, ends ? NULL : &body);
    if (rc == 0)
        s->begun = true;
    if (rc == 0 && ends)
        s->to[H2_CLIENT].ended = s->to[H2_CLIENT].left = true;
    return rc;
}

int response_head(struct h2_stream *s, bool ends)
{
    const struct h2_fields *f = &s->conn->end[H2_SERVER].fields;
    struct h2_fields *out;
    const struct answer_kind kind = kind_of(f);
    enum unzip_coding coding = UNZIP_NONE;
    int status = h2_fields_status(f), rc;

    if (!s->open[H2_CLIENT])
        return 0;
    if (s->use && status == 401)
        credential_use_rejected(s->use);
    if (f->over || status == 0) {
        response_fail(s, 502, "the server's answer has no good head, or one that is too large");
        return 0;
    }
    /* Interim heads that wait for a client that does not read count like one head. A client can do
     * without those beyond (RFC 9110 15.2), and a few bytes of a server's are many here (HPACK). */
    if (status < 200 && s->interim_bytes + f->list_bytes > H2_LIST_BYTES_MAX)
        return 0;
    if (status >= 200 && !stream_hold_head(s, f->list_bytes)) {
        response_fail(s, 503, "the heads of answers to this sandbox are too large together");
        return 0;
    }
    if (s->redact && status >= 200 && !ends)
        coding = kind.coding;
    if (coding == UNZIP_OTHER) {
        response_fail(s, 502, ANSWER_KIND_CODED_REASON);
        return 0;
    }
    if (s->redact && answer_kind_refusal(&kind, status)) {
        response_fail(s, 502, answer_kind_refusal(&kind, status));
        return 0;
    }
    s->unzips = coding != UNZIP_NONE;
    if (s->unzips && !(s->unzip = unzip_new(coding, s->to[H2_CLIENT].bytes.max)))
        return -ENOMEM;
    out = calloc(1, sizeof(*out));
    if (!out)
        return -ENOMEM;
    h2_fields_reset(out);
    rc = clean_fields(s, f, out);
    if (rc == 0)
        rc = submit_head(s, status, out, ends);
    if (status >= 200)
        choose_reading(s, f, kind.type);
    h2_fields_free(out);
    free(out);
    return rc;
}

int response_data(struct h2_stream *s, const char *data, size_t n)
{
    struct buf *b = &s->to[H2_CLIENT].bytes;
    int rc;

    if (!s->redact)
        return buf_append(b, data, n);
    if (s->unzip) {
        rc = unzip_feed(s->unzip, data, n);
        return rc < 0 ? rc : h2_held_count(s);
    }
    h2_conn_searched(s->conn, n);
    rc = frames_redact(&s->frames, s->redact, data, n); /* messages pass when they are whole */
    if (rc == 0)
        rc = redact_take(s->redact, false, b);
    if (rc == 0)
        rc = h2_held_count(s);
    pause_await(s);
    return rc;
}

int response_paused(struct h2_stream *s)
{
    int rc;

    redact_release(s->redact);
    rc = redact_take(s->redact, false, &s->to[H2_CLIENT].bytes);
    (void)nghttp2_session_resume_data(s->conn->end[H2_CLIENT].session, s->id[H2_CLIENT]);
    return rc < 0 ? rc : h2_held_count(s);
}

/* Takes a step; the input that it used is credited. > 0, 0: there was none, or -errno. */
static int unzip_step(struct h2_stream *s)
{
    CLEANUP_BUF struct buf raw;
    size_t waiting = unzip_waiting(s->unzip);
    int n, rc = 0;

    buf_init(&raw, UNZIP_STEP_BYTES);
    n = unzip_next(s->unzip, &raw);
    stream_pay(s, H2_CLIENT, waiting - unzip_waiting(s->unzip));
    h2_conn_searched(s->conn, raw.len);
    if (n > 0)
        rc = frames_redact(&s->frames, s->redact, raw.data, raw.len);
    if (n > 0 && rc == 0)
        rc = redact_take(s->redact, false, &s->to[H2_CLIENT].bytes);
    if (n > 0)
        pause_await(s);
    return rc < 0 ? rc : n;
}

int response_more(struct h2_stream *s)
{
    struct h2_body *b = &s->to[H2_CLIENT];
    int rc = 1;

    while (rc > 0 && b->bytes.len == 0)
        rc = unzip_step(s);
    if (rc != 0 || !b->ended)
        return rc < 0 ? rc : h2_held_count(s);
    rc = unzip_is_whole(s->unzip) ? redact_take(s->redact, true, &b->bytes) : -EBADMSG;
    unzip_free(TAKE_PTR(s->unzip));
    return rc < 0 ? rc : h2_held_count(s);
}

int response_ended(struct h2_stream *s)
{
    int rc;

    if (s->unzip) /* when all that waits has been read */
        return 0;
    if (!s->redact || !s->open[H2_CLIENT])
        return 0;
    rc = redact_take(s->redact, true, &s->to[H2_CLIENT].bytes);
    h2_held_drop(s);
    return rc;
}

int response_trailers(struct h2_stream *s, const struct h2_fields *f, struct h2_fields *out)
{
    int rc = response_ended(s); /* they are no part of the body */

    if (s->unzip) /* they would come before what is still to be searched */
        return 0;
    return rc == 0 ? clean_fields(s, f, out) : rc;
}

/* -- made here --------------------------------------------------------------------------------- */

static int add(struct h2_fields *f, const char *name, const char *value)
{
    return h2_fields_add(f, (const uint8_t *)name, strlen(name), (const uint8_t *)value,
                         strlen(value));
}

/* gRPC's own statuses (its doc/http-grpc-status-mapping.md has others for proxies that know nothing
 * of it). */
static const char *grpc_status(int status)
{
    switch (status) {
    case 403:
    case 421: return "7"; /* PERMISSION_DENIED */
    case 429: return "8"; /* RESOURCE_EXHAUSTED */
    case 400:
    case 431: return "3"; /* INVALID_ARGUMENT */
    default: return "14"; /* UNAVAILABLE */
    }
}

static bool is_grpc(const struct h2_stream *s)
{
    const char *type = s->head ? http_head_get(s->head, "content-type") : NULL;

    return type && strncasecmp(type, "application/grpc", 16) == 0;
}

/* Percent-encoded as gRPC has it: printable ASCII stands for itself, but for '%'. */
static void grpc_message(const char *text, char *out, size_t size)
{
    size_t used = 0;

    for (; *text && used + 4 < size; text++) {
        unsigned char c = (unsigned char)*text;

        if (c >= 0x20 && c < 0x7f && c != '%')
            out[used++] = (char)c;
        else
            used += (size_t)snprintf(out + used, size - used, "%%%02X", c);
    }
    out[used] = '\0';
}

/* The type of a call's answer is that of the call: clients compare the codec ("+proto", "+json",
 * their own). */
static const char *grpc_type(const struct h2_stream *s)
{
    return http_head_get(s->head, "content-type");
}

/* Its calls are answered in trailers alone: 200, and no body. */
static int add_grpc(struct h2_stream *s, struct h2_fields *f, const struct h2_verdict *v)
{
    char message[3 * H2_MESSAGE_SIZE];
    int rc = add(f, "content-type", grpc_type(s));

    grpc_message(v->message, message, sizeof(message));
    if (rc == 0)
        rc = add(f, "grpc-status", grpc_status(v->status));
    return rc == 0 ? add(f, "grpc-message", message) : rc;
}

static int add_plain(struct h2_fields *f, const struct h2_verdict *v)
{
    char length[24];
    int rc = add(f, "content-type", "application/json");

    snprintf(length, sizeof(length), "%zu", v->body.len);
    if (rc == 0)
        rc = add(f, "content-length", length);
    return rc == 0 && v->status == 429 ? add(f, "retry-after", DENY_RETRY_S) : rc;
}

static int say(struct h2_stream *s, const struct h2_verdict *v)
{
    struct h2_body *b = &s->to[H2_CLIENT];
    struct h2_fields *f = calloc(1, sizeof(*f));
    bool grpc = is_grpc(s),
         empty = grpc || v->body.len == 0 || (s->head && strcmp(s->head->method, "HEAD") == 0);
    int rc = !f ? -ENOMEM : empty ? 0 : buf_append(&b->bytes, v->body.data, v->body.len);

    if (f)
        h2_fields_reset(f);
    if (rc == 0)
        rc = grpc ? add_grpc(s, f, v) : add_plain(f, v);
    if (rc == 0 && v->rule)
        rc = add(f, DENY_HEADER, v->rule);
    b->ended = true;
    if (rc == 0)
        rc = submit_head(s, grpc ? 200 : v->status, f, empty);
    if (f)
        h2_fields_free(f);
    free(f);
    return rc;
}

void response_here(struct h2_stream *s, const struct h2_verdict *v)
{
    if (s->begun || !s->open[H2_CLIENT]) {
        stream_cut(s, NGHTTP2_INTERNAL_ERROR);
        return;
    }
    if (s->open[H2_SERVER])
        end_reset(&s->conn->end[H2_SERVER], s->id[H2_SERVER], NGHTTP2_CANCEL);
    stream_give_up(s);
    if (say(s, v) != 0)
        stream_cut(s, NGHTTP2_INTERNAL_ERROR);
}

void response_fail(struct h2_stream *s, int status, const char *why)
{
    struct h2_verdict v = {.status = status};

    buf_init(&v.body, (size_t)16 * 1024);
    snprintf(v.message, sizeof(v.message), "%s", why);
    s->conn->o.say(s->conn->o.arg, s->head, status, why, &v.body);
    response_here(s, &v);
    buf_free(&v.body);
}
