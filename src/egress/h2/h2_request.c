/* A request of an HTTP/2 client, from its head to the server. h2_stream.c calls request_begin
 * when the head is whole. Order: the head is checked (h2_head.c); the policy is asked
 * (o.evaluate), which may answer, refuse, or put the request off (`parked`: h2_again asks once
 * more when its owner or a renewal has answered, and its body waits within the stream's window);
 * an allowed one is sent on with what was injected. Where the credential signs or changes the
 * body, the body is collected first, within H2_COLLECT_BYTES of a connection, and the head
 * leaves after it. Each stream ends in one of: submitted to the server, answered here, failed. */

#include "egress/h2/h2_request.h"

#include "egress/credential/client_keys.h"
#include "egress/credential/override.h"
#include "egress/h2/h2_end.h"
#include "egress/h2/h2_internal.h"
#include "egress/h2/h2_response.h"
#include "egress/h2/h2_stream.h"

#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

/* -- what is sent on --------------------------------------------------------------------------- */

static bool is_removed(const struct h2_stream *s, const char *name)
{
    for (size_t i = 0; s->remove && s->remove[i]; i++)
        if (http_name_like(s->remove[i], name))
            return true;
    return false;
}

static void put_own(const struct h2_stream *s, struct h2_lines *l)
{
    const struct http_head *h = s->head;
    const char *target = s->job->target;

    h2_lines_add(l, ":method", h->method, false);
    h2_lines_add(l, ":scheme", "https", false);
    h2_lines_add(l, ":authority", h->authority[0] ? h->authority : h->host, false);
    h2_lines_add(l, ":path", target ? target : h->target, target != NULL);
}

static void put_clients(const struct h2_stream *s, struct h2_lines *l)
{
    bool whole =
        s->job->collect; /* its length may be another now, and there is no client waiting */

    for (size_t i = 0; i < s->head->header_count; i++) {
        const struct http_header *h = &s->head->headers[i];

        if (strcmp(h->name, "host") == 0 || h2_is_hop(h->name) || is_removed(s, h->name) ||
            (whole && (strcmp(h->name, "expect") == 0 || strcmp(h->name, "content-length") == 0)))
            continue;
        h2_lines_add(l, h->name, h->value, false);
    }
}

/* The job's lines, "Name: value\r\n", become texts in their own place. -EBADMSG: there is a bug. */
static int put_lines(struct buf *text, struct h2_lines *l)
{
    char *p = text->data, *end = p ? p + text->len : NULL;

    while (p < end) {
        char *colon = memchr(p, ':', (size_t)(end - p)),
             *stop = memmem(p, (size_t)(end - p), "\r\n", 2);

        if (!colon || !stop || colon + 1 >= stop)
            return -EBADMSG;
        for (char *c = p; c < colon; c++)
            *c = (char)tolower((unsigned char)*c);
        *colon = *stop = '\0';
        colon += 1 + (colon[1] == ' ');
        h2_lines_add(l, p, colon, true);
        p = stop + 2;
    }
    return 0;
}

static void hand_over_body(struct h2_stream *s)
{
    struct buf *to = &s->to[H2_SERVER].bytes;
    struct buf empty;

    buf_init(&empty, to->max);
    buf_free(to);
    *to = s->collected;
    s->collected = empty;
    held_body_move(&s->held, &s->job->held);
}

static int submit(struct h2_stream *s, const struct h2_lines *l)
{
    const nghttp2_data_provider body = stream_provider(s);
    struct h2_body *b = &s->to[H2_SERVER];
    bool empty = b->ended && b->bytes.len == 0 && !b->trailers;
    int32_t id = nghttp2_submit_request(s->conn->end[H2_SERVER].session, NULL, l->list, l->count,
                                        empty ? NULL : &body, s);

    if (id < 0)
        return id;
    b->left = empty;
    s->id[H2_SERVER] = id;
    s->open[H2_SERVER] = true;
    return 0;
}

/* The request leaves; the rest of its body follows as it comes. too_long: the held bytes are not
 * all of it. */
static void send_on(struct h2_stream *s, bool too_long)
{
    struct h2_lines l = {.count = 0};
    char length[24];
    int rc;

    if (!s->conn->end[H2_SERVER].session || s->conn->end[H2_SERVER].broken) {
        response_fail(s, 502, "the server has closed the connection");
        return;
    }
    put_own(s, &l);
    put_clients(s, &l);
    rc = put_lines(&s->job->lines, &l);
    if (s->job->collect && !too_long) {
        snprintf(length, sizeof(length), "%zu", s->collected.len);
        h2_lines_add(&l, "content-length", length, false);
    }
    if (s->job->collect)
        hand_over_body(s);
    if (rc == 0 && !l.over)
        rc = submit(s, &l);
    stream_forget_job(s);
    if (l.over)
        response_fail(s, 431, "the request has too many headers with its credential");
    else if (rc < 0)
        response_fail(s, 502, "the server takes no more requests on this connection");
}

/* -- bodies that are held ---------------------------------------------------------------------- */

int request_collect(struct h2_stream *s, const char *data, size_t n)
{
    bool too_long = n > s->job->body_bytes - s->collected.len;
    int rc = too_long && (!s->job->chunked || s->job->whole) ? -EMSGSIZE
                                                             : buf_append(&s->collected, data, n);

    if (rc == 0 && too_long)
        send_on(s, true);
    return rc;
}

void request_collected(struct h2_stream *s)
{
    if (s->job->finish && s->job->finish(s->job, &s->collected) < 0)
        response_fail(s, 503, "the request could not be given its credential");
    else
        send_on(s, false);
}

static void hold(struct h2_stream *s, bool ends)
{
    static const nghttp2_nv go_on = {(uint8_t *)":status", (uint8_t *)"100", 7, 3, 0};
    struct h2 *conn = s->conn;

    conn->collecting += s->job->body_bytes;
    if (conn->collecting > H2_COLLECT_BYTES)
        response_fail(s, 503, "too many requests at a time whose bodies have to be read whole");
    else if (ends)
        request_collected(s);
    else if (http_head_get(s->head, "expect"))
        (void)nghttp2_submit_headers(conn->end[H2_CLIENT].session, NGHTTP2_FLAG_NONE,
                                     s->id[H2_CLIENT], NULL, &go_on, 1, NULL);
}

/* Holds the part of its body that came while it was put off. */
static void hold_parked(struct h2_stream *s)
{
    struct h2_body *b = &s->to[H2_SERVER];
    bool ended = b->ended;
    int rc = 0;

    hold(s, ended && b->bytes.len == 0);
    if (s->job && b->bytes.len > 0) {
        rc = request_collect(s, b->bytes.data, b->bytes.len);
        buf_consume(&b->bytes, b->bytes.len);
        stream_pay(s, H2_SERVER, b->unsent);
    }
    if (rc < 0)
        response_fail(s, 413, "the body is too large for a change");
    else if (s->job && ended)
        request_collected(s);
}

/* -- evaluated --------------------------------------------------------------------------------- */

static void park(struct h2_stream *s)
{
    if (!s->parked)
        s->parked_ms = uv_now(s->conn->end[H2_CLIENT].poll.loop);
    s->parked = true;
}

static void evaluate(struct h2_stream *s, bool ends)
{
    struct h2 *conn = s->conn;
    struct h2_verdict v = {.status = 0};
    bool parked = s->parked;

    buf_init(&v.body, (size_t)16 * 1024);
    if (parked)
        v.waited_ms = uv_now(conn->end[H2_CLIENT].poll.loop) - s->parked_ms + 1;
    conn->o.evaluate(conn->o.arg, s->head, &s->arena, &v);
    s->parked = false;
    if (v.later) {
        s->parked = parked;
        park(s);
    } else if (v.status == 0 && v.plan.job && strcmp(s->head->method, "CONNECT") != 0) {
        s->remove = v.plan.remove;
        s->redact = TAKE_PTR(v.plan.redact);
        s->job = TAKE_PTR(v.plan.job);
        s->use = TAKE_PTR(s->job->use);
        if (s->job->collect && parked)
            hold_parked(s);
        else if (s->job->collect)
            hold(s, ends);
        else
            send_on(s, false);
    } else {
        v.status = v.status ? v.status : 403;
        response_here(s, &v);
    }
    inject_plan_free(&v.plan);
    buf_free(&v.body);
    if (!conn->end[H2_SERVER].session)
        h2_conn_drain(conn, NGHTTP2_NO_ERROR); /* the next connection may find the server again */
}

void request_begin(struct h2_stream *s, bool ends)
{
    struct http_head *head = NULL;
    const char *why = "";
    const struct h2_fields *f = &s->conn->end[H2_CLIENT].fields;
    int status;

    s->to[H2_SERVER].ended = ends;
    if (!stream_hold_head(s, f->list_bytes)) {
        response_fail(s, 503, "the heads of this sandbox's requests are too large together");
        return;
    }
    status = h2_head_request(f, ends, &s->arena, &head, &why);
    if (status != 0) {
        response_fail(s, status, why);
        return;
    }
    s->head = head;
    evaluate(s, ends);
}

bool h2_again(struct h2 *conn, uint64_t sweep_number)
{
    struct h2_stream *s = conn->streams;

    while (s && (!s->parked || !s->open[H2_CLIENT] || s->sweep_number == sweep_number))
        s = s->next;
    if (!s)
        return false;
    s->sweep_number = sweep_number;
    evaluate(s, s->to[H2_SERVER].ended);
    end_watch(&conn->end[H2_CLIENT]); /* frames about it leave in the next turn */
    end_watch(&conn->end[H2_SERVER]);
    return true;
}

/* Names that no trailer may have: those of RFC 9110 6.5.1, and of a key, a method or a path: there
 * are servers that take trailers for headers. */
static bool is_no_trailer(const char *name, const char *value)
{
    static const char *const names[] = {
        "host",   "content-length", "content-type", "content-encoding", "content-range",
        "expect", "range",          "te",           "trailer"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (http_name_like(names[i], name))
            return true;
    return override_is(name) || override_is_second(name) || client_keys_header(name, value);
}

/* The client's own words in the credential's place are left out here too. */
int request_trailers(struct h2_stream *s, const struct h2_fields *f, struct h2_fields *out)
{
    int rc = 0;

    for (size_t i = 0; i < f->count && rc == 0; i++) {
        const char *name = h2_fields_name(f, i), *value = h2_fields_value(f, i);

        if (name[0] != ':' && !h2_is_hop(name) && !is_removed(s, name) &&
            !is_no_trailer(name, value))
            rc = h2_fields_add(out, (const uint8_t *)name, strlen(name), (const uint8_t *)value,
                               strlen(value));
    }
    return rc;
}
