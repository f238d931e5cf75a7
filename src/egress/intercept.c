#include "egress/intercept.h"

#include "base/log.h"
#include "base/util.h"
#include "egress/ca.h"
#include "egress/credential.h"
#include "egress/deny.h"
#include "egress/forward.h"
#include "egress/inject.h"
#include "egress/tlshand.h"
#include "egress/tlspipe.h"
#include "http/json.h"
#include "http/server.h"
#include "http/tls_conn.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <string.h>

#define CLIENT_HANDSHAKE_MS 10000
#define SERVER_HANDSHAKE_MS 15000

struct intercept {
    struct tlshands *hands;
    struct tlspipes *pipes;
    struct ca *ca;
    struct sealer *sealer;
    SSL_CTX *towards_clients, *towards_servers;
};

/* -- towards the sandbox ----------------------------------------------------------------------- */

/* A pipe may live a moment longer than its flow. */
struct client_side {
    struct egress *egress;
    uint64_t flow_id;
    struct tlshand *hand; /* until it is done */
};

static void on_client_moved(void *arg, uint64_t read, uint64_t written)
{
    struct client_side *c = arg;
    struct flow *f = flow_find(c->egress, c->flow_id);

    if (!f)
        return;
    f->up_bytes = read;
    f->down_bytes = written;
}

/* The flow ends in the handshake. */
static void on_flow_end(struct flow *f)
{
    struct client_side *c = f->user;

    tlshand_close(c->hand);
    free(c);
}

static void fail_client(struct flow *f, const struct err *why)
{
    char text[POLICY_REASON_SIZE];

    if (strstr(why->text, "unknown ca") || strstr(why->text, "certificate unknown") ||
        strstr(why->text, "bad certificate"))
        snprintf(text, sizeof(text),
                 "the rule looks at requests, and the client does not trust this sandbox's "
                 "certificate authority");
    else if (strstr(why->text, "application protocol"))
        snprintf(text, sizeof(text),
                 "the rule looks at requests, and the client offers no HTTP/1.1, only other "
                 "protocols");
    else
        snprintf(text, sizeof(text), "the rule looks at requests: %.200s", why->text);
    flow_set_rule(f, "tls");
    free(f->reason);
    f->reason = strdup(text);
    deny_note(f, NULL, NULL, NULL);
    flow_end(f);
}

/* The plain end of the client's connection. c goes with the pipe. */
static int open_plain(struct client_side *c, const struct tlsend *end, int *plain)
{
    const struct tlspipe_options o = {
        .end = *end, .server = true, .on_moved = on_client_moved, .on_end = free, .arg = c};
    int rc = tlspipe_start(c->egress->intercept->pipes, &o, plain, NULL);

    if (rc < 0)
        free(c);
    return rc;
}

static void on_client_ready(void *arg, const struct tlsend *end, const struct err *why)
{
    struct client_side *c = arg;
    struct flow *f = flow_find(c->egress, c->flow_id); /* it would have closed the handshake */
    struct tlsend mine;
    int plain;

    f->user = NULL;
    f->on_end = NULL;
    if (!end) {
        free(c);
        fail_client(f, why);
        return;
    }
    mine = *end;
    if (open_plain(c, end, &plain) < 0) {
        tlsend_close(&mine, false);
        flow_end(f);
    } else if (forward_adopt(f->egress, f, plain, true) < 0) {
        close(plain);
        flow_end(f);
    }
}

/* The name that a leaf is for is the one that was dialled; by address, the one that was asked for,
 * which flow.c has held against the rules. */
static const char *name_of(const struct flow *f)
{
    return f->target.name ? f->target.name : f->sni;
}

static SSL *make_server_ssl(struct intercept *in, const struct flow *f, struct err *e)
{
    SSL *ssl = SSL_new(in->towards_clients);

    if (!ssl) {
        err_set(e, ERR_EXHAUSTED, "out of memory");
        return NULL;
    }
    if (ca_use(in->ca, f->sandbox->tenant, name_of(f), &f->target.address, ssl, e) != ERR_OK) {
        SSL_free(ssl);
        return NULL;
    }
    SSL_set_accept_state(ssl);
    return ssl;
}

static int start_client(struct egress *eg, struct flow *f, struct err *e)
{
    struct tlshand_options o = {
        .fd = f->fd, .server = true, .timeout_ms = CLIENT_HANDSHAKE_MS, .on_done = on_client_ready};
    struct client_side *c;

    if (f->target.name && f->sni && strcmp(f->sni, f->target.name) != 0) {
        err_set(e, ERR_DENIED, "the TLS server name is not the name that was dialled");
        return -EPERM;
    }
    o.ssl = make_server_ssl(eg->intercept, f, e);
    if (!o.ssl)
        return -EIO;
    o.arg = c = malloc(sizeof(*c));
    if (!c) {
        SSL_free(o.ssl);
        err_set(e, ERR_EXHAUSTED, "out of memory");
        return -ENOMEM;
    }
    *c = (struct client_side){.egress = eg, .flow_id = f->id};
    if (tlshand_start(eg->intercept->hands, &o, &c->hand) < 0) {
        free(c);
        err_set(e, ERR_EXHAUSTED, "out of memory");
        return -ENOMEM;
    }
    f->fd = -1;
    f->user = c;
    f->on_end = on_flow_end;
    return 0;
}

/* -- towards the server ------------------------------------------------------------------------ */

struct server_side {
    struct tlspipes *pipes;
    uv_timer_t later; /* where it could not even begin: told in the next turn */
    void (*cb)(void *arg, int fd, const struct err *why);
    void *arg;
};

static void on_server_ready(void *arg, const struct tlsend *end, const struct err *why)
{
    struct server_side *s = arg;
    struct tlsend mine;
    struct err e;
    int plain = -1, rc;

    if (end) {
        mine = *end;
        rc = tlspipe_start(s->pipes, &(struct tlspipe_options){.end = mine}, &plain, NULL);
        if (rc < 0) {
            tlsend_close(&mine, false);
            err_set_sys(&e, ERR_EXHAUSTED, rc, "no TLS connection");
            why = &e;
        }
    }
    s->cb(s->arg, plain, why);
    free(s);
}

static void on_later_closed(uv_handle_t *h)
{
    free(CONTAINER_OF((uv_timer_t *)h, struct server_side, later));
}

static void on_later(uv_timer_t *t)
{
    struct server_side *s = CONTAINER_OF(t, struct server_side, later);
    struct err e;

    err_set(&e, ERR_EXHAUSTED, "no TLS connection: out of memory");
    s->cb(s->arg, -1, &e);
    uv_close((uv_handle_t *)t, on_later_closed);
}

/* Whom the certificate has to be for. */
static bool set_peer(SSL *ssl, const char *name, const struct policy_address *a)
{
    char digits[INET6_ADDRSTRLEN];

    if (name) {
        SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
    }
    policy_address_format(a, digits);
    return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), digits) == 1;
}

static SSL *make_client_ssl(struct intercept *in, const char *name, const struct policy_address *a)
{
    SSL *ssl = SSL_new(in->towards_servers);

    if (ssl && set_peer(ssl, name, a)) {
        SSL_set_connect_state(ssl);
        return ssl;
    }
    SSL_free(ssl);
    return NULL;
}

static void start_server(struct egress *eg, uint64_t flow_id, int fd, const char *name,
                         void (*cb)(void *arg, int fd, const struct err *why), void *arg)
{
    const struct flow *f = flow_find(eg, flow_id);
    struct server_side *s = malloc(sizeof(*s));
    struct tlshand_options o = {
        .fd = fd, .timeout_ms = SERVER_HANDSHAKE_MS, .on_done = on_server_ready, .arg = s};

    if (!s)
        abort(); /* nobody could be told, ever */
    s->pipes = eg->intercept->pipes;
    s->cb = cb;
    s->arg = arg;
    if (f)
        o.ssl = make_client_ssl(eg->intercept, name ? name : name_of(f), &f->target.address);
    if (o.ssl && tlshand_start(eg->intercept->hands, &o, NULL) == 0)
        return;
    close(fd);
    uv_timer_init(eg->loop, &s->later);
    uv_timer_start(&s->later, on_later, 0, 0);
}

/* -- credentials ------------------------------------------------------------------------------- */

static enum err_code prepare(struct egress *eg, struct flow *f, struct http_exchange *x,
                             const struct policy_verdict *v, bool tls, struct http_relay_options *o,
                             struct err *e)
{
    const struct inject_request r = {.credentials = f->sandbox->credentials,
                                     .credential = v->credential,
                                     .host = f->target.name,
                                     .port = f->target.port,
                                     .tls = tls};

    return inject_prepare(eg->intercept->pipes, &r, x, o, e);
}

static enum err_code open_credentials(struct egress *eg, const char *tenant, const json_t *json,
                                      struct credentials **out, struct err *e)
{
    return credentials_new(eg->intercept->sealer, tenant, json, out, e);
}

static void answer_ca(struct egress *eg, struct http_exchange *x, const char *tenant)
{
    static const struct http_header type = {"Content-Type", "application/x-pem-file"};
    CLEANUP_FREE char *pem = NULL;
    struct err e;

    if (ca_pem(eg->intercept->ca, tenant, &pem, &e) == ERR_OK)
        http_respond(x, 200, &type, 1, pem, strlen(pem));
    else
        http_respond_error(x, e.code == ERR_INVALID ? 404 : 503, "%s", e.text);
}

static void answer_seal(struct egress *eg, struct http_exchange *x, char *body, size_t len)
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
    if (ca_file && SSL_CTX_load_verify_file(ctx, ca_file) != 1) {
        const char *why = ERR_reason_error_string(ERR_peek_last_error());

        err_set(e, ERR_INVALID, "the file %s of [egress] ca_file cannot be used: %s", ca_file,
                why ? why : "no certificate in it");
        ERR_clear_error();
        return ERR_INVALID;
    }
    ERR_clear_error();
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    return ERR_OK;
}

static enum err_code fill(struct intercept *in, struct egress *eg, const struct intercept_config *c,
                          struct err *e)
{
    in->towards_clients = tls_conn_context(false);
    in->towards_servers = tls_conn_context(true);
    if (!in->towards_clients || !in->towards_servers || tlshands_new(eg->loop, &in->hands) < 0 ||
        tlspipes_new(eg->loop, &in->pipes) < 0)
        return err_set(e, ERR_EXHAUSTED, "TLS cannot be set up: out of memory");
    if (trust(in->towards_servers, c->ca_file, e) != ERR_OK ||
        ca_new(eg->config.state_dir, &in->ca, e) != ERR_OK)
        return e->code;
    return sealer_new(eg->config.state_dir, c->key_fd, &in->sealer, e);
}

static void drop(struct intercept *in)
{
    tlshands_free(in->hands);
    tlspipes_free(in->pipes);
    ca_free(in->ca);
    sealer_free(in->sealer);
    SSL_CTX_free(in->towards_clients);
    SSL_CTX_free(in->towards_servers);
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
    eg->hooks = (struct egress_hooks){.intercept_start = start_client,
                                      .upstream_start = start_server,
                                      .request_prepare = prepare,
                                      .credentials_new = open_credentials,
                                      .credentials_free = credentials_unref,
                                      .ca = answer_ca,
                                      .seal = answer_seal};
    return ERR_OK;
}

void intercept_free(struct egress *eg)
{
    if (!eg->intercept)
        return;
    eg->hooks = (struct egress_hooks){.ca = NULL};
    drop(TAKE_PTR(eg->intercept));
}
