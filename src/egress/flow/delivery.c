/* A delivery goes: request read, its secret opened and the body signed, then one HTTPS call; its
 * outcome is written to the log and told to cayd. Nothing of it is kept afterwards. */

#include "egress/flow/delivery.h"

#include "base/base64.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/share.h"
#include "base/util.h"
#include "egress/credential/credential.h"
#include "egress/flow/audit.h"
#include "egress/flow/egress.h"
#include "egress/flow/https_call.h"
#include "egress/flow/intercept_internal.h"
#include "egress/flow/reply.h"
#include "http/json.h"
#include "http/message.h"
#include "http/server.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

#define ANSWER_MAX     65536u /* collected, and not read */
#define MESSAGE_MAX    128u
#define SECRET_PREFIX  "whsec_"
#define SECRET_MAX     64u
#define SIGNATURE_SIZE 64u

struct deliveries {
    struct egress *egress;
    struct share_pool *shares;
};

struct delivery {
    struct deliveries *all;
    struct http_exchange *x; /* of the cayd that asked, or NULL */
    struct share *share;
    struct https_call call;
    uv_timer_t late;
    char *name, *message, *body;
    char timestamp[24], signature[SIGNATURE_SIZE];
};

static const char *text_of(const json_t *o, const char *key)
{
    return json_string_value(json_object_get(o, key));
}

/* -- its end ----------------------------------------------------------------------------------- */

static void on_late_closed(uv_handle_t *h)
{
    struct delivery *d = h->data;

    https_call_clear(&d->call);
    share_return(d->share);
    free(d->name);
    free(d->message);
    free(d->body);
    free(d);
}

static void respond(struct delivery *d, json_t *o)
{
    struct http_exchange *x = TAKE_PTR(d->x);

    if (!x) {
        json_decref(o);
        return;
    }
    http_exchange_set(x, NULL, NULL);
    reply_json(x, 200, o);
}

static void finish(struct delivery *d, bool allowed, const char *outcome, const char *why,
                   json_t *answer)
{
    const struct audit_record line = {.event = AUDIT_DELIVERY,
                                      .sandbox = &d->call.as,
                                      .target = &d->call.target,
                                      .allowed = allowed,
                                      .rule = "webhook",
                                      .outcome = outcome,
                                      .reason = why,
                                      .credential = d->name};

    audit_record(d->all->egress->audit, &line);
    respond(d, answer);
    uv_close((uv_handle_t *)&d->late, on_late_closed);
}

static void on_failed(void *arg, bool denied, const struct err *why)
{
    finish(arg, !denied, denied ? NULL : "failed", why->text,
           json_pack("{s:s}", "failed", why->text));
}

static void on_answered(void *arg, const struct http_head *head, const char *body, size_t len)
{
    const bool good = head->status >= 200 && head->status < 300;
    char why[64];

    (void)snprintf(why, sizeof(why), "its server has answered %d", head->status);
    finish(arg, true, good ? "delivered" : "failed", good ? NULL : why,
           json_pack("{s:i}", "status", head->status));
}

/* -- its request ------------------------------------------------------------------------------- */

static void on_connected(void *arg)
{
    struct delivery *d = arg;
    const struct http_header headers[] = {{"Content-Type", "application/json"},
                                          {"User-Agent", "cay"},
                                          {"webhook-id", d->message},
                                          {"webhook-timestamp", d->timestamp},
                                          {"webhook-signature", d->signature}};
    int rc = https_call_send(&d->call, headers, ARRAY_SIZE(headers), d->body, strlen(d->body),
                             ANSWER_MAX);
    struct err e;

    if (rc < 0) {
        err_set_sys(&e, ERR_EXHAUSTED, rc, "the request cannot be made");
        on_failed(d, false, &e);
    }
}

static const struct https_call_uses call_uses = {
    .peer = "its server",
    .connected = on_connected,
    .failed = on_failed,
    .answered = on_answered,
};

/* secret: "whsec_" and base64. False: it is none, or memory is out. */
static bool sign(struct delivery *d, const char *secret)
{
    const size_t prefix = strlen(SECRET_PREFIX);
    unsigned char key[SECRET_MAX], sum[EVP_MAX_MD_SIZE];
    unsigned sum_len = 0;
    char *text = NULL;
    ssize_t key_len = -EINVAL;
    bool good = false;

    if (strncmp(secret, SECRET_PREFIX, prefix) == 0 &&
        base64_decoded_max(strlen(secret) - prefix) <= sizeof(key))
        key_len = base64_decode(secret + prefix, strlen(secret) - prefix, key);
    (void)snprintf(d->timestamp, sizeof(d->timestamp), "%" PRId64, clock_real_ms() / 1000);
    if (key_len > 0 && asprintf(&text, "%s.%s.%s", d->message, d->timestamp, d->body) >= 0)
        good = HMAC(EVP_sha256(), key, (int)key_len, (const unsigned char *)text, strlen(text), sum,
                    &sum_len) != NULL;
    if (good) {
        memcpy(d->signature, "v1,", 3);
        base64_encode(sum, sum_len, d->signature + 3);
    }
    explicit_bzero(key, sizeof(key));
    free(text);
    return good;
}

/* The credential opens for its tenant alone, and only for where it is bound to. */
static enum err_code take_credential(struct delivery *d, const char *tenant, const json_t *item,
                                     struct err *e)
{
    char path[HTTPS_URL_TARGET_MAX];
    json_t *list = json_pack("[O]", item);
    struct credentials *all = NULL;
    enum err_code code = list ? credentials_new(d->all->egress->intercept->sealer, tenant, list,
                                                &all, e)
                              : err_set(e, ERR_EXHAUSTED, "out of memory");

    https_url_path(&d->call.url, path);
    if (code == ERR_OK &&
        credential_fits(&all->list[0], d->call.url.host, d->call.url.port,
                        (struct policy_transport){.tls = true}, "POST", path) != POLICY_FITS)
        code = err_set(e, ERR_INVALID, "credential: is not bound to that address");
    if (code == ERR_OK && (all->list[0].kind != CREDENTIAL_BEARER || !sign(d, all->list[0].value)))
        code = err_set(e, ERR_INVALID, "credential: is no signing secret");
    credentials_unref(all);
    json_decref(list);
    return code;
}

static bool is_message_id(const char *text)
{
    size_t n = strlen(text);

    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)text[i]) && !strchr("._-", text[i]))
            return false;
    return n > 0 && n <= MESSAGE_MAX;
}

static enum err_code take_texts(struct delivery *d, const json_t *o, struct err *e)
{
    const char *url = text_of(o, "url"), *message = text_of(o, "message"),
               *body = text_of(o, "body"),
               *name = text_of(json_object_get(o, "credential"), "name");

    if (!url || !https_url_parse(url, &d->call.url))
        return err_set(e, ERR_INVALID, "url: missing, or not https");
    if (!message || !is_message_id(message))
        return err_set(e, ERR_INVALID, "message: missing, or no text for a header");
    if (!body || strlen(body) > DELIVERY_BODY_MAX || !name)
        return err_set(e, ERR_INVALID, "body, credential: missing, or too long");
    d->message = strdup(message);
    d->body = strdup(body);
    d->name = strdup(name);
    return d->message && d->body && d->name ? ERR_OK : err_set(e, ERR_EXHAUSTED, "out of memory");
}

static enum err_code take_request(struct delivery *d, const json_t *o, struct err *e)
{
    const char *tenant = text_of(o, "tenant");

    if (!tenant || !*tenant || strlen(tenant) > EGRESS_TENANT_MAX)
        return err_set(e, ERR_INVALID, "tenant: missing, or too long");
    if (take_texts(d, o, e) != ERR_OK ||
        take_credential(d, tenant, json_object_get(o, "credential"), e) != ERR_OK ||
        https_call_init(&d->call, d->all->egress, tenant, "", json_object_get(o, "ceilings"), e) !=
            ERR_OK)
        return e->code;
    if (!audit_prepare(d->all->egress->audit, tenant))
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    d->share = share_take(d->all->shares, tenant, NULL);
    return d->share ? ERR_OK : err_set(e, ERR_EXHAUSTED, "too many deliveries at a time");
}

/* -- start ------------------------------------------------------------------------------------- */

static void on_exchange_end(struct http_exchange *x, void *data)
{
    struct delivery *d = data;

    d->x = NULL;
}

/* cayd has to know; the server may yet answer. */
static void on_late(uv_timer_t *t)
{
    respond(t->data, json_pack("{s:s}", "failed", "its server takes too long"));
}

static void start(struct deliveries *all, struct http_exchange *x, const json_t *o)
{
    struct delivery *d = calloc(1, sizeof(*d));
    struct err e;

    if (!d) {
        http_respond_error(x, 503, "out of memory");
        return;
    }
    d->all = all;
    uv_timer_init(all->egress->loop, &d->late);
    d->late.data = d;
    if (take_request(d, o, &e) != ERR_OK) {
        http_respond_error(x, e.code == ERR_EXHAUSTED ? 503 : 400, "%s", e.text);
        uv_close((uv_handle_t *)&d->late, on_late_closed);
        return;
    }
    d->x = x;
    http_exchange_set(x, d, on_exchange_end);
    uv_timer_start(&d->late, on_late, DELIVERY_WAIT_MS, 0);
    https_call_start(&d->call, &call_uses, d);
}

void deliveries_start(struct deliveries *all, struct http_exchange *x, const char *body, size_t len)
{
    struct err e;
    json_t *o = NULL;

    if (json_parse(body, len, false, &o, &e) != ERR_OK)
        http_respond_error(x, 400, "%s", e.text);
    else
        start(all, x, o);
    json_decref(o);
}

int deliveries_new(struct egress *eg, struct deliveries **out)
{
    struct deliveries *all = calloc(1, sizeof(*all));

    if (!all)
        return -ENOMEM;
    all->egress = eg;
    all->shares = share_pool_new(DELIVERIES_MAX);
    if (!all->shares) {
        free(all);
        return -ENOMEM;
    }
    *out = all;
    return 0;
}
