/* A renewal goes: request read and checked, found under way already (then it waits for the same
 * answer) or begun; the token server is dialled within its own rules and the ceilings, TLS, one
 * POST; the answer is read, the tokens sealed, the record written to the log, and the answer kept
 * for a while, since a cayd that was killed asks again with a refresh token that may have been
 * used up. A renewal goes on when its requester has gone; its deadline answers the requester, not
 * the token server. */

#include "egress/flow/renew.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/share.h"
#include "base/util.h"
#include "egress/credential/credential.h"
#include "egress/credential/renew_message.h"
#include "egress/flow/audit.h"
#include "egress/flow/egress.h"
#include "egress/flow/https_call.h"
#include "egress/flow/intercept_internal.h"
#include "egress/flow/tls_intercept.h"
#include "http/json.h"
#include "http/server.h"
#include "policy/policy.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#define REQUEST_MAX 65536u
#define TYPE_JSON   "application/json"
#define TYPE_FORM   "application/x-www-form-urlencoded"

struct renewal {
    struct renewals *all;
    struct renewal *prev, *next;
    struct http_exchange *x; /* of the cayd that asked, or NULL */
    struct share *share;     /* while it is under way */
    json_t *item, *value;    /* the credential as it came; its value, opened */
    char *previous;          /* access token that is being replaced, or NULL */
    uint64_t serial;
    bool after_401;
    struct https_call call;
    uv_timer_t late;
    char *kept; /* the outcome, sealed; it is over. NULL: it is under way */
    uint64_t kept_ms;
};

struct renewals {
    struct egress *egress;
    struct renewal *first;
    size_t kept_count;
    struct share_pool *shares;
};

static const char *text_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

/* -- its end ----------------------------------------------------------------------------------- */

static void on_late_closed(uv_handle_t *h)
{
    struct renewal *r = h->data;

    json_decref(r->item);
    json_decref(r->value);
    credential_wipe(r->previous);
    https_call_clear(&r->call);
    share_return(r->share);
    free(r->kept);
    free(r);
}

static void drop(struct renewal *r)
{
    *(r->prev ? &r->prev->next : &r->all->first) = r->next;
    if (r->next)
        r->next->prev = r->prev;
    if (r->kept)
        r->all->kept_count--;
    uv_close((uv_handle_t *)&r->late, on_late_closed);
}

static void respond(struct renewal *r, const char *text)
{
    static const struct http_header type = {"Content-Type", TYPE_JSON};
    struct http_exchange *x = TAKE_PTR(r->x);

    if (!x)
        return;
    http_exchange_set(x, NULL, NULL);
    http_respond(x, 200, &type, 1, text, strlen(text));
}

static void respond_refused(struct renewal *r, bool final, const char *why)
{
    json_t *o = json_pack("{s:s, s:b}", "refused", why, "final", final);
    CLEANUP_FREE char *text = json_text(o, JSON_COMPACT);

    json_decref(o);
    respond(r, text ? text : "{\"refused\":\"out of memory\",\"final\":false}");
}

static void record(struct renewal *r, bool allowed, const char *outcome, const char *why)
{
    const struct audit_record line = {.event = AUDIT_RENEWAL,
                                      .sandbox = &r->call.as,
                                      .target = &r->call.target,
                                      .allowed = allowed,
                                      .rule = "renewal",
                                      .outcome = outcome,
                                      .reason = why,
                                      .credential = text_of(r->item, "name")};

    audit_record(r->all->egress->audit, &line);
}

/* denied: it was a rule that said no, and nothing was sent. */
static void fail(struct renewal *r, bool denied, const struct err *why)
{
    log_warn("tenant %s: the credential %s was not renewed: %s", r->call.as.tenant,
             text_of(r->item, "name"), why->text);
    record(r, !denied, denied ? NULL : "failed", why->text);
    respond_refused(r, why->code == ERR_DENIED, why->text);
    drop(r);
}

/* -- what came of it --------------------------------------------------------------------------- */

/* The record with the new refresh token; *out stays NULL where it is the old one. */
static enum err_code seal_again(struct renewal *r, const struct renew_answer *a, char **out,
                                struct err *e)
{
    json_t *request;
    enum err_code code;

    if (!a->refresh_token || strcmp(a->refresh_token, text_of(r->value, "refresh_token")) == 0)
        return ERR_OK;
    if (json_object_set_new(r->value, "refresh_token", json_string(a->refresh_token)) < 0)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    request = json_pack("{s:s, s:O, s:O, s:O}", "tenant", r->call.as.tenant, "name",
                        json_object_get(r->item, "name"), "value", r->value, "bind",
                        json_object_get(r->item, "bind"));
    code = request ? credential_seal(r->all->egress->intercept->sealer, request, out, e)
                   : err_set(e, ERR_EXHAUSTED, "out of memory");
    json_decref(request);
    return code;
}

static enum err_code seal_token(struct renewal *r, const struct renew_answer *a, int64_t end_ms,
                                char **out, struct err *e)
{
    json_t *token = json_make("{s:s, s:s*, s:I, s:I, s:I, s:b}", "access_token", a->access_token,
                              "previous", r->previous, "serial", (json_int_t)r->serial, "at_ms",
                              (json_int_t)clock_real_ms(), "end_ms", (json_int_t)end_ms,
                              "after_401", r->after_401);
    enum err_code code = token ? credential_seal_token(r->all->egress->intercept->sealer,
                                                       r->call.as.tenant, r->item, token, out, e)
                               : err_set(e, ERR_EXHAUSTED, "out of memory");

    json_decref(token);
    return code;
}

static void forget_oldest(struct renewals *all)
{
    uint64_t now = clock_mono_ms();
    struct renewal *oldest = NULL;

    for (struct renewal *r = all->first, *next; r; r = next) {
        next = r->next;
        if (r->kept && now - r->kept_ms > RENEW_KEPT_MS)
            drop(r);
        else if (r->kept && (!oldest || r->kept_ms < oldest->kept_ms))
            oldest = r;
    }
    if (all->kept_count >= RENEW_KEPT_MAX && oldest)
        drop(oldest);
}

/* A cayd that is killed before it has written the new record asks again with the old one. */
static void keep(struct renewal *r, char *text)
{
    forget_oldest(r->all);
    json_decref(r->value);
    r->value = NULL;
    credential_wipe(TAKE_PTR(r->previous));
    share_return(TAKE_PTR(r->share));
    uv_timer_stop(&r->late);
    r->kept = text;
    r->kept_ms = clock_mono_ms();
    r->all->kept_count++;
}

static void take_answer(struct renewal *r, const struct renew_answer *a)
{
    CLEANUP_FREE char *sealed = NULL, *token = NULL, *text = NULL;
    int64_t end_ms = clock_real_ms() + a->life_s * 1000;
    json_t *o = NULL;
    struct err e = {0};

    if (seal_again(r, a, &sealed, &e) == ERR_OK && seal_token(r, a, end_ms, &token, &e) == ERR_OK) {
        o = json_make("{s:s, s:s*, s:I, s:I}", "token", token, "sealed", sealed, "serial",
                      (json_int_t)r->serial, "end_ms", (json_int_t)end_ms);
        text = json_text(o, JSON_COMPACT);
    }
    json_decref(o);
    if (!text) {
        if (e.code == ERR_OK)
            err_set(&e, ERR_EXHAUSTED, "out of memory");
        fail(r, false, &e);
        return;
    }
    record(r, true, sealed ? "replaced" : "renewed", NULL);
    respond(r, text);
    if (sealed)
        keep(r, TAKE_PTR(text));
    else
        drop(r);
}

static void on_answered(void *arg, const struct http_head *head, const char *body, size_t len)
{
    struct renewal *r = arg;
    struct renew_answer a;
    struct err e;

    if (renew_answer(head->status, body, len, &a, &e) != ERR_OK) {
        fail(r, false, &e);
    } else {
        take_answer(r, &a);
        renew_answer_free(&a);
    }
}

/* -- asked ------------------------------------------------------------------------------------- */

/* 0, or -errno: nothing was sent. */
static int send_request(struct renewal *r)
{
    CLEANUP_BUF struct buf body;
    char *authorization = NULL;
    int rc;

    buf_init(&body, REQUEST_MAX);
    rc = renew_request(r->value, &body, &authorization);
    if (rc == 0) {
        const struct http_header headers[] = {
            {"Content-Type", TYPE_FORM}, {"Accept", TYPE_JSON}, {"Authorization", authorization}};

        rc = https_call_send(&r->call, headers, authorization ? 3 : 2, body.data, body.len,
                             RENEW_ANSWER_MAX);
    }
    credential_wipe(authorization);
    if (body.base)
        explicit_bzero(body.base, body.cap);
    return rc;
}

static void on_connected(void *arg)
{
    struct renewal *r = arg;
    int rc = send_request(r);
    struct err e;

    if (rc < 0) {
        err_set_sys(&e, ERR_EXHAUSTED, rc, "the request for a token cannot be made");
        fail(r, false, &e);
    }
}

static void on_failed(void *arg, bool denied, const struct err *why)
{
    fail(arg, denied, why);
}

static const struct https_call_uses call_uses = {
    .peer = "the token server",
    .connected = on_connected,
    .failed = on_failed,
    .answered = on_answered,
};

/* -- start ------------------------------------------------------------------------------------- */

/* The access token that is replaced stays one that is searched for: it may be valid yet. */
static enum err_code take_previous(struct renewal *r, const char *tenant, const json_t *o,
                                   struct err *e)
{
    json_t *item = json_deep_copy(r->item), *list = json_pack("[o]", item);
    struct credentials *all = NULL;
    enum err_code code = ERR_OK;

    if (json_object_get(o, "previous"))
        json_object_set(item, "token", json_object_get(o, "previous"));
    code = list ? credentials_new(r->all->egress->intercept->sealer, tenant, list, &all, e)
                : err_set(e, ERR_EXHAUSTED, "out of memory");
    if (code == ERR_OK && all->list[0].kind != CREDENTIAL_OAUTH2)
        code = err_set(e, ERR_INVALID, "credential: is not of kind oauth2");
    if (code == ERR_OK && all->list[0].value)
        r->previous = strdup(all->list[0].value);
    if (code == ERR_OK && !https_url_parse(all->list[0].oauth.token_url, &r->call.url))
        code = err_set(e, ERR_INVALID, "credential: its token_url is none"); /* it was checked */
    credentials_unref(all);
    json_decref(list);
    return code;
}

static enum err_code take_request(struct renewal *r, const json_t *o, struct err *e)
{
    const char *tenant = text_of(o, "tenant"), *sandbox = text_of(o, "sandbox");

    if (!tenant || !*tenant || strlen(tenant) > EGRESS_TENANT_MAX || !sandbox ||
        strlen(sandbox) >= sizeof(r->call.as.id))
        return err_set(e, ERR_INVALID, "tenant, sandbox: missing, or too long");
    r->item = json_incref(json_object_get(o, "credential"));
    r->serial = (uint64_t)json_integer_value(json_object_get(o, "serial"));
    r->after_401 = json_is_true(json_object_get(o, "after_401"));
    if (r->serial == 0)
        return err_set(e, ERR_INVALID, "serial: missing");
    if (take_previous(r, tenant, o, e) != ERR_OK ||
        credential_open_value(r->all->egress->intercept->sealer, tenant, r->item, &r->value, e) !=
            ERR_OK)
        return e->code;
    return https_call_init(&r->call, r->all->egress, tenant, sandbox,
                           json_object_get(o, "ceilings"), e);
}

static void on_exchange_end(struct http_exchange *x, void *data)
{
    struct renewal *r = data;

    r->x = NULL;
}

static void attach(struct renewal *r, struct http_exchange *x)
{
    respond_refused(r, false, "asked again meanwhile");
    r->x = x;
    http_exchange_set(x, r, on_exchange_end);
}

/* cayd has to know; the token server may yet answer. */
static void on_late(uv_timer_t *t)
{
    respond_refused(t->data, false, "the token server takes too long");
}

static void begin(struct renewal *r, struct http_exchange *x)
{
    attach(r, x);
    uv_timer_start(&r->late, on_late, RENEW_WAIT_MS, 0);
    https_call_start(&r->call, &call_uses, r);
}

static struct renewal *make(struct renewals *all)
{
    struct renewal *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->all = all;
    uv_timer_init(all->egress->loop, &r->late);
    r->late.data = r;
    r->next = all->first;
    if (r->next)
        r->next->prev = r;
    all->first = r;
    return r;
}

static void start(struct renewals *all, struct http_exchange *x, const json_t *o)
{
    struct renewal *r = make(all);
    struct err e;

    if (!r) {
        http_respond_error(x, 503, "out of memory");
        return;
    }
    if (take_request(r, o, &e) != ERR_OK) {
        http_respond_error(x, e.code == ERR_EXHAUSTED ? 503 : 400, "%s", e.text);
        drop(r);
        return;
    }
    r->share = share_take(all->shares, r->call.as.tenant, text_of(r->item, "name"));
    if (!r->share) {
        http_respond_error(x, 503, "too many renewals at a time");
        drop(r);
        return;
    }
    begin(r, x);
}

/* The same credential with the same value: under way, or over. */
static struct renewal *find(const struct renewals *all, const json_t *o)
{
    const char *tenant = text_of(o, "tenant");
    struct renewal *r = all->first;

    while (r && (!tenant || strcmp(r->call.as.tenant, tenant) != 0 ||
                 !json_equal(r->item, json_object_get(o, "credential"))))
        r = r->next;
    return r;
}

void renewals_start(struct renewals *all, struct http_exchange *x, const char *body, size_t len)
{
    struct err e;
    json_t *o = NULL;
    struct renewal *r;

    if (json_parse(body, len, false, &o, &e) != ERR_OK) {
        http_respond_error(x, 400, "%s", e.text);
        return;
    }
    r = find(all, o);
    if (!r) {
        start(all, x, o);
    } else {
        attach(r, x);
        if (r->kept)
            respond(r, r->kept);
    }
    json_decref(o);
}

int renewals_new(struct egress *eg, struct renewals **out)
{
    struct renewals *all = calloc(1, sizeof(*all));

    if (!all)
        return -ENOMEM;
    all->egress = eg;
    all->shares = share_pool_new(RENEW_MAX);
    if (!all->shares) {
        free(all);
        return -ENOMEM;
    }
    *out = all;
    return 0;
}
