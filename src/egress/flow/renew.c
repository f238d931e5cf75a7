/* A renewal goes: request read and checked, found under way already (then it waits for the same
 * answer) or begun; the token server is dialled within its own rules and the ceilings, TLS, one
 * POST; the answer is read, the tokens sealed, the record written to the log, and the answer
 * kept for a while, since a cayd that was killed asks again with a refresh token that may have
 * been used up. A renewal goes on when its asker has gone; its deadline answers the asker, not
 * the token server. */

#include "egress/flow/renew.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/share.h"
#include "base/util.h"
#include "egress/credential/credential.h"
#include "policy/https_url.h"
#include "egress/credential/renew_message.h"
#include "egress/flow/audit.h"
#include "egress/flow/dial.h"
#include "egress/flow/egress.h"
#include "egress/flow/intercept_internal.h"
#include "egress/flow/request.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "egress/flow/tls_intercept.h"
#include "http/client.h"
#include "http/json.h"
#include "http/server.h"
#include "policy/policy.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#define REQUEST_MS  30000u
#define REQUEST_MAX 65536u
#define TYPE_JSON   "application/json"
#define TYPE_FORM   "application/x-www-form-urlencoded"

struct renewal {
    struct renewals *all;
    struct renewal *prev, *next;
    uint64_t id;
    struct http_exchange *x; /* of the cayd that asked, or NULL */
    struct share *place;     /* while it is under way */
    json_t *item, *value;    /* the credential as it came; its value, opened */
    char *previous;          /* access token that is being replaced, or NULL */
    uint64_t serial;
    bool after_401;
    struct https_url url;
    struct sandbox as; /* whom the dialler asks about: the rules of this renewal alone */
    struct target target;
    uv_timer_t late;
    char *kept; /* what came of it: sealed; it is over. NULL: it is under way */
    uint64_t kept_ms;
};

struct renewals {
    struct egress *egress;
    struct renewal *first;
    size_t kept_count;
    uint64_t last_id;
    struct share_pool *places;
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
    policy_free(r->as.policy);
    for (size_t i = 0; i < EGRESS_CEILINGS_MAX; i++)
        policy_free(r->as.ceilings[i]);
    share_return(r->place);
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
    CLEANUP_FREE char *text = o ? json_dumps(o, JSON_COMPACT) : NULL;

    json_decref(o);
    respond(r, text ? text : "{\"refused\":\"out of memory\",\"final\":false}");
}

static void record(struct renewal *r, bool allowed, const char *outcome, const char *why)
{
    const struct audit_record line = {.event = AUDIT_RENEWAL,
                                      .sandbox = &r->as,
                                      .target = &r->target,
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
    log_warn("tenant %s: the credential %s was not renewed: %s", r->as.tenant,
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
    json_object_set_new(r->value, "refresh_token", json_string(a->refresh_token));
    request = json_pack("{s:s, s:O, s:O, s:O}", "tenant", r->as.tenant, "name",
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
    json_t *token = json_pack("{s:s, s:s*, s:I, s:I, s:I, s:b}", "access_token", a->access_token,
                              "previous", r->previous, "serial", (json_int_t)r->serial, "at_ms",
                              (json_int_t)clock_real_ms(), "end_ms", (json_int_t)end_ms,
                              "after_401", r->after_401);
    enum err_code code = token ? credential_seal_token(r->all->egress->intercept->sealer,
                                                       r->as.tenant, r->item, token, out, e)
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
    share_return(TAKE_PTR(r->place));
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
        o = json_pack("{s:s, s:s*, s:I, s:I}", "token", token, "sealed", sealed, "serial",
                      (json_int_t)r->serial, "end_ms", (json_int_t)end_ms);
        text = o ? json_dumps(o, JSON_COMPACT) : NULL;
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

static void on_answer(void *arg, const struct http_head *head, const char *body, size_t len,
                      const struct err *why, int *fd)
{
    struct renewal *r = arg;
    struct renew_answer a;
    struct err e;

    if (why) {
        err_set(&e, ERR_UNAVAILABLE, "the token server: %s", why->text);
        fail(r, false, &e);
    } else if (renew_answer(head->status, body, len, &a, &e) != ERR_OK) {
        fail(r, false, &e);
    } else {
        take_answer(r, &a);
        renew_answer_free(&a);
    }
}

/* -- asked ------------------------------------------------------------------------------------- */

/* 0, or -errno: nothing was sent. end is taken over in every case. */
static int send_request(struct renewal *r, struct tls_endpoint end)
{
    CLEANUP_BUF struct buf body;
    char *authorization = NULL;
    int rc;

    buf_init(&body, REQUEST_MAX);
    rc = renew_request(r->value, &body, &authorization);
    if (rc < 0) {
        tls_endpoint_close(&end, true);
    } else {
        const struct http_header headers[] = {
            {"Content-Type", TYPE_FORM}, {"Accept", TYPE_JSON}, {"Authorization", authorization}};
        const struct http_client_request q = {.fd = end.fd,
                                              .layer = end.tls,
                                              .layer_ops = &tls_endpoint_server_ops,
                                              .method = "POST",
                                              .target = r->url.target,
                                              .host = r->url.authority,
                                              .headers = headers,
                                              .header_count = authorization ? 3 : 2,
                                              .body = body.data,
                                              .body_len = body.len,
                                              .max_response_bytes = RENEW_ANSWER_MAX,
                                              .timeout_ms = REQUEST_MS,
                                              .done = on_answer,
                                              .arg = r};

        rc = http_client_send(r->all->egress->loop, &q);
    }
    credential_wipe(authorization);
    if (body.base)
        explicit_bzero(body.base, body.cap);
    return rc;
}

static void on_tls(void *arg, const struct tls_endpoint *end, const struct err *why)
{
    struct renewal *r = arg;
    struct err e;
    int rc;

    if (!end) {
        err_set(&e, ERR_UNAVAILABLE, "the token server: %s", why->text);
        fail(r, false, &e);
        return;
    }
    rc = send_request(r, *end);
    if (rc < 0) {
        err_set_sys(&e, ERR_EXHAUSTED, rc, "the request for a token cannot be made");
        fail(r, false, &e);
    }
}

/* The ceilings may look at requests: this is the one. */
static bool is_allowed(struct renewal *r, struct err *e)
{
    char path[HTTPS_URL_TARGET_MAX];
    const struct http_head h = {.method = "POST", .path = path};
    struct policy_verdict v;

    (void)snprintf(path, sizeof(path), "%.*s", (int)strcspn(r->url.target, "?"), r->url.target);
    v = request_decide(&r->as, &r->target, true, &h);
    if (v.action != POLICY_DENY)
        return true;
    err_set(e, ERR_DENIED, "the token server is not allowed by %s: %s",
            v.source == POLICY_BY_NEVER ? "any policy" : "the policy limit", v.name);
    return false;
}

static void on_dialed(struct egress *eg, uint64_t id, const struct dial_result *result)
{
    struct renewal *r = eg->renewals->first;
    struct err e;
    int rc;

    while (r && r->id != id)
        r = r->next;
    if (!r) {
        if (result->fd >= 0)
            close(result->fd);
        return;
    }
    dial_note(&r->target, result);
    if (result->fd < 0) {
        err_set(&e, ERR_UNAVAILABLE, "the token server: %s%s%s", result->why.text,
                result->denied ? " by " : "", result->denied ? result->verdict.name : "");
        fail(r, result->denied, &e);
    } else if (!is_allowed(r, &e)) {
        close(result->fd);
        e.code = ERR_UNAVAILABLE; /* the limit may change */
        fail(r, true, &e);
    } else {
        rc = tls_intercept_client(eg, result->fd, r->url.host, r->as.tenant, on_tls, r);
        if (rc < 0) {
            err_set_sys(&e, ERR_EXHAUSTED, rc, "the token server: no TLS connection");
            fail(r, false, &e);
        }
    }
}

/* -- start ------------------------------------------------------------------------------------- */

/* That host and port, and nothing else; within the ceilings. */
static enum err_code take_rules(struct renewal *r, const json_t *ceilings, struct err *e)
{
    json_t *own = json_pack("{s:[{s:s, s:s, s:[s], s:[i]}]}", "rules", "name", "renewal", "action",
                            "allow", "domains", r->url.host, "ports", (int)r->url.port);
    enum err_code code = own ? policy_new(own, &r->as.policy, e)
                             : err_set(e, ERR_EXHAUSTED, "out of memory");
    const json_t *item;
    size_t i;

    json_decref(own);
    if (code == ERR_OK &&
        (!json_is_array(ceilings) || json_array_size(ceilings) > EGRESS_CEILINGS_MAX))
        code = err_set(e, ERR_INVALID, "ceilings: not a list of at most %u policies",
                       EGRESS_CEILINGS_MAX);
    if (code == ERR_OK)
        json_array_foreach (ceilings, i, item)
            if (policy_new(item, &r->as.ceilings[i], e) != ERR_OK)
                return e->code;
    return code;
}

/* The access token that is replaced stays one that is searched for: it may be valid yet. */
static enum err_code take_previous(struct renewal *r, const json_t *o, struct err *e)
{
    json_t *item = json_deep_copy(r->item), *list = json_pack("[o]", item);
    struct credentials *all = NULL;
    enum err_code code = ERR_OK;

    if (json_object_get(o, "previous"))
        json_object_set(item, "token", json_object_get(o, "previous"));
    code = list ? credentials_new(r->all->egress->intercept->sealer, r->as.tenant, list, &all, e)
                : err_set(e, ERR_EXHAUSTED, "out of memory");
    if (code == ERR_OK && all->list[0].kind != CREDENTIAL_OAUTH2)
        code = err_set(e, ERR_INVALID, "credential: is not of kind oauth2");
    if (code == ERR_OK && all->list[0].value)
        r->previous = strdup(all->list[0].value);
    if (code == ERR_OK && !https_url_parse(all->list[0].oauth.token_url, &r->url))
        code = err_set(e, ERR_INVALID, "credential: its token_url is none"); /* it was checked */
    credentials_unref(all);
    json_decref(list);
    return code;
}

static enum err_code take_request(struct renewal *r, const json_t *o, struct err *e)
{
    const char *tenant = text_of(o, "tenant"), *sandbox = text_of(o, "sandbox");

    if (!tenant || !*tenant || strlen(tenant) > EGRESS_TENANT_MAX || !sandbox ||
        strlen(sandbox) >= sizeof(r->as.id))
        return err_set(e, ERR_INVALID, "tenant, sandbox: missing, or too long");
    (void)snprintf(r->as.tenant, sizeof(r->as.tenant), "%s", tenant);
    (void)snprintf(r->as.id, sizeof(r->as.id), "%s", sandbox);
    r->item = json_incref(json_object_get(o, "credential"));
    r->serial = (uint64_t)json_integer_value(json_object_get(o, "serial"));
    r->after_401 = json_is_true(json_object_get(o, "after_401"));
    if (r->serial == 0)
        return err_set(e, ERR_INVALID, "serial: missing");
    if (take_previous(r, o, e) != ERR_OK ||
        credential_open_value(r->all->egress->intercept->sealer, tenant, r->item, &r->value, e) !=
            ERR_OK)
        return e->code;
    return take_rules(r, json_object_get(o, "ceilings"), e);
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
    struct renewals *all = r->all;

    attach(r, x);
    uv_timer_start(&r->late, on_late, RENEW_WAIT_MS, 0);
    r->target = (struct target){.name = r->url.host, .port = r->url.port};
    if (!dial_start(all->egress, &r->as, &r->target, r->id, on_dialed)) {
        struct err e;

        err_set(&e, ERR_EXHAUSTED, "out of memory");
        fail(r, false, &e);
    }
}

static struct renewal *make(struct renewals *all)
{
    struct renewal *r = calloc(1, sizeof(*r));

    if (!r)
        return NULL;
    r->all = all;
    r->id = ++all->last_id;
    r->as.egress = all->egress;
    r->as.slot = DIAL_LONE;
    r->as.tcp_fd = r->as.udp_fd = -1;
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
    r->place = share_take(all->places, r->as.tenant, text_of(r->item, "name"));
    if (!r->place) {
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

    while (r && (!tenant || strcmp(r->as.tenant, tenant) != 0 ||
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
    all->places = share_pool_new(RENEW_MAX);
    if (!all->places) {
        free(all);
        return -ENOMEM;
    }
    *out = all;
    return 0;
}
