/* A flow's life from its target on: asked about, dialled, looked at, handed on. A flow is made
 * by accept.c, gets its target there or from an explicit proxy's client, is routed (flow_route:
 * policy, then dial or detection), and has then one owner at a time (protocol_detect, tunnel,
 * forward, tls_intercept, h2_flow), which ends it: flow_end once, from any state, also by a
 * policy that changed (flow_settle) or its sandbox's end. Handles live on until libuv has
 * closed them; nothing else of it does. */
#include "egress/flow/flow.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "egress/flow/asks.h"
#include "egress/flow/audit.h"
#include "egress/flow/connect.h"
#include "egress/flow/deny.h"
#include "egress/flow/dial.h"
#include "egress/flow/egress.h"
#include "egress/flow/forward.h"
#include "egress/flow/h2_flow.h"
#include "egress/flow/names.h"
#include "egress/flow/protocol_detect.h"
#include "egress/flow/registry.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/socks.h"
#include "egress/flow/target.h"
#include "egress/flow/verdict.h"
#include "http/message.h"
#include "policy/policy.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <uv.h>

#define ANSWER_MS     2000 /* for the client to take a last answer */
#define DISCARD_BYTES 65536

/* -- life -------------------------------------------------------------------------------------- */

struct flow *flow_new(struct sandbox *s, int fd)
{
    struct flow *f = calloc(1, sizeof(*f));

    if (!f) {
        close(fd);
        return NULL;
    }
    f->egress = s->egress;
    f->sandbox = s;
    f->fd = fd;
    f->up_fd = -1;
    f->rules_serial = registry_rules_serial(s);
    f->started_ms = clock_mono_ms();
    registry_add_flow(f);
    return f;
}

static void record_end(struct flow *f)
{
    bool passed = !f->refused && !f->cut;
    const struct audit_record r = {
        .event = AUDIT_END,
        .sandbox = f->sandbox,
        .flow = f,
        .allowed = passed,
        .rule = passed && f->passed_rule[0] ? f->passed_rule : f->rule,
        .reason = f->cut ? (f->reason ? f->reason : "cut") : NULL,
        .up_bytes = f->up_bytes,
        .down_bytes = f->down_bytes,
        .duration_ms = clock_mono_ms() - f->started_ms,
    };

    audit_record(f->egress->audit, &r);
}

/* A name may have been asked for outside, and addresses dialled. */
static void record_given_up(struct flow *f)
{
    struct policy_verdict v;

    if (!f->dial_id || f->refused || f->cut)
        return;
    v = verdict_flow(f);
    flow_gave_up(f, NULL, &v, NULL);
}

void flow_end(struct flow *f)
{
    if (f->on_end)
        f->on_end(f);
    flow_unwatch(f);
    asks_forget(f);
    record_given_up(f);
    dial_cancel(f->egress, f->dial_id);
    if (f->dialed)
        record_end(f);
    registry_remove_flow(f);
    util_close(&f->fd);
    util_close(&f->up_fd);
    free(f->name_store);
    free(f->sni);
    free(f->reason);
    free(f);
}

void flow_reset(struct flow *f)
{
    struct linger reset = {.l_onoff = 1, .l_linger = 0};

    if (f->fd >= 0)
        (void)!setsockopt(f->fd, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
    flow_end(f);
}

int flow_set_target(struct flow *f, const char *name, const struct policy_address *a, uint16_t port)
{
    struct target t = {.name = name, .port = port};
    char *copy;
    int rc;

    if (a)
        t.address = *a;
    rc = target_of_own(f->sandbox, &t);
    copy = t.name ? strdup(t.name) : NULL;
    if (t.name && !copy)
        return -ENOMEM;
    free(f->name_store);
    f->name_store = copy;
    t.name = copy;
    f->target = t;
    return rc;
}

void flow_set_rule(struct flow *f, const char *rule)
{
    size_t n = 0;

    for (; rule && rule[n] && n < sizeof(f->rule) - 1; n++)
        f->rule[n] = rule[n] >= 0x20 && rule[n] < 0x7f ? rule[n] : '?';
    f->rule[n] = '\0';
}

void flow_pass_rule(struct flow *f)
{
    memcpy(f->passed_rule, f->rule, sizeof(f->rule));
}

/* -- last words -------------------------------------------------------------------------------- */

static void on_discard(struct flow *f, int events)
{
    char ignored[DISCARD_BYTES];

    if (recv(f->fd, ignored, sizeof(ignored), MSG_DONTWAIT) <= 0)
        flow_end(f);
}

/* Closing a socket with unread bytes resets it, and a reset takes the answer with it: what the
 * client sends is read and forgotten until it ends, or is late. */
void flow_answer(struct flow *f, const void *bytes, size_t n)
{
    char ignored[DISCARD_BYTES];

    f->state = FLOW_ANSWERING;
    (void)!recv(f->fd, ignored, sizeof(ignored), MSG_DONTWAIT);
    if (n > 0 && send(f->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) < (ssize_t)n) {
        flow_end(f);
        return;
    }
    shutdown(f->fd, SHUT_WR);
    if (flow_watch(f, UV_READABLE, on_discard, ANSWER_MS, flow_end) < 0)
        flow_end(f);
}

static void PRINTF(4, 0) set_reason(struct flow *f, const struct policy_verdict *v,
                                    const char *rule, const char *fmt, va_list ap)
{
    char text[POLICY_REASON_SIZE];

    vsnprintf(text, sizeof(text), fmt, ap);
    flow_set_rule(f, v && v->name ? v->name : rule);
    free(f->reason);
    f->reason = strdup(text);
}

void flow_cut(struct flow *f, const struct policy_verdict *v, const char *rule, const char *fmt,
              ...)
{
    va_list ap;

    f->cut = true;
    va_start(ap, fmt);
    set_reason(f, v, rule, fmt, ap);
    va_end(ap);
    deny_note(f, v, NULL, NULL);
}

void flow_refuse(struct flow *f, const struct policy_verdict *v, const char *rule, const char *fmt,
                 ...)
{
    va_list ap;

    va_start(ap, fmt);
    set_reason(f, v, rule, fmt, ap); /* first: its arguments may go with the dial */
    va_end(ap);
    f->refused = true;
    util_close(&f->up_fd);
    dial_cancel(f->egress, f->dial_id);
    f->dial_id = 0;
    deny_note(f, v, NULL, NULL);
    deny_say(f);
}

/* -- the policy's word ------------------------------------------------------------------------- */

static void refuse_by_policy(struct flow *f, const struct policy_verdict *v)
{
    char why[POLICY_REASON_SIZE];

    deny_explain(v->by, v, &f->target, NULL, NULL, why);
    flow_refuse(f, v, "policy", "%s", why);
}

void flow_allow(struct flow *f, const struct policy_verdict *v)
{
    const struct audit_record r = {.event = AUDIT_CONNECTION,
                                   .sandbox = f->sandbox,
                                   .flow = f,
                                   .allowed = true,
                                   .warned = v->warned,
                                   .outcome = "connected",
                                   .rule = f->rule,
                                   .source = v->source};

    flow_pass_rule(f);
    f->sandbox->allowed++;
    audit_record(f->egress->audit, &r);
}

static void record_outcome(struct flow *f, const struct target *t, const struct policy_verdict *v,
                           const struct http_head *h, const char *outcome, const char *why)
{
    const struct audit_record r = {.event = h ? AUDIT_REQUEST : AUDIT_CONNECTION,
                                   .sandbox = f->sandbox,
                                   .flow = f,
                                   .target = t,
                                   .allowed = true,
                                   .warned = v->warned,
                                   .outcome = outcome,
                                   .rule = v->name,
                                   .source = v->source,
                                   .reason = why,
                                   .method = h ? h->method : NULL,
                                   .path = h ? h->path : NULL};

    audit_record(f->egress->audit, &r);
}

void flow_not_reached(struct flow *f, const struct target *t, const struct policy_verdict *v,
                      const struct http_head *h, const struct err *why)
{
    f->sandbox->allowed++;
    record_outcome(f, t, v, h, "unreachable", why->text);
}

void flow_gave_up(struct flow *f, const struct target *t, const struct policy_verdict *v,
                  const struct http_head *h)
{
    struct err why;

    err_set(&why, ERR_CANCELED, "its client has ended before it was reached");
    flow_not_reached(f, t, v, h, &why);
}

void flow_failed(struct flow *f, const struct target *t, const struct policy_verdict *v,
                 const struct http_head *h, const char *why)
{
    record_outcome(f, t, v, h, "failed", why);
}

/* -- routing ----------------------------------------------------------------------------------- */

/* The rules let the name pass, or its owner did; not this address of it. */
static void refuse_address(struct flow *f, const struct dial_result *r)
{
    char text[INET6_ADDRSTRLEN];
    bool by_owner = verdict_flow(f).source == POLICY_BY_OWNER &&
                    r->verdict.source != POLICY_BY_NEVER && !policy_address_is_public(&r->address);

    f->target.address = r->address;
    if (r->via_port) {
        policy_address_format(&r->via, text);
        flow_refuse(f, &r->verdict, "reroute",
                    "%.80s is rerouted to %.80s%s%s port %u, which is not allowed: %.64s",
                    f->target.name, r->via_name ? r->via_name : "", r->via_name ? ", " : "", text,
                    r->via_port, r->verdict.name);
    } else if (by_owner)
        flow_refuse(f, NULL, "ask",
                    "%.80s leads to a private address, and its owner's yes to a name opens none",
                    f->target.name);
    else
        refuse_by_policy(f, &r->verdict);
}

/* The client may go on: it is told so where it asked a proxy, and what it says is looked at. */
static void notify_client(struct flow *f)
{
    if (f->via == FLOW_BY_SOCKS)
        socks_connected(f);
    else if (f->via == FLOW_BY_CONNECT)
        connect_connected(f);
    else
        protocol_detect_start(f);
}

static void on_dialed(struct egress *eg, uint64_t id, const struct dial_result *r)
{
    struct flow *f = flow_find(eg, id);

    if (!f) {
        if (r->fd >= 0)
            close(r->fd);
        return;
    }
    f->dial_id = 0;
    if (r->denied) {
        refuse_address(f, r);
        return;
    }
    if (r->fd < 0) {
        struct policy_verdict v = verdict_flow(f);

        flow_not_reached(f, NULL, &v, NULL, &r->why);
        deny_unreachable(f, &r->why);
        return;
    }
    f->up_fd = r->fd;
    f->dialed = true;
    dial_note(&f->target, r);
    if (flow_settle(f) != FLOW_SETTLED) /* the rules changed after the address was allowed */
        return;
    f->must_inspect |= r->verdict.action == POLICY_INSPECT;
    flow_allow(f, &r->verdict);
    notify_client(f);
}

static void dial(struct flow *f)
{
    f->state = FLOW_DIALING;
    f->dial_id = dial_start(f->egress, f->sandbox, &f->target, f->id, on_dialed);
    if (!f->dial_id)
        flow_reset(f);
}

void flow_route(struct flow *f)
{
    struct policy_verdict v;

    if (!f->target.name && names_is_own(&f->target.address)) {
        flow_refuse(f, NULL, "unknown-address",
                    "no name has that address: ask DNS for a name first");
        return;
    }
    if (f->target.name && strcmp(f->target.name, NAMES_INTERNAL_NAME) == 0) {
        f->must_inspect = true; /* served here: forward.c */
        v = (struct policy_verdict){.action = POLICY_INSPECT, .name = "cay"};
    } else {
        v = verdict_flow(f);
    }
    flow_set_rule(f, v.name);
    if (v.action == POLICY_DENY && v.asks) {
        asks_hold(f);
        return;
    }
    if (v.action == POLICY_DENY) {
        refuse_by_policy(f, &v);
        return;
    }
    if (v.action == POLICY_ALLOW) {
        dial(f);
        return;
    }
    /* Nothing is dialled before it is known to be something that can be read. */
    f->must_inspect = true;
    notify_client(f);
}
