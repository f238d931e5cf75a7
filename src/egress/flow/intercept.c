#include "egress/flow/intercept.h"

#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/intercept_internal.h"
#include "egress/flow/registry.h"
#include "egress/flow/request.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "egress/flow/tls_intercept.h"
#include "egress/flow/verdict.h"
#include "egress/http/inject.h"
#include "http/json.h"
#include "http/server.h"
#include "http/tls_conn.h"
#include "policy/policy.h"

#include <errno.h>
#include <unistd.h>

#include <jansson.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <string.h>

#define INTERCEPT_OPERATORS_MAX 12288 /* with a tenant's own, what a sandbox takes */

const struct credentials *intercept_searched(const struct sandbox *s)
{
    const struct sandbox *whole = s->parent ? s->parent : s;

    return whole->credentials ? whole->credentials : s->credentials;
}

/* -- credentials ------------------------------------------------------------------------------- */

struct inject_request intercept_request(struct flow *f, const struct target *t, bool dialed,
                                        bool tls, const struct http_head *h, const char *credential)
{
    return (struct inject_request){
        .credentials = f->sandbox->credentials,
        .searched = intercept_searched(f->sandbox),
        .credential = credential,
        .named = request_injects(f->sandbox, t, dialed, h),
        .host = t->name,
        .said = t->said,
        .port = t->port,
        .ruled = request_is_ruled(f->sandbox, t),
        .watch = {request_note_injected, f->egress, f->id},
        .bodies = {f->egress->intercept->held_bodies, f->share},
        .answers = f->egress->intercept->held_answers,
        .transport = {.tls = tls, .detour = verdict_is_detour(f->sandbox, t->name)}};
}

enum err_code intercept_prepare(struct flow *f, const struct target *t, struct http_exchange *x,
                                struct policy_verdict *v, bool tls, struct http_relay_options *o,
                                struct err *e)
{
    const struct inject_request r = intercept_request(f, t, true, tls, http_exchange_head(x),
                                                      v->credential);
    const char *put = NULL;
    enum err_code code = inject_prepare(f->egress->turns, registry_owner(f->sandbox), &r, x, o,
                                        &put, e);

    v->credential = put; /* the log says what left */
    return code;
}

enum err_code intercept_credentials_new(struct egress *eg, const char *tenant, const json_t *json,
                                        struct credentials **out, struct err *e)
{
    return credentials_new(eg->intercept->sealer, tenant, json, out, e);
}

void intercept_answer_ca(struct egress *eg, struct http_exchange *x, const char *tenant)
{
    static const struct http_header type = {"Content-Type", "application/x-pem-file"};
    const char *operators = eg->intercept->operators;
    CLEANUP_FREE char *pem = NULL, *all = NULL;
    struct err e;

    if (ca_pem(eg->intercept->ca, tenant, &pem, &e) != ERR_OK)
        http_respond_error(x, e.code == ERR_INVALID ? 404 : 503, "%s", e.text);
    else if (asprintf(&all, "%s%s", pem, operators ? operators : "") < 0)
        http_respond_error(x, 503, "out of memory");
    else
        http_respond(x, 200, &type, 1, all, strlen(all));
}

void intercept_answer_seal(struct egress *eg, struct http_exchange *x, char *body, size_t len)
{
    static const struct http_header type = {"Content-Type", "application/json"};
    CLEANUP_FREE char *sealed = NULL;
    char text[CREDENTIAL_SEALED_MAX + 32];
    json_t *o = NULL;
    struct err e;
    enum err_code code = json_parse(body, len, false, &o, &e);

    explicit_bzero(body, len);
    if (code == ERR_OK)
        code = credential_seal(eg->intercept->sealer, o, &sealed, &e);
    json_decref(o);
    if (code != ERR_OK) {
        http_respond_error(x, code == ERR_INVALID || code == ERR_TOO_LARGE ? 400 : 503, "%s",
                           e.text);
        return;
    }
    snprintf(text, sizeof(text), "{\"sealed\":\"%s\"}", sealed);
    http_respond(x, 200, &type, 1, text, strlen(text));
}

/* -- start ------------------------------------------------------------------------------------- */

static enum err_code trust(SSL_CTX *ctx, const char *ca_file, struct err *e)
{
    /* The system's are looked up by name when they are needed: all of them take 4 MiB. */
    if (SSL_CTX_set_default_verify_dir(ctx) != 1)
        return err_set(e, ERR_INTERNAL, "the system's certificate authorities cannot be found");
    if (ca_file && access(ca_file, R_OK) < 0) /* for the reason; OpenSSL's is "system lib" */
        return err_set(e, ERR_INVALID,
                       "the file %s of [egress] ca_file cannot be read by cay-egress's user: %s",
                       ca_file, strerror(errno));
    if (ca_file && SSL_CTX_load_verify_file(ctx, ca_file) != 1) {
        const char *why = ERR_reason_error_string(ERR_peek_last_error());

        err_set(e, ERR_INVALID,
                "the file %s of [egress] ca_file has no certificate that can be used, in PEM form: "
                "%s",
                ca_file, why ? why : "there is none in it");
        ERR_clear_error();
        return ERR_INVALID;
    }
    ERR_clear_error();
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    return ERR_OK;
}

/* The certificates of ca_file alone, whatever text stands beside them: what the operator's own
 * servers are signed with is trusted inside as it is here, also where TLS is not read. */
static void read_operators(struct intercept *in, const char *ca_file)
{
    BIO *file = ca_file ? BIO_new_file(ca_file, "r") : NULL, *out = BIO_new(BIO_s_mem());
    X509 *one = NULL;
    char *text;
    long n = 0;

    while (file && out && n >= 0 && (one = PEM_read_bio_X509(file, NULL, NULL, NULL))) {
        n = PEM_write_bio_X509(out, one) == 1 ? BIO_get_mem_data(out, &text) : -1;
        X509_free(one);
    }
    ERR_clear_error(); /* the end of the file is one */
    if (n > INTERCEPT_OPERATORS_MAX)
        log_warn("the authorities in %s are more than %d bytes: sandboxes are not told of them",
                 ca_file, INTERCEPT_OPERATORS_MAX);
    else if (n > 0)
        in->operators = strndup(text, (size_t)n);
    BIO_free(out);
    BIO_free(file);
}

static enum err_code fill(struct intercept *in, struct egress *eg, const struct intercept_config *c,
                          struct err *e)
{
    in->towards_clients = tls_conn_context(false);
    in->towards_servers = tls_conn_context(true);
    in->held_bodies = share_pool_new(HELD_BODY_PLACES);
    in->held_answers = held_answers_new();
    if (!in->towards_clients || !in->towards_servers || !in->held_bodies || !in->held_answers ||
        tlshands_new(eg->loop, &in->hands) < 0 || h2s_new(eg->loop, &in->h2s) < 0)
        return err_set(e, ERR_EXHAUSTED, "TLS cannot be set up: out of memory");
    tlshands_set_turns(in->hands, eg->turns);
    h2s_set_turns(in->h2s, eg->turns);
    tls_intercept_choose(in->towards_clients);
    if (trust(in->towards_servers, c->ca_file, e) != ERR_OK ||
        ca_new(eg->config.state_dir, &in->ca, e) != ERR_OK)
        return e->code;
    read_operators(in, c->ca_file);
    if (sealer_new(eg->config.state_dir, c->key_fd, &in->sealer, e) != ERR_OK)
        return e->code;
    if (sealer_derive(in->sealer, "numbers of names", eg->names_key) < 0)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    return ERR_OK;
}

static void drop(struct intercept *in)
{
    tlshands_free(in->hands);
    h2s_free(in->h2s);
    ca_free(in->ca);
    sealer_free(in->sealer);
    SSL_CTX_free(in->towards_clients);
    SSL_CTX_free(in->towards_servers);
    free(in->operators);
    share_pool_free(in->held_bodies);
    held_answers_free(in->held_answers);
    free(in);
}

enum err_code intercept_new(struct egress *eg, const struct intercept_config *c, struct err *e)
{
    struct intercept *in = calloc(1, sizeof(*in));

    if (!in)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    if (fill(in, eg, c, e) != ERR_OK) {
        drop(in);
        return e->code;
    }
    json_wipe_frees(); /* jansson holds what is sealed for a moment */
    eg->intercept = in;
    return ERR_OK;
}
