/* A handshake takes a place in its tenant's share (beyond it the one that has been at it
 * longest of the same sandbox goes, in the next turn), is driven by events of its socket in
 * both directions, and ends once: ready, with the layer that OpenSSL's state is in and which is
 * the owner's from then on; failed, with a reason in words; or closed by its owner. */

#include "egress/tls/tlshand.h"

#include "base/err.h"
#include "base/share.h"
#include "base/util.h"
#include "egress/flow/sandbox.h"
#include "egress/tls/turns.h"
#include "http/tls_conn.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <uv.h>

struct tlshands {
    uv_loop_t *loop;
    struct tlshand *first; /* the newest */
    size_t count;          /* with those that libuv has not closed yet */
    struct share_pool *shares;
    struct turns *turns; /* or NULL: no limit */
    bool freeing;
};

struct tlshand {
    struct tlshands *all;
    struct tlshand *prev, *next;
    uv_poll_t poll;
    uv_timer_t timer;
    struct tls_endpoint end;
    int events;
    uint32_t round; /* turns.h */
    unsigned handles;
    bool crowded, closed;
    struct share *share; /* NULL: it has given it to another */
    char tenant[EGRESS_TENANT_MAX + 1];
    uint64_t owner;
    struct tlshand_options o;
};

/* -- all of them ------------------------------------------------------------------------------- */

int tlshands_new(uv_loop_t *loop, struct tlshands **out)
{
    struct tlshands *all = calloc(1, sizeof(*all));

    if (!all)
        return -ENOMEM;
    all->shares = share_pool_new(TLSHAND_MAX);
    if (!all->shares) {
        free(all);
        return -ENOMEM;
    }
    all->loop = loop;
    *out = all;
    return 0;
}

static void free_all(struct tlshands *all)
{
    share_pool_free(all->shares);
    free(all);
}

void tlshands_free(struct tlshands *all)
{
    if (!all)
        return;
    for (struct tlshand *h = all->first, *next; h; h = next) {
        next = h->next;
        tlshand_close(h);
    }
    all->freeing = true;
    if (all->count == 0)
        free_all(all);
}

void tlshands_set_turns(struct tlshands *all, struct turns *t)
{
    all->turns = t;
}

size_t tlshands_count(const struct tlshands *all)
{
    return all->count;
}

static void list_add(struct tlshand *h)
{
    h->next = h->all->first;
    if (h->next)
        h->next->prev = h;
    h->all->first = h;
    h->all->count++;
}

static void list_remove(struct tlshand *h)
{
    *(h->prev ? &h->prev->next : &h->all->first) = h->next;
    if (h->next)
        h->next->prev = h->prev;
    h->all->count--;
}

static void on_crowded(uv_timer_t *t);

/* The tenant that o is for; and in owner its sandbox. */
static const char *account(const struct tlshand_options *o, char owner[static 24])
{
    (void)snprintf(owner, 24, "%" PRIu64, o->owner);
    return o->tenant ? o->tenant : "";
}

/* The one that has been at it longest, of the sandbox or (any) of all of the tenant's. */
static struct tlshand *oldest_of(const struct tlshands *all, const char *tenant, uint64_t owner,
                                 bool any)
{
    struct tlshand *oldest = NULL;

    for (struct tlshand *h = all->first; h; h = h->next)
        if (!h->closed && h->share && strcmp(h->tenant, tenant) == 0 && (any || h->owner == owner))
            oldest = h;
    return oldest;
}

/* A sandbox that has its share already makes room itself, in the next turn. */
static struct share *take_share(struct tlshands *all, const struct tlshand_options *o)
{
    char owner[24];
    const char *tenant = account(o, owner);
    struct share *share = share_take(all->shares, tenant, owner);
    struct tlshand *old;

    if (share)
        return share;
    old = oldest_of(all, tenant, o->owner, false);
    if (!old)
        old = oldest_of(all, tenant, o->owner, true);
    if (!old)
        return NULL;
    old->crowded = true;
    share_return(TAKE_PTR(old->share));
    uv_timer_start(&old->timer, on_crowded, 0, 0);
    return share_take(all->shares, tenant, owner);
}

/* -- ends -------------------------------------------------------------------------------------- */

static void on_closed(uv_handle_t *handle)
{
    struct tlshand *h = handle->data;
    struct tlshands *all = h->all;

    if (--h->handles > 0)
        return;
    list_remove(h);
    free(h);
    if (all->freeing && all->count == 0)
        free_all(all);
}

/* Its end has another owner now, or is closed. */
static void let_go(struct tlshand *h)
{
    h->closed = true;
    share_return(TAKE_PTR(h->share));
    uv_close((uv_handle_t *)&h->timer, on_closed);
    uv_close((uv_handle_t *)&h->poll, on_closed);
}

void tlshand_close(struct tlshand *h)
{
    if (h->closed)
        return;
    let_go(h);
    tls_endpoint_close(&h->end, false);
}

static void fail(struct tlshand *h, const struct err *why)
{
    h->o.on_done(h->o.arg, NULL, why);
    tlshand_close(h);
}

static void on_late(uv_timer_t *t)
{
    struct err e;

    err_set(&e, ERR_TIMEOUT, "no TLS connection in time");
    fail(t->data, &e);
}

static void on_crowded(uv_timer_t *t)
{
    struct err e;

    err_set(&e, ERR_EXHAUSTED, "too many TLS handshakes at a time");
    fail(t->data, &e);
}

/* -- why it failed ----------------------------------------------------------------------------- */

static const char *about_certificate(long code)
{
    switch (code) {
    case X509_V_ERR_CERT_HAS_EXPIRED: return "its certificate has expired";
    case X509_V_ERR_CERT_NOT_YET_VALID: return "its certificate is not valid yet";
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT: return "its certificate is self-signed";
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
        return "its certificate is from an authority that is not known here";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH: return "its certificate is for another name";
    case X509_V_ERR_CERT_REVOKED: return "its certificate was revoked";
    default: return NULL;
    }
}

void tlshand_explain(const SSL *ssl, const char *reason, struct err *e)
{
    bool server = SSL_is_server((SSL *)ssl);
    long code = server ? X509_V_OK : SSL_get_verify_result(ssl);
    const char *text = about_certificate(code);

    if (code != X509_V_OK)
        err_set(e, ERR_UNAVAILABLE, "the server cannot be trusted: %s (%s)",
                text ? text : "its certificate is not good", X509_verify_cert_error_string(code));
    else if (reason && !server && strstr(reason, "no application protocol"))
        err_set(e, ERR_UNAVAILABLE,
                "no TLS connection: the server does not speak the HTTP version that the client "
                "speaks (%s)",
                reason);
    else if (reason)
        err_set(e, ERR_UNAVAILABLE, "no TLS connection: %s", reason);
    else
        err_set(e, ERR_UNAVAILABLE, "no TLS connection: it ended in the handshake");
}

/* -- the handshake ----------------------------------------------------------------------------- */

bool tlshand_is_h2(const struct tls_endpoint *end)
{
    const unsigned char *name = NULL;
    unsigned n = 0;

    if (end->tls)
        SSL_get0_alpn_selected(tls_conn_ssl(end->tls), &name, &n);
    return n == 2 && memcmp(name, "h2", 2) == 0;
}

static void watch(struct tlshand *h, int events);

static void go_on(struct tlshand *h, int status)
{
    int rc = tls_conn_ops.begin(h->end.tls);
    struct err e;

    if (status < 0)
        h->events = 0; /* libuv has stopped */
    if (rc == -EAGAIN || rc == -EINPROGRESS) {
        watch(h, rc == -EAGAIN ? UV_READABLE : UV_WRITABLE);
    } else if (rc < 0) {
        tlshand_explain(tls_conn_ssl(h->end.tls), tls_conn_reason(h->end.tls), &e);
        fail(h, &e);
    } else { /* the descriptor has another watcher from now on */
        let_go(h);
        h->o.on_done(h->o.arg, &h->end, NULL);
    }
}

/* Errors, of which libuv does not tell again, are not left for another turn. */
static void on_events(uv_poll_t *poll, int status, int events)
{
    struct tlshand *h = poll->data;
    struct turns *turns = h->all->turns;
    bool entered = turns_enter(turns, h->owner, &h->round);

    if (entered || status < 0)
        go_on(h, status);
    if (entered)
        turns_exit(turns);
}

static void watch(struct tlshand *h, int events)
{
    if (h->events == events)
        return;
    h->events = events;
    uv_poll_start(&h->poll, events, on_events);
}

/* A layer with ssl, which is taken over in every case. */
static void *make_tls(SSL *ssl, int fd)
{
    if (ssl && SSL_set_fd(ssl, fd) == 1)
        return tls_conn_new(ssl);
    SSL_free(ssl);
    return NULL;
}

static struct tlshand *make(struct tlshands *all, const struct tlshand_options *o)
{
    struct tlshand *h = calloc(1, sizeof(*h));

    if (!h || uv_poll_init(all->loop, &h->poll, o->fd) < 0) {
        free(h);
        return NULL;
    }
    (void)snprintf(h->tenant, sizeof(h->tenant), "%s", o->tenant ? o->tenant : "");
    h->owner = o->owner;
    uv_timer_init(all->loop, &h->timer);
    h->handles = 2;
    h->poll.data = h->timer.data = h;
    h->all = all;
    h->o = *o;
    return h;
}

int tlshand_start(struct tlshands *all, const struct tlshand_options *o, struct tlshand **out)
{
    void *tls = make_tls(o->ssl, o->fd);
    struct tlshand *h = tls ? make(all, o) : NULL;

    if (!h) {
        if (tls)
            tls_conn_ops.close(tls);
        return -ENOMEM;
    }
    list_add(h);
    h->share = take_share(all, o);
    if (!h->share) {
        let_go(h);
        tls_conn_ops.close(tls);
        return -EBUSY;
    }
    h->end = (struct tls_endpoint){.fd = o->fd, .tls = tls};
    if (o->timeout_ms)
        uv_timer_start(&h->timer, on_late, o->timeout_ms, 0);
    watch(h, o->server ? UV_READABLE : UV_WRITABLE);
    if (out)
        *out = h;
    return 0;
}
