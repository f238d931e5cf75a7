/* The order for a client that offers HTTP/2: server first (dialled, its handshake), since its
 * choice of protocol is the client's; for HTTP/1.1, or a refusal that is to be said, the
 * client's handshake first, and a server for each origin later. Each handshake is tlshand.c's;
 * the streams of both are given to forward.c (HTTP/1.1) or h2_flow.c, which own the connections
 * from then on. Until then the flow's end ends all of it. A failure at any step becomes what
 * requests are told, where the client's side stands. */

#include "egress/flow/tls_intercept.h"

#include "base/err.h"
#include "base/util.h"
#include "egress/flow/deny.h"
#include "egress/flow/dial.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/forward.h"
#include "egress/flow/h2_flow.h"
#include "egress/flow/intercept_internal.h"
#include "egress/flow/names.h"
#include "egress/flow/registry.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "policy/policy.h"

#include <errno.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <uv.h>

#define CLIENT_HANDSHAKE_MS 10000
#define SERVER_HANDSHAKE_MS 15000

#define ALPN_H2   "\x02h2"
#define ALPN_HTTP "\x08http/1.1"

/* A flow whose handshakes are under way: its user. */
struct tls_intercept {
    struct egress *egress;
    uint64_t flow_id;
    struct tlshand *hand;       /* either side's, or NULL */
    bool reserved;              /* a place for HTTP/2 */
    struct tls_endpoint server; /* once it is there */
    struct h2_flow_lost lost;
};

/* -- contexts ---------------------------------------------------------------------------------- */

static int choose(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                  const unsigned char *in, unsigned in_len, void *arg)
{
    const unsigned char *only = SSL_get_app_data(ssl);
    unsigned char *chosen;

    if (!only || SSL_select_next_proto(&chosen, out_len, only, only[0] + 1u, in, in_len) !=
                     OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

void tls_intercept_choose(SSL_CTX *ctx)
{
    SSL_CTX_set_alpn_select_cb(ctx, choose, NULL);
}

/* Only a refusal is to be said: nothing is dialled, no request goes anywhere. */
static bool is_refusal(const struct flow *f)
{
    return f->refused || f->unreachable;
}

/* The name that a leaf is for is the one that was dialled; by address, the one that was asked for,
 * which protocol_detect.c has held against the rules. A refusal is said under the name that was
 * asked for. */
static const char *name_of(const struct flow *f)
{
    if (is_refusal(f) && f->sni)
        return f->sni;
    return f->target.name ? f->target.name : f->sni;
}

static SSL *make_server_ssl(struct intercept *in, const struct flow *f, bool h2, struct err *e)
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
    SSL_set_app_data(ssl, h2 ? ALPN_H2 : ALPN_HTTP);
    SSL_set_accept_state(ssl);
    return ssl;
}

/* The name that the certificate has to be for. */
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

/* alpn NULL: the context's own, HTTP/1.1. */
static SSL *make_client_ssl(struct intercept *in, const char *name, const struct policy_address *a,
                            const char *alpn)
{
    SSL *ssl = SSL_new(in->towards_servers);

    if (ssl && set_peer(ssl, name, a) &&
        (!alpn ||
         SSL_set_alpn_protos(ssl, (const unsigned char *)alpn, (unsigned)strlen(alpn)) == 0)) {
        SSL_set_connect_state(ssl);
        return ssl;
    }
    SSL_free(ssl);
    return NULL;
}

/* -- its end ----------------------------------------------------------------------------------- */

static void drop(struct flow *f, struct tls_intercept *o)
{
    if (o->reserved)
        h2_flow_release(f->sandbox);
    if (o->hand)
        tlshand_close(o->hand);
    tls_endpoint_close(&o->server, true);
    free(o);
}

static void on_flow_end(struct flow *f)
{
    drop(f, f->user);
}

/* The flow has another owner from here on. */
static void let_go(struct flow *f)
{
    f->user = NULL;
    f->on_end = NULL;
}

static void fail_client(struct flow *f, const struct err *why)
{
    char text[POLICY_REASON_SIZE];

    if (is_refusal(f)) { /* that was noted */
        flow_end(f);
        return;
    }
    if (strstr(why->text, "unknown ca") || strstr(why->text, "certificate unknown") ||
        strstr(why->text, "bad certificate"))
        snprintf(text, sizeof(text),
                 "the rule looks at requests, and the client does not trust this sandbox's "
                 "certificate authority");
    else if (strstr(why->text, "application protocol"))
        snprintf(text, sizeof(text),
                 "the rule looks at requests, and the client offers neither HTTP/1.1 nor HTTP/2, "
                 "only other protocols");
    else
        snprintf(text, sizeof(text), "the rule looks at requests: %.200s", why->text);
    flow_set_rule(f, "tls");
    free(f->reason);
    f->reason = strdup(text);
    deny_note(f, NULL, NULL, NULL);
    flow_end(f);
}

/* -- towards the sandbox ----------------------------------------------------------------------- */

/* Such a connection is not kept: a request that is refused now may be allowed on the next one. */
static void end_refusal_later(struct flow *f)
{
    if (is_refusal(f) && flow_watch(f, 0, NULL, DENY_CONNECTION_MS, flow_end) < 0)
        flow_end(f);
}

/* Both ends are forward.c's from here on. */
static void speak_http1(struct flow *f, struct tls_intercept *o, struct tls_endpoint *client)
{
    if (forward_adopt(f->egress, f, client, &o->server) == 0) {
        end_refusal_later(f);
        return;
    }
    tls_endpoint_close(&o->server, true);
    tls_endpoint_close(client, false);
    flow_end(f);
}

static void speak_h2(struct flow *f, struct tls_intercept *o, struct tls_endpoint *client)
{
    if (h2_flow_start(f, client, &o->server, &o->lost) == 0) {
        end_refusal_later(f);
        return;
    }
    h2_flow_release(f->sandbox);
    tls_endpoint_close(&o->server, true);
    tls_endpoint_close(client, false);
    flow_end(f);
}

static void on_client_ready(void *arg, const struct tls_endpoint *end, const struct err *why)
{
    struct tls_intercept *o = arg;
    struct flow *f = flow_find(o->egress, o->flow_id); /* its end would have closed the handshake */
    struct tls_intercept mine = *o;
    struct tls_endpoint client;

    let_go(f);
    free(o);
    mine.hand = NULL;
    if (end)
        client = *end;
    if (end && tlshand_is_h2(end)) {
        speak_h2(f, &mine, &client);
        return;
    }
    if (mine.reserved)
        h2_flow_release(f->sandbox);
    if (end) {
        speak_http1(f, &mine, &client);
    } else {
        tls_endpoint_close(&mine.server, true);
        fail_client(f, why);
    }
}

static int start_client(struct flow *f, struct tls_intercept *o, bool h2, struct err *e)
{
    struct intercept *in = f->egress->intercept;
    struct tlshand_options t = {.fd = f->fd,
                                .server = true,
                                .tenant = f->sandbox->tenant,
                                .owner = registry_owner(f->sandbox),
                                .timeout_ms = CLIENT_HANDSHAKE_MS,
                                .on_done = on_client_ready,
                                .arg = o};

    t.ssl = make_server_ssl(in, f, h2, e);
    if (!t.ssl)
        return -EIO;
    if (tlshand_start(in->hands, &t, &o->hand) < 0) {
        err_set(e, ERR_EXHAUSTED, "too many TLS handshakes at a time, or out of memory");
        return -ENOMEM;
    }
    f->fd = -1;
    return 0;
}

/* -- a server before its client ---------------------------------------------------------------- */

static void go_on(struct flow *f, struct tls_intercept *o, bool h2)
{
    struct err e = {.code = ERR_INTERNAL};

    if (start_client(f, o, h2, &e) == 0)
        return;
    let_go(f);
    drop(f, o);
    flow_refuse(f, NULL, "inspect", "the connection cannot be read: %s", e.text);
}

/* The server is lost: every request is answered with the reason. */
static void lose(struct flow *f, struct tls_intercept *o, const struct err *why)
{
    o->lost.status = why->code == ERR_TIMEOUT ? 504 : 502;
    o->lost.why = *why;
    go_on(f, o, true);
}

static void on_server_ready(void *arg, const struct tls_endpoint *end, const struct err *why)
{
    struct tls_intercept *o = arg;
    struct flow *f = flow_find(o->egress, o->flow_id);
    struct err e;

    o->hand = NULL;
    if (!end) {
        lose(f, o, why);
        return;
    }
    o->server = *end;
    if (tlshand_is_h2(end) || f->offers_http1) {
        go_on(f, o, tlshand_is_h2(end));
        return;
    }
    tls_endpoint_close(&o->server, true);
    err_set(&e, ERR_UNAVAILABLE, "the server speaks no HTTP/2, and the client nothing else");
    lose(f, o, &e);
}

static void start_server(struct flow *f, struct tls_intercept *o, int fd)
{
    struct intercept *in = f->egress->intercept;
    struct tlshand_options t = {
        .fd = fd, .timeout_ms = SERVER_HANDSHAKE_MS, .on_done = on_server_ready, .arg = o};
    struct err e;

    t.tenant = f->sandbox->tenant;
    t.owner = registry_owner(f->sandbox);

    t.ssl = make_client_ssl(in, name_of(f), &f->target.address,
                            f->offers_http1 ? ALPN_H2 ALPN_HTTP : ALPN_H2);
    if (t.ssl && tlshand_start(in->hands, &t, &o->hand) == 0)
        return;
    close(fd);
    err_set(&e, ERR_EXHAUSTED,
            "no TLS connection: too many handshakes at a time, or out of memory");
    lose(f, o, &e);
}

static void on_dialed(struct egress *eg, uint64_t id, const struct dial_result *r)
{
    struct flow *f = flow_find(eg, id);
    struct tls_intercept *o;

    if (!f) {
        if (r->fd >= 0)
            close(r->fd);
        return;
    }
    o = f->user;
    f->dial_id = 0;
    dial_note(&f->target, r);
    if (r->fd >= 0) {
        f->dialed = true;
        flow_allow(f, &r->verdict);
        start_server(f, o, r->fd);
    } else {
        o->lost.denied = r->denied;
        lose(f, o, &r->why);
    }
}

/* -- start ------------------------------------------------------------------------------------- */

/* HTTP/1.1 where the client speaks it: every program shows its answers. */
static int start_refusal(struct flow *f, struct tls_intercept *o, struct err *e)
{
    if (f->offers_http1)
        return start_client(f, o, false, e);
    o->lost.status = deny_status(f);
    o->reserved = f->offers_h2 && h2_flow_reserve(f->sandbox);
    if (o->reserved)
        return start_client(f, o, true, e);
    err_set(e, ERR_EXHAUSTED, "there are %u connections of HTTP/2 already", H2_SHARE_CONNS);
    return -EBUSY;
}

static int start(struct egress *eg, struct flow *f, struct tls_intercept *o, struct err *e)
{
    bool internal = f->target.name && strcmp(f->target.name, NAMES_INTERNAL_NAME) == 0;

    if (is_refusal(f))
        return start_refusal(f, o, e);
    if (f->target.name && f->sni && strcmp(f->sni, f->target.name) != 0) {
        err_set(e, ERR_DENIED, "the TLS server name is not the name that was dialled");
        return -EPERM;
    }
    o->reserved = f->offers_h2 && !internal && h2_flow_reserve(f->sandbox);
    if (!o->reserved && f->offers_h2 && !internal && !f->offers_http1) {
        err_set(e, ERR_EXHAUSTED, "there are %u connections of HTTP/2 already", H2_SHARE_CONNS);
        return -EBUSY;
    }
    if (!o->reserved)
        return start_client(f, o, false, e);
    f->dial_id = dial_start(eg, f->sandbox, &f->target, f->id, on_dialed);
    if (f->dial_id)
        return 0;
    err_set(e, ERR_EXHAUSTED, "out of memory");
    return -ENOMEM;
}

int tls_intercept_start(struct egress *eg, struct flow *f, struct err *e)
{
    struct tls_intercept *o = calloc(1, sizeof(*o));
    int rc;

    if (!o) {
        err_set(e, ERR_EXHAUSTED, "out of memory");
        return -ENOMEM;
    }
    o->egress = eg;
    o->flow_id = f->id;
    o->server.fd = -1;
    rc = start(eg, f, o, e);
    if (rc < 0) {
        drop(f, o);
        return rc;
    }
    f->user = o;
    f->on_end = on_flow_end;
    return 0;
}

/* -- a server for a request of HTTP/1.1 -------------------------------------------------------- */

typedef void (*upstream_cb)(void *arg, const struct tls_endpoint *end, const struct err *why);

/* f NULL: of the tenant, no sandbox's. ssl may be NULL: it could not be made. */
static int start_upstream(struct egress *eg, const struct flow *f, const char *tenant, int fd,
                          SSL *ssl, upstream_cb cb, void *arg)
{
    struct tlshand_options o = {.fd = fd,
                                .ssl = ssl,
                                .tenant = tenant,
                                .owner = f ? registry_owner(f->sandbox) : DIAL_LONE,
                                .timeout_ms = SERVER_HANDSHAKE_MS,
                                .on_done = cb,
                                .arg = arg};
    int rc = ssl ? tlshand_start(eg->intercept->hands, &o, NULL) : -ENOMEM;

    if (rc < 0)
        close(fd);
    return rc;
}

int tls_intercept_upstream(struct egress *eg, uint64_t flow_id, int fd, const char *name,
                           upstream_cb cb, void *arg)
{
    const struct flow *f = flow_find(eg, flow_id);
    SSL *ssl = f ? make_client_ssl(eg->intercept, name ? name : name_of(f), &f->target.address,
                                   NULL)
                 : NULL;

    return start_upstream(eg, f, f ? f->sandbox->tenant : NULL, fd, ssl, cb, arg);
}

/* -- a server for this program itself ---------------------------------------------------------- */

int tls_intercept_client(struct egress *eg, int fd, const char *name, const char *tenant,
                         upstream_cb cb, void *arg)
{
    return start_upstream(eg, NULL, tenant, fd, make_client_ssl(eg->intercept, name, NULL, NULL),
                          cb, arg);
}
