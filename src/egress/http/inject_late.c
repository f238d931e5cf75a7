/* Prepared with the head (late_prepare copies what it needs), finished by the connection's
 * filter when the body was collected (finish): placeholders first, then the signature over what
 * then is the body. A body that is longer than may be held, or that does not fit what the
 * client said of it, fails the request before a byte of it has left. */

#include "egress/http/inject_late.h"

#include "egress/credential/override.h"
#include "egress/http/sigv4.h"

#include <errno.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#define BODY_HEADROOM ((size_t)64 * 1024) /* by which placeholders may make a body longer at once */

struct late {
    struct credentials *credentials;
    const struct credential *sign;
    struct policy_transport transport;
    bool replace, hash_body;
    enum placeholder_escape how;
    char *method, *path, *host; /* that credentials are bound to */
    char *said_path;            /* the client's own */
    struct inject_watch watch;
    uint16_t port;
    uint64_t named;
    char *sent_path, *sent_query, region[65], service[65], payload_hash[128];
    struct http_header headers[HTTP_MAX_HEADERS];
    size_t header_count;
};

static void late_free(void *arg)
{
    struct late *l = arg;

    credentials_unref(l->credentials);
    free(l->method);
    free(l->path);
    free(l->said_path);
    free(l->host);
    credential_wipe(l->sent_path);
    credential_wipe(l->sent_query);
    for (size_t i = 0; i < l->header_count; i++) {
        free((char *)l->headers[i].name);
        credential_wipe((char *)l->headers[i].value);
    }
    free(l);
}

/* -- AWS's signature --------------------------------------------------------------------------- */

static const char *const aws_own[] = {"authorization",        "x-amz-date", "x-amz-security-token",
                                      "x-amz-content-sha256", "date",       NULL};

static bool is_aws_own(const char *name)
{
    for (size_t i = 0; aws_own[i]; i++)
        if (strcasecmp(aws_own[i], name) == 0)
            return true;
    return false;
}

static int add_header(struct late *l, const char *name, const char *value)
{
    struct http_header *h = &l->headers[l->header_count];

    if (l->header_count == HTTP_MAX_HEADERS)
        return -EMSGSIZE;
    l->header_count++;
    h->name = strdup(name);
    h->value = strdup(value);
    return h->name && h->value ? 0 : -ENOMEM;
}

/* Signed, and added to the request. */
static int add_new_header(struct rewrite_job *job, struct late *l, const char *name,
                          const char *value)
{
    int rc = value ? add_header(l, name, value) : 0;

    return rc == 0 && value ? buf_printf(&job->lines, "%s: %s\r\n", name, value) : rc;
}

static int put_signature(struct rewrite_job *job, struct late *l)
{
    char date[SIGV4_DATE_SIZE];
    struct sigv4 v = {.access_key_id = l->sign->access_key_id,
                      .secret_access_key = l->sign->secret_access_key,
                      .region = l->region,
                      .service = l->service,
                      .method = l->method,
                      .path = l->sent_path,
                      .query = l->sent_query,
                      .payload_hash = l->payload_hash,
                      .date = date,
                      .headers = l->headers};
    int rc;

    sigv4_date(time(NULL), date);
    rc = add_new_header(job, l, "x-amz-date", date);
    if (rc == 0 && strcmp(l->service, "s3") == 0)
        rc = add_new_header(job, l, "x-amz-content-sha256", l->payload_hash);
    if (rc == 0)
        rc = add_new_header(job, l, "x-amz-security-token", l->sign->session_token);
    v.header_count = l->header_count;
    if (rc == 0)
        rc = buf_append_str(&job->lines, "Authorization: ");
    if (rc == 0)
        rc = sigv4_authorize(&v, &job->lines);
    return rc == 0 ? buf_append(&job->lines, "\r\n", 2) : rc;
}

/* Region and service: bind's own, else what the client signed for. */
static enum err_code choose_scope(struct late *l, const struct http_head *head, struct err *e)
{
    const char *own = http_head_get(head, "authorization");
    const struct credential *c = l->sign;

    if (own)
        (void)sigv4_scope(own, l->region, l->service, sizeof(l->region));
    if (c->region)
        snprintf(l->region, sizeof(l->region), "%s", c->region);
    if (c->service)
        snprintf(l->service, sizeof(l->service), "%s", c->service);
    if (l->region[0] && l->service[0])
        return ERR_OK;
    return err_set(e, ERR_DENIED,
                   "the credential %s has no region and service, and the request is not signed for "
                   "any: give them with the credential, or sign it with any key",
                   c->name);
}

static bool is_hash(const char *s)
{
    return strlen(s) == SIGV4_HASH_SIZE - 1 && strspn(s, "0123456789abcdef") == SIGV4_HASH_SIZE - 1;
}

static bool is_short(const struct http_head *h)
{
    return h->framing == HTTP_BODY_LENGTH && h->content_length <= REWRITE_BODY_MAX;
}

/* Chooses the hash of the body for the signature: the client's own, where it still holds. */
static enum err_code choose_payload(struct late *l, const struct http_head *h, struct err *e)
{
    const char *said = http_head_get(h, "x-amz-content-sha256");

    if (l->replace || (!said && is_short(h))) {
        l->hash_body = true;
    } else if (!said && h->framing == HTTP_BODY_NONE) {
        if (sigv4_hash("", 0, l->payload_hash) < 0)
            return err_set(e, ERR_EXHAUSTED, "out of memory");
    } else if (said && (is_hash(said) || strcmp(said, "UNSIGNED-PAYLOAD") == 0 ||
                        strcmp(said, "STREAMING-UNSIGNED-PAYLOAD-TRAILER") == 0)) {
        snprintf(l->payload_hash, sizeof(l->payload_hash), "%s", said);
    } else if (said) {
        return err_set(e, ERR_DENIED,
                       "a body that is signed in chunks cannot be signed anew: send it unsigned "
                       "(x-amz-content-sha256: UNSIGNED-PAYLOAD) or whole");
    } else if (strcmp(l->service, "s3") == 0) {
        snprintf(l->payload_hash, sizeof(l->payload_hash), "UNSIGNED-PAYLOAD");
    } else {
        return err_set(e, ERR_DENIED,
                       "a body without Content-Length, or of more than %u bytes, cannot be signed",
                       REWRITE_BODY_MAX);
    }
    return ERR_OK;
}

/* Of the client's, those that mean something to AWS. -EINVAL: one comes twice. */
static int add_client_headers(struct late *l, const struct late_request *r)
{
    const struct http_head *h = r->head;
    int rc = add_header(l, "host", h->host[0] ? h->host : r->host);

    for (size_t i = 0; i < h->header_count && rc == 0; i++) {
        const char *name = h->headers[i].name;

        if (is_aws_own(name) || r->is_removed(r->arg, name) ||
            (strncasecmp(name, "x-amz-", 6) != 0 && strcasecmp(name, "content-type") != 0))
            continue;
        for (size_t j = 0; j < i; j++)
            if (strcasecmp(h->headers[j].name, name) == 0)
                return -EINVAL;
        rc = add_header(l, name, h->headers[i].value);
    }
    return rc;
}

static enum err_code take_rc(int rc, struct err *e)
{
    if (rc == -EINVAL)
        return err_set(e, ERR_DENIED,
                       "the request cannot be signed: a header that is signed comes "
                       "more than once, or its path or query is not well-formed");
    return rc == 0 ? ERR_OK : err_set(e, ERR_EXHAUSTED, "out of memory for a signature");
}

static enum err_code prepare_signing(struct rewrite_job *job, struct late *l,
                                     const struct late_request *r, struct err *e)
{
    size_t path = strcspn(r->target, "?");
    char ignored[8];
    int rc;

    if (http_query_get(r->head->query, "X-Amz-Signature", ignored, sizeof(ignored)) != -ENOENT)
        return err_set(
            e, ERR_DENIED,
            "an address that is signed itself cannot be signed anew: sign in the header");
    if (choose_scope(l, r->head, e) != ERR_OK || choose_payload(l, r->head, e) != ERR_OK)
        return e->code;
    l->sent_path = strndup(r->target, path);
    l->sent_query = strdup(r->target[path] ? r->target + path + 1 : "");
    if (!l->sent_path || !l->sent_query)
        return take_rc(-ENOMEM, e);
    rc = add_client_headers(l, r);
    if (rc == 0 && !l->hash_body)
        rc = put_signature(job, l);
    return take_rc(rc, e);
}

/* -- the body ---------------------------------------------------------------------------------- */

/* Bit i: the credential i was asked about, and is for this request. A body has room for 80,000
 * placeholders, and a binding for 4,096 patterns: asked for each, one request would hold the loop
 * up for seconds. */
struct bound {
    uint64_t seen, fits;
};

static bool is_bound(const struct late *l, const struct credential *c, struct bound *b)
{
    uint64_t bit = UINT64_C(1) << (c - l->credentials->list);

    if (!(l->named & bit))
        return false;
    if (!(b->seen & bit) &&
        credential_fits(c, l->host, l->port, l->transport, l->method, l->path) == POLICY_FITS)
        b->fits |= bit;
    b->seen |= bit;
    return b->fits & bit;
}

/* The credential that is put in a placeholder's place, or NULL where it is not for this request:
 * then it is a text like any other. */
static const struct credential *credential_here(const struct late *l, const struct placeholder *at,
                                                struct bound *b)
{
    const struct credential *c = credentials_find(l->credentials, at->name, at->name_len);

    return c && c->in_bodies && is_bound(l, c, b) ? c : NULL;
}

/* *put: a bit for each credential. */
static int put_replaced(const struct late *l, const char *text, size_t n, struct buf *out,
                        uint64_t *put)
{
    struct bound b = {0};
    struct placeholder at;
    int rc = buf_reserve(out, n + BODY_HEADROOM);

    while (rc == 0 && placeholder_find(text, n, &at)) {
        const struct credential *c = credential_here(l, &at, &b);

        rc = buf_append(out, text, c ? at.at : at.at + at.len);
        if (rc == 0 && c)
            rc = placeholder_put(out, c->value, at.encoded ? PLACEHOLDER_FORM : l->how);
        *put |= c ? UINT64_C(1) << (c - l->credentials->list) : 0;
        text += at.at + at.len;
        n -= at.at + at.len;
    }
    return rc == 0 ? buf_append(out, text, n) : rc;
}

static int note_injected(const struct late *l, uint64_t put)
{
    CLEANUP_FREE char *names = NULL;

    if (!put || !l->watch.injected)
        return 0;
    names = credentials_names(l->credentials, put);
    if (!names)
        return -ENOMEM;
    l->watch.injected(l->watch.arg, l->watch.id, l->method, l->said_path, names);
    return 0;
}

static int replace(const struct late *l, struct buf *body)
{
    struct buf out;
    struct placeholder at;
    uint64_t put = 0;
    int rc;

    if (body->len == 0 || !placeholder_find(body->data, body->len, &at))
        return 0;
    buf_init(&out, body->max);
    rc = put_replaced(l, body->data, body->len, &out, &put);
    if (rc == 0)
        rc = note_injected(l, put);
    if (rc == 0) {
        buf_free(body);
        *body = out;
    } else if (out.base) {
        explicit_bzero(out.base, out.cap);
        buf_free(&out);
    }
    return rc;
}

static int finish(struct rewrite_job *job, struct buf *body)
{
    struct late *l = job->arg;
    int rc = l->replace ? replace(l, body) : 0;

    if (rc < 0 || !l->sign || !l->hash_body)
        return rc;
    rc = sigv4_hash(body->data ? body->data : "", body->len, l->payload_hash);
    return rc < 0 ? rc : put_signature(job, l);
}

/* -- start ------------------------------------------------------------------------------------- */

/* Of one in chunks, the chunks are held beside what is in them. */
static enum err_code hold_body(struct rewrite_job *job, const struct held_bodies *of, struct err *e)
{
    size_t bytes = job->chunked ? 2 * job->body_bytes : job->body_bytes;

    return held_body_take(&job->held, of, bytes)
               ? ERR_OK
               : err_set(
                     e, ERR_EXHAUSTED,
                     "the bodies of this sandbox's or tenant's requests that are held for their "
                     "credentials take all the memory that they may; try again later");
}

enum err_code late_prepare(struct rewrite_job *job, const struct late_request *r,
                           const char *const **without, struct err *e)
{
    struct late *l = calloc(1, sizeof(*l));

    if (!l)
        return take_rc(-ENOMEM, e);
    job->arg = l;
    job->free_arg = late_free;
    l->credentials = credentials_ref(r->credentials);
    l->sign = r->sign;
    l->transport = r->transport;
    l->replace = r->replace;
    l->how = r->how;
    l->port = r->port;
    l->named = r->named;
    l->method = strdup(r->head->method);
    l->path = strdup(override_bound_path(r->head));
    l->said_path = strdup(r->head->path);
    l->watch = r->watch;
    l->host = strdup(r->host);
    if (!l->method || !l->path || !l->said_path || !l->host)
        return take_rc(-ENOMEM, e);
    if (r->sign) {
        *without = aws_own;
        if (prepare_signing(job, l, r, e) != ERR_OK)
            return e->code;
    }
    job->collect = l->replace || l->hash_body;
    job->chunked = job->collect && r->head->framing == HTTP_BODY_CHUNKED;
    job->whole = l->hash_body;
    job->body_bytes = job->chunked   ? REWRITE_BODY_MAX
                      : job->collect ? (size_t)r->head->content_length
                                     : 0;
    job->finish = finish;
    return job->collect ? hold_body(job, r->bodies, e) : ERR_OK;
}
