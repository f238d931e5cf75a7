/* A request of the API on its connection loop. First it is known whose key it has: from before
 * (key_owner.h), or the control loop is asked. It takes one of the places of that tenant's
 * connections, and a body that is not short one of the places for those; then head and body are
 * posted to the control loop, whose answer finds the exchange again by its ticket, or
 * finds that the client has gone. A call that cannot be posted is answered here with 503. */

#include "cayd/connloop_internal.h"

#include "base/clock.h"
#include "core/key.h"
#include "gateway/access.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

/* Core ends its calls earlier, also the longest exec; this is for what was forgotten. */
#define API_TIMEOUT_MS 3720000
#define KEY_TIMEOUT_MS 15000

static const struct http_header cors_header = {"Access-Control-Allow-Origin", "*"};

void connloop_api_key_id(struct http_exchange *x, char out[static CORE_KEY_ID_SIZE])
{
    core_key_id(access_api_key(http_exchange_head(x)), out);
}

static void begin_stream(struct connloop *l, struct http_exchange *x, int fd, uint64_t bytes)
{
    char key_id[CORE_KEY_ID_SIZE];

    _Static_assert(sizeof(key_id) <= STREAM_OWNER_SIZE, "a stream is its key's");
    connloop_api_key_id(x, key_id);
    if (bytes)
        stream_start_file(l->streams, x, key_id, fd, bytes);
    else
        stream_start(l->streams, x, key_id, fd);
}

void connloop_api_respond(struct connloop *l, struct http_exchange *x, struct api_response *r)
{
    struct http_header headers[API_HEADERS_MAX + 3];
    size_t n = 0;

    headers[n++] = cors_header;
    headers[n++] = (struct http_header){"Access-Control-Expose-Headers", "*"};
    if (r->body_len || r->stream_fd)
        headers[n++] = (struct http_header){"Content-Type", r->stream_fd ? r->stream_type
                                                            : r->type    ? r->type
                                                                         : "application/json"};
    for (size_t i = 0; i < r->header_count; i++)
        headers[n++] = (struct http_header){r->headers[i].name, r->headers[i].value};
    if (!r->stream_fd) {
        http_respond(x, r->status, headers, n, r->body, r->body_len);
        return;
    }
    http_response_begin(x, r->status, headers, n, r->stream_bytes ? (int64_t)r->stream_bytes : -1);
    begin_stream(l, x, r->stream_fd, r->stream_bytes);
    r->stream_fd = 0;
}

void connloop_api_answered(struct control_request *a, void *reader)
{
    struct connloop *l = reader;
    struct http_exchange *x = pending_take(l->api_pending, a->ticket, NULL);

    if (x)
        connloop_api_respond(l, x, &a->response);
    control_request_free(a);
}

/* The client goes first: its request may end. The request is alive until its answer is here. */
static void client_gone(void *data)
{
    struct control_request *a = data;

    atomic_store(&a->gone, true);
}

/* Values of one name are one list (RFC 9110, section 5.3): of two origins or sessions neither is
 * taken for the other. False: memory is out. */
static bool add_value(char **to, const char *value)
{
    char *both = NULL;

    if (!*to)
        return (*to = strdup(value)) != NULL;
    if (asprintf(&both, "%s, %s", *to, value) < 0)
        return false;
    free(*to);
    *to = both;
    return true;
}

static bool copy_headers(const struct http_head *h, struct api_request *r)
{
    for (size_t i = 0; i < API_HEADER_ID_COUNT; i++)
        for (size_t k = 0; k < h->header_count; k++)
            if (strcasecmp(h->headers[k].name, api_header_names[i]) == 0 &&
                !add_value(&r->headers[i], h->headers[k].value))
                return false;
    return true;
}

struct api_request *connloop_api_request(const struct http_head *h, const char *body, size_t len)
{
    const char *once = http_head_get(h, "Idempotency-Key");
    struct api_request *r = api_request_new(h->method, h->path, h->query, h->host,
                                            access_api_key(h), body, len);

    if (!r || (once && !(r->idempotency_key = strdup(once))) || !copy_headers(h, r)) {
        api_request_free(r);
        return NULL;
    }
    return r;
}

/* -- bodies that are waited for ---------------------------------------------------------------- */

/* A request whose body is on its way: its key was looked at, and is looked at again with the whole
 * request. Until then it has places of its tenant's, which a key that is revoked must not keep. */
struct waited_body {
    struct waited_body *next, **prev;
    struct http_exchange *x;
    struct share *share;           /* a longer body's; NULL: none */
    char key_id[CORE_KEY_ID_SIZE]; /* "": not made yet */
};

static void body_free(struct http_exchange *x UNUSED, void *data)
{
    struct waited_body *b = data;

    if (!b)
        return;
    *b->prev = b->next;
    if (b->next)
        b->next->prev = b->prev;
    share_return(b->share);
    free(b);
}

/* False: memory is out, and the share was given back. */
static bool body_wait(struct connloop *l, struct http_exchange *x, struct share *share)
{
    struct waited_body *b = calloc(1, sizeof(*b));

    if (!b) {
        share_return(share);
        return false;
    }
    b->x = x;
    b->share = share;
    b->next = l->waited;
    b->prev = &l->waited;
    if (b->next)
        b->next->prev = &b->next;
    l->waited = b;
    http_exchange_set(x, b, body_free);
    return true;
}

/* An id is made once for each, however many keys are revoked meanwhile. */
static bool has_key(struct waited_body *b, const char *key_id)
{
    if (key_id && !b->key_id[0])
        connloop_api_key_id(b->x, b->key_id);
    return !key_id || strcmp(b->key_id, key_id) == 0;
}

/* The end of a connection ends others at no time: the next in the list stays. */
void connloop_api_revoked(struct connloop *l, const char *key_id)
{
    struct waited_body *next;

    for (struct waited_body *b = l->waited; b; b = next) {
        next = b->next;
        if (has_key(b, key_id))
            http_exchange_abort(b->x);
    }
}

/* -- to the control loop ----------------------------------------------------------------------- */

bool connloop_request(struct connloop *l, struct http_exchange *x, struct control_request *a,
                      unsigned wait_ms)
{
    if (a && x)
        a->ticket = pending_add(l->api_pending, x, clock_mono_ms() + wait_ms, NULL, NULL);
    if (a && (!x || a->ticket) && control_send(a) == 0)
        return true;
    if (a && a->ticket)
        pending_take(l->api_pending, a->ticket, NULL);
    control_request_free(a);
    return false;
}

void connloop_nothing_answered(struct control_request *a, void *reader UNUSED)
{
    control_request_free(a);
}

bool connloop_api_send(struct connloop *l, struct http_exchange *x, struct api_request *r,
                       void (*answered)(struct control_request *a, void *reader))
{
    struct control_request *a = r ? control_request_api(l->config.control, r, &l->inbox, answered)
                                  : NULL;

    if (a)
        a->ticket = pending_add(l->api_pending, x, clock_mono_ms() + API_TIMEOUT_MS, a,
                                client_gone);
    if (!a || !a->ticket) {
        control_request_free(a);
        http_respond_error(x, 503, "too many requests wait for an answer; try again");
        return false;
    }
    if (control_send(a) == 0)
        return true;
    pending_take(l->api_pending, a->ticket, NULL);
    control_request_free(a);
    http_respond_error(x, 503, "the server is too busy; try again");
    return false;
}

static void api_body(struct http_exchange *x, char *body, size_t len)
{
    struct connloop *l = http_exchange_loop(x)->data;
    struct waited_body *waited = http_exchange_get(x);
    struct api_request *r = connloop_api_request(http_exchange_head(x), body, len);

    http_body_release(x);
    http_exchange_set(x, NULL, NULL);
    body_free(x, waited);
    (void)connloop_api_send(l, x, r, connloop_api_answered);
}

/* -- a body, when its key is known ------------------------------------------------------------- */

/* A key that is missing or not known: the API says so in its dialect's form, and needs no body for
 * that. */
static void without_body(struct http_exchange *x)
{
    char none[] = "";

    api_body(x, none, 0);
}

static bool is_short(const struct http_head *h)
{
    return h->framing == HTTP_BODY_NONE ||
           (h->framing == HTTP_BODY_LENGTH && h->content_length <= KEYLESS_BODY_BYTES);
}

/* For the tenant whose key it is: a place, and one for a longer body. */
static void of_tenant(struct connloop *l, struct http_exchange *x, const char *tenant)
{
    const struct http_head *h = http_exchange_head(x);
    struct share *share = NULL;

    if (!conn_share_take(l->conn_shares, x, tenant, NULL, false)) {
        conn_share_refuse(x);
        return;
    }
    if (!is_short(h) && !(share = share_take(l->bodies, tenant, NULL))) {
        http_respond_error(
            x, 503,
            "the server holds as many requests' bodies of this tenant as it may; try again");
        return;
    }
    if (h->framing != HTTP_BODY_NONE && !body_wait(l, x, share))
        http_respond_error(x, 503, "no memory to serve the request");
    else
        http_body_collect(x, API_BODY_MAX_BYTES, api_body);
}

/* Of no tenant. A longer body is not waited for: an answer without a key needs none. */
static void of_no_tenant(struct http_exchange *x)
{
    if (is_short(http_exchange_head(x)))
        http_body_collect(x, API_BODY_MAX_BYTES, api_body);
    else
        without_body(x);
}

static void key_answered(struct control_request *a, void *reader)
{
    struct connloop *l = reader;
    struct http_exchange *x = pending_take(l->api_pending, a->ticket, NULL);

    if (a->tenant[0])
        key_owner_remember(&l->owners, a->key, a->tenant);
    if (x && a->tenant[0])
        of_tenant(l, x, a->tenant);
    else if (x)
        of_no_tenant(x);
    control_request_free(a);
}

void connloop_api(struct connloop *l, struct http_exchange *x)
{
    const char *key = access_api_key(http_exchange_head(x));
    const char *tenant = *key ? key_owner_find(&l->owners, key) : "";
    struct control_request *a;

    if (!*key) {
        of_no_tenant(x);
        return;
    }
    if (*tenant) {
        of_tenant(l, x, tenant);
        return;
    }
    a = control_request_key(l->config.control, key, &l->inbox, key_answered);
    if (!connloop_request(l, x, a, KEY_TIMEOUT_MS))
        http_respond_error(x, 503, "the server is too busy; try again");
}
