/* A connection is adopted with what was detected of it; from then on each request goes: rate,
 * target (of this request: it may name another origin), policy, recorded, credential (or put
 * off until it is renewed), then relayed by forward_up.c. A refusal answers that request alone;
 * the connection goes on where its framing allows. The http server and the flow end each other:
 * whichever ends first tells the other, once. A change of the policy asks about each open flow
 * again (forward_recheck), before its next event. */

#include "egress/flow/forward_internal.h"

#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"
#include "egress/flow/authority_check.h"
#include "egress/flow/deny.h"
#include "egress/flow/dial.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/local_info_page.h"
#include "egress/flow/names.h"
#include "egress/flow/oauth.h"
#include "egress/flow/policy_sweep.h"
#include "egress/flow/rate.h"
#include "egress/flow/registry.h"
#include "egress/flow/request.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "egress/flow/tcpcount.h"
#include "egress/tls/tls_endpoint.h"
#include "egress/tls/turns.h"
#include "http/server.h"
#include "policy/policy.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <uv.h>

#define FORWARD_PATIENT_PER_SECOND 100u /* of a sandbox */
#define BODY_TIMEOUT_MS            300000
#define WRITE_TIMEOUT_MS           300000
#define FORWARD_HIGH_BYTES         (128u * 1024u) /* of an answer that its client does not take */
#define STOP_MS                    500
#define SWEEP_MS                   1000 /* how old the counts of a connection may be */
/* that passes at a time where bytes are limited */
#define LIMITED_PIECE ((size_t)32 * 1024)

struct forward {
    struct egress *egress;
    struct http_server *server;
    struct client_conn *client_conns;
    uv_timer_t sweep; /* while there are connections */
};

struct flow *forward_flow(const struct client_conn *l)
{
    return l->flow_id ? flow_find(l->egress, l->flow_id) : NULL;
}

void forward_set_target(struct target *t, char name_buffer[static POLICY_NAME_MAX + 1],
                        const struct target *from)
{
    *t = *from;
    if (from->name) {
        if (from->name != name_buffer)
            snprintf(name_buffer, POLICY_NAME_MAX + 1, "%s", from->name);
        t->name = name_buffer;
    }
}

/* -- counting ---------------------------------------------------------------------------------- */

/* The kernel's count of the client's connection, without bytes that wait to be read: a relay does
 * not count them on their way. With TLS they are, and forward_client.c counts contents. */
static void sample(struct client_conn *l)
{
    struct flow *f = forward_flow(l);

    if (!f)
        return;
    if (!l->tls)
        (void)tcpcount_get(l->fd, &f->up_bytes, &f->down_bytes);
    f->up_bytes = MAX(f->up_bytes, l->up_moved);
    f->down_bytes = MAX(f->down_bytes, l->down_moved);
}

/* Where bytes are limited each piece is looked at before it goes on: the kernel counts what has
 * arrived, which is known too late to stop it. */
bool forward_on_move(void *arg, size_t request_bytes, size_t answer_bytes)
{
    struct client_conn *l = arg;
    struct flow *f = forward_flow(l);

    if (!f)
        return false;
    l->up_moved += request_bytes;
    l->down_moved += answer_bytes;
    f->up_bytes = MAX(f->up_bytes, l->up_moved);
    f->down_bytes = MAX(f->down_bytes, l->down_moved);
    if (!registry_over_bytes(f->sandbox))
        return true;
    flow_cut(f, NULL, "limit", FLOW_BYTES_REASON);
    return false;
}

/* Refreshes the counts of every connection, and ends those of a sandbox that has used up its
 * bytes. */
static void on_sweep(uv_timer_t *t)
{
    struct forward *fw = t->data;

    for (struct client_conn *l = fw->client_conns, *next; l; l = next) {
        struct flow *f = forward_flow(l);

        next = l->next;
        if (!f || !registry_counts_bytes(f->sandbox))
            continue;
        sample(l);
        if (!registry_over_bytes(f->sandbox))
            continue;
        flow_cut(f, NULL, "limit", FLOW_BYTES_REASON);
        flow_end(f);
    }
}

static void link_client_conn(struct forward *fw, struct client_conn *l)
{
    if (!fw->client_conns)
        uv_timer_start(&fw->sweep, on_sweep, SWEEP_MS, SWEEP_MS);
    l->next = fw->client_conns;
    if (fw->client_conns)
        fw->client_conns->prev = l;
    fw->client_conns = l;
}

static void unlink_client_conn(struct forward *fw, struct client_conn *l)
{
    *(l->prev ? &l->prev->next : &fw->client_conns) = l->next;
    if (l->next)
        l->next->prev = l->prev;
    if (!fw->client_conns)
        uv_timer_stop(&fw->sweep);
}

/* -- answers ----------------------------------------------------------------------------------- */

void forward_answer(struct http_exchange *x, struct flow *f, int status, const char *error,
                    const char *rule, const char *message)
{
    struct http_header headers[] = {
        {"Content-Type", "application/json"}, {DENY_HEADER, rule}, {"Retry-After", DENY_RETRY_S}};
    const char *user_agent = http_head_get(http_exchange_head(x), "User-Agent");
    char phrase[DENY_PHRASE_SIZE];
    CLEANUP_BUF struct buf b;

    buf_init(&b, DENY_BODY_MAX);
    if (deny_body_for(f->sandbox, user_agent, error, rule, message, &b) < 0)
        buf_clear(&b);
    deny_phrase(status, message, phrase);
    http_response_reason(x, phrase);
    http_respond(x, status, headers, request_is_denial(status) ? status == 429 ? 3 : 2 : 1,
                 b.data ? b.data : "", b.len);
}

void forward_say_refused(struct http_exchange *x, struct flow *f, int status)
{
    forward_answer(x, f, status, "egress_denied", f->rule, f->reason ? f->reason : "");
}

void forward_refuse(struct http_exchange *x, struct flow *f, const struct target *t,
                    const struct policy_verdict *v)
{
    request_refuse_by_policy(f, t, v, http_exchange_head(x));
    forward_say_refused(x, f, 403);
}

/* -- requests ---------------------------------------------------------------------------------- */

static void on_exchange_end(struct http_exchange *x, void *data)
{
    struct client_conn *l = data;
    struct flow *f = forward_flow(l);

    l->x = NULL;
    l->preparing = false;
    l->waiting_ms = 0;
    if (!f)
        return;
    sample(l);
    if (f->dial_id) {
        struct policy_verdict v = request_decide(f->sandbox, &l->want, false,
                                                 http_exchange_head(x));

        flow_gave_up(f, &l->want, &v, http_exchange_head(x));
    }
    dial_cancel(f->egress, f->dial_id);
    f->dial_id = 0;
}

/* The next request's target is also what the flow is about, for its records and for a change of the
 * policy. */
static int follow(struct flow *f, const struct client_conn *l)
{
    if (f->via != FLOW_BY_REQUEST)
        return 0;
    return flow_set_target(f, l->want.name, &l->want.address, l->want.port);
}

/* Asked before anything else is refused: a refusal costs as much as a request that passes. A client
 * that sends without waiting for answers would be refused as fast as this program can: beyond some
 * a second the connection ends, and how many begin in a second is limited, too. */
static bool is_over_rate(struct http_exchange *x, struct flow *f)
{
    if (request_in_rate(f->sandbox))
        return false;
    request_refuse(f, NULL, "limit", http_exchange_head(x), REQUEST_RATE_REASON);
    if (!rate_take(&f->sandbox->patient, FORWARD_PATIENT_PER_SECOND))
        http_exchange_close_after(x);
    forward_say_refused(x, f, 429);
    return true;
}

static void decide(struct http_exchange *x, struct client_conn *l, struct flow *f);

static void serve(struct http_exchange *x, struct client_conn *l, struct flow *f)
{
    if (l->want.name && strcmp(l->want.name, NAMES_INTERNAL_NAME) == 0) {
        local_info_page_serve(x, f);
        return;
    }
    if (is_over_rate(x, f))
        return;
    decide(x, l, f);
}

/* Its credential is there, or the request is put off, or refused. */
static bool has_credential(struct http_exchange *x, struct client_conn *l, struct flow *f,
                           const struct policy_verdict *v)
{
    uint64_t now = clock_mono_ms();
    struct err e;

    switch (oauth_inspect(f->sandbox, v->credential, l->waiting_ms ? now - l->waiting_ms : 0, &e)) {
    case OAUTH_READY: l->waiting_ms = 0; return true;
    case OAUTH_WAITING:
        if (!l->waiting_ms)
            l->waiting_ms = now;
        policy_sweep_schedule(f->sandbox);
        return false;
    default: break;
    }
    l->preparing = false;
    l->waiting_ms = 0;
    request_refuse(f, NULL, "credential", http_exchange_head(x), "%s", e.text);
    forward_say_refused(x, f, e.code == ERR_DENIED ? 403 : 503);
    return false;
}

static void decide(struct http_exchange *x, struct client_conn *l, struct flow *f)
{
    struct policy_verdict v = request_decide(f->sandbox, &l->want, false, http_exchange_head(x));

    if (v.action == POLICY_DENY) {
        l->preparing = false;
        l->waiting_ms = 0;
        forward_refuse(x, f, &l->want, &v);
        return;
    }
    l->preparing = true;
    if (!has_credential(x, l, f, &v))
        return;
    if (forward_reuse(l, f))
        return;
    f->dial_id = dial_start(f->egress, f->sandbox, &l->want, f->id, forward_on_dialed);
    if (!f->dial_id)
        http_exchange_abort(x);
}

void forward_again(struct flow *f)
{
    struct client_conn *l = f->user;

    if (l->x && l->waiting_ms)
        decide(l->x, l, f);
}

static int agree(struct client_conn *l, const struct flow *f, const struct http_head *h)
{
    forward_set_target(&l->want, l->want_name, &f->target);
    return authority_check_origin(h, &l->want, l->said_name);
}

/* The request goes on with the host that was evaluated. */
static int settle_host(struct http_exchange *x, const struct client_conn *l)
{
    const char *host = http_exchange_head(x)->host;

    if (!host[0])
        return 0;
    host = authority_check_canonical(host, l->tls ? AUTHORITY_HTTPS_PORT : AUTHORITY_HTTP_PORT,
                                     http_exchange_arena(x));
    if (!host)
        return -ENOMEM;
    http_exchange_set_host(x, host);
    return 0;
}

static void handle(struct http_exchange *x, void *ctx)
{
    struct client_conn *l = (void *)(uintptr_t)http_exchange_tag(x);
    const struct http_head *h = http_exchange_head(x);
    struct flow *f = forward_flow(l);
    int status;

    if (!f) {
        http_exchange_abort(x);
        return;
    }
    l->x = x;
    http_exchange_set(x, l, on_exchange_end);
    if (f->refused || f->unreachable) {
        forward_answer(x, f, deny_status(f), f->refused ? "egress_denied" : "egress_unreachable",
                       f->refused ? f->rule : "none", f->reason ? f->reason : "");
        return;
    }
    if (f->via == FLOW_BY_REQUEST && !h->authority[0]) {
        local_info_page_serve(x, f); /* to the proxy itself */
        return;
    }
    status = f->via == FLOW_BY_REQUEST
                 ? authority_check_proxy(f->sandbox, h, &l->want, l->want_name)
                 : agree(l, f, h);
    if (status == 400) {
        forward_answer(x, f, 400, "bad_request", "none", REQUEST_MALFORMED_REASON);
    } else if (status != 0) {
        if (is_over_rate(x, f))
            return;
        request_refuse(f, NULL, "host", h, REQUEST_HOST_REASON);
        forward_say_refused(x, f, status);
    } else if (settle_host(x, l) < 0 || follow(f, l) < 0) {
        http_exchange_abort(x);
    } else {
        serve(x, l, f);
    }
}

/* -- connections ------------------------------------------------------------------------------- */

/* http_server ends the connection: so does the flow. */
static void on_tagged_end(void *ctx, uint64_t tag, int fd)
{
    struct client_conn *l = (void *)(uintptr_t)tag;
    struct flow *f;

    sample(l);
    f = forward_flow(l);
    if (f) {
        f->on_end = NULL;
        f->user = NULL;
        flow_end(f);
    }
    tls_endpoint_close(&l->up_end, true);
    unlink_client_conn(ctx, l);
    free(l);
}

/* The flow ends first: http_server learns it from the socket. To a client with TLS the end is
 * announced where no answer is lost by it; an answer that has begun ends with a reset, since its
 * part could pass for the whole. */
static void on_flow_end(struct flow *f)
{
    struct client_conn *l = f->user;
    bool begun = l->x && http_response_begun(l->x);

    sample(l);
    l->flow_id = 0;
    tls_endpoint_close(&l->up_end, true);
    if (l->layer && !begun)
        (void)forward_client_layer.shut(l);
    if (!begun)
        shutdown(l->fd, SHUT_RDWR);
    if (l->x)
        http_exchange_abort(l->x);
}

static size_t enter(void *ctx, uint64_t tag, bool again, uint32_t *round)
{
    const struct client_conn *l = (void *)(uintptr_t)tag;
    struct flow *f = forward_flow(l);
    struct turns *turns = l->egress->turns;

    if (!(again ? turns_enter_again : turns_enter)(turns, l->owner, round))
        return 0;
    if (f && flow_settle(f) != FLOW_SETTLED) { /* it has ended, and http_server is told later */
        turns_exit(turns);
        return 0;
    }
    return MIN(turns_piece(turns),
               f && registry_counts_bytes(f->sandbox) ? LIMITED_PIECE : SIZE_MAX);
}

static bool is_over(void *ctx)
{
    const struct forward *fw = ctx;

    return turns_is_over(fw->egress->turns);
}

static void leave(void *ctx)
{
    struct forward *fw = ctx;

    turns_exit(fw->egress->turns);
}

int forward_adopt(struct egress *eg, struct flow *f, const struct tls_endpoint *client,
                  const struct tls_endpoint *server)
{
    struct client_conn *l = calloc(1, sizeof(*l));
    int fd = client ? client->fd : f->fd, rc;

    if (!l)
        return -ENOMEM;
    l->egress = eg;
    l->flow_id = f->id;
    l->owner = registry_owner(f->sandbox);
    l->fd = fd;
    l->tls = client != NULL;
    l->layer = client ? client->tls : NULL;
    l->up_end = server ? *server : (struct tls_endpoint){.fd = f->up_fd};
    forward_set_target(&l->up, l->up_name, &f->target);
    rc = http_server_adopt_layer(eg->forward->server, fd, (uint64_t)(uintptr_t)l,
                                 &forward_client_layer, client ? l : NULL);
    if (rc < 0) {
        free(l);
        return rc;
    }
    if (!server)
        f->up_fd = -1;
    link_client_conn(eg->forward, l);
    if (!client)
        f->fd = -1;
    f->state = FLOW_FORWARDED;
    f->user = l;
    f->on_end = on_flow_end;
    return 0;
}

bool forward_recheck(struct flow *f, struct policy_verdict *v)
{
    struct client_conn *l = f->user;
    struct policy_verdict now;

    if (!l->x || f->refused)
        return true;
    now = request_decide(f->sandbox, &l->want, !l->preparing, http_exchange_head(l->x));
    if (now.action != POLICY_DENY)
        return true;
    *v = now;
    return false;
}

int forward_new(struct egress *eg, struct forward **out)
{
    struct forward *fw = calloc(1, sizeof(*fw));
    struct http_server_config c;
    int rc;

    if (!fw)
        return -ENOMEM;
    fw->egress = eg;
    http_server_config_default(&c);
    c.max_connections = eg->config.flows_max;
    c.body_timeout_ms = BODY_TIMEOUT_MS;
    c.write_timeout_ms = WRITE_TIMEOUT_MS;
    c.write_high_bytes = FORWARD_HIGH_BYTES;
    c.proxy = c.relays = c.adopts_layers = true;
    c.on_tagged_end = on_tagged_end;
    c.enter = enter;
    c.is_over = is_over;
    c.leave = leave;
    rc = http_server_new(eg->loop, &c, handle, fw, &fw->server);
    if (rc < 0) {
        free(fw);
        return rc;
    }
    uv_timer_init(eg->loop, &fw->sweep);
    fw->sweep.data = fw;
    *out = fw;
    return 0;
}
