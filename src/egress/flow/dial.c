/* A dial goes: name asked of the policy, resolved, then address by address: asked of the policy
 * again, connected, and where an upstream proxy is set its handshake; the first that succeeds
 * ends it, the last that fails ends it with its reason. A single timer is for the whole and for the
 * start of the next attempt. The owner is told once, never from inside dial_start, by its id, and
 * may have gone: dial_cancel. A sandbox is looked up again at each step. */

#include "egress/flow/dial_internal.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/util.h"
#include "egress/flow/egress.h"
#include "egress/flow/registry.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "egress/flow/upstream.h"
#include "egress/flow/verdict.h"
#include "egress/tls/turns.h"
#include "policy/policy.h"

#include <errno.h>
#include <netinet/in.h>
#include <string.h>
#include <uv.h>

#define ATTEMPTS_MAX 4u /* at a time */
#define BUCKETS      1024u

struct dialer {
    struct dial *buckets[BUCKETS];
    uint64_t last_id;
};

static void go_on(struct dial *d);
static void on_timer(uv_timer_t *t);

struct sandbox *dial_sandbox(const struct dial *d)
{
    return d->lone ? d->lone : registry_find(d->egress, d->slot, d->gen, d->command);
}

static struct dial **entry_of(struct egress *eg, uint64_t id)
{
    struct dial **p = &eg->dialer->buckets[id % BUCKETS];

    while (*p && (*p)->id != id)
        p = &(*p)->next;
    return p;
}

struct dial *dial_find(struct egress *eg, uint64_t id)
{
    return *entry_of(eg, id);
}

/* -- ends -------------------------------------------------------------------------------------- */

static void on_timer_closed(uv_handle_t *h)
{
    free(h->data);
}

static void take_out(struct dial *d)
{
    struct dial **p = entry_of(d->egress, d->id);

    *p = d->next;
    d->done = true;
    while (d->attempts)
        dial_attempt_drop(d->attempts, false);
    if (d->handshake)
        upstream_cancel(d->egress, d->handshake);
    uv_close((uv_handle_t *)&d->timer, on_timer_closed);
}

void dial_deny(struct dial *d, const struct sandbox *s, const struct policy_verdict *v)
{
    d->result.verdict = *v;
    d->result.denied = true;
    d->rules_serial = registry_rules_serial(s);
}

/* A refusal names rules that may have been replaced since, and are gone then. */
static void forget_old_rules(struct dial *d)
{
    const struct sandbox *s = dial_sandbox(d);

    if (!d->result.denied || (s && registry_rules_serial(s) == d->rules_serial))
        return;
    d->result.denied = false;
    d->result.verdict = (struct policy_verdict){0};
    dial_give_reason(d, ERR_UNAVAILABLE, 0, "the policy has changed meanwhile: try again");
}

static void finish(struct dial *d)
{
    struct dial_result r;

    forget_old_rules(d);
    r = d->result;
    take_out(
        d); /* d itself, and so r.via_name, goes with its timer: not before the loop's next turn */
    d->cb(d->egress, d->owner, &r);
}

PRINTF(4, 5)
void dial_give_reason(struct dial *d, enum err_code code, int sys, const char *fmt, ...)
{
    char text[256];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    if (sys != 0)
        err_set_sys(&d->result.why, code, sys, "%s", text);
    else
        err_set(&d->result.why, code, "%s", text);
}

void dial_fail_soon(struct dial *d)
{
    d->at = d->n;
    d->deadline_ms = 0;
    uv_timer_start(&d->timer, on_timer, 0, 0);
}

/* -- connecting -------------------------------------------------------------------------------- */

static uint16_t port_of(const struct dial *d)
{
    return d->via_port ? d->via_port : d->port;
}

void dial_set_address(struct dial *d, const struct policy_address *a)
{
    if (d->via_port) {
        d->result.via = *a;
        d->result.via_port = d->via_port;
        d->result.via_name = d->via_name[0] ? d->via_name : NULL;
    } else {
        d->result.address = *a;
    }
}

void dial_note(struct target *t, const struct dial_result *r)
{
    t->address = r->address;
    t->via = r->via;
    t->via_port = r->via_port;
    snprintf(t->via_name, sizeof(t->via_name), "%s", r->via_name ? r->via_name : "");
}

static void on_handshake(struct egress *eg, uint64_t dial_id, int fd, const struct err *why)
{
    struct dial *d = dial_find(eg, dial_id);

    if (!d) {
        if (fd >= 0)
            close(fd);
        return;
    }
    d->handshake = 0;
    d->result.fd = fd;
    if (fd < 0)
        d->result.why = *why;
    finish(d);
}

const struct upstream *dial_upstream(const struct dial *d)
{
    const struct sandbox *s = registry_find(d->egress, d->slot, d->gen, 0);

    return s && s->upstream ? s->upstream : d->egress->config.upstream;
}

static void connected(struct dial_attempt *a)
{
    struct dial *d = a->dial;
    const struct upstream *up = dial_upstream(d);
    /* A name goes on only to a proxy that is to resolve it; else it is told the checked address. */
    bool by_name = up && upstream_resolves(up) && d->name[0] && !d->via_port;
    struct target t = {.name = by_name ? d->name : NULL, .address = a->address, .port = port_of(d)};
    int fd;

    dial_set_address(d, &a->address);
    d->result.verdict = a->verdict;
    d->result.denied = false;
    fd = dial_attempt_drop(a, true);
    while (d->attempts)
        dial_attempt_drop(d->attempts, false);
    if (up) {
        d->at = d->n;
        d->handshake = upstream_handshake(d->egress, up, fd, &t, d->id, on_handshake);
        if (d->handshake)
            return;
        dial_give_reason(d, ERR_EXHAUSTED, 0, "out of memory");
        fd = -1;
    }
    d->result.fd = fd;
    finish(d);
}

static void attempt_failed(struct dial_attempt *a, int err)
{
    struct dial *d = a->dial;
    char text[INET6_ADDRSTRLEN];

    policy_address_format(&a->address, text);
    dial_give_reason(d, ERR_UNAVAILABLE, err, "cannot connect to %s port %u", text, port_of(d));
    dial_attempt_drop(a, false);
    go_on(d);
}

static void on_attempt_end(struct dial_attempt *a, int err)
{
    if (err != 0)
        attempt_failed(a, err);
    else
        connected(a);
}

int dial_try_address(struct dial *d, const struct policy_address *address,
                     const struct policy_verdict *v)
{
    const struct upstream *up = dial_upstream(d);

    return dial_attempt_start(d, up ? upstream_address(up) : address,
                              up ? upstream_port(up) : port_of(d), address, v, on_attempt_end);
}

bool dial_try_next(struct dial *d, struct sandbox *s)
{
    while (d->at < d->n) {
        struct target t = {.name = d->name[0] ? d->name : NULL,
                           .address = d->addresses[d->at++],
                           .port = d->port,
                           .granted = d->granted};
        struct policy_address to = t.address;
        struct policy_verdict v;
        char text[INET6_ADDRSTRLEN];
        int rc;

        if (d->via_port) {
            t.via = t.address;
            t.via_port = d->via_port;
            memcpy(t.via_name, d->via_name, sizeof(t.via_name));
            t.address = (struct policy_address){0};
        }
        v = verdict_dial(s, &t);
        policy_address_format(&to, text);
        if (v.action == POLICY_DENY) {
            if (d->result.denied || d->result.why.code == ERR_OK) {
                dial_deny(d, s, &v);
                dial_set_address(d, &to);
                dial_give_reason(d, ERR_DENIED, 0, "the address %s is not allowed", text);
            }
            continue;
        }
        d->result.denied = false;
        rc = dial_try_address(d, &to, &v);
        if (rc == 0)
            return true;
        dial_give_reason(d, ERR_UNAVAILABLE, rc, "cannot connect to %s port %u", text, port_of(d));
    }
    return false;
}

void dial_arm(struct dial *d)
{
    uint64_t now = clock_mono_ms(), left = d->deadline_ms > now ? d->deadline_ms - now : 0;

    uv_timer_start(&d->timer, on_timer, d->at < d->n ? MIN((uint64_t)DIAL_STAGGER_MS, left) : left,
                   0);
}

void dial_arm_whole(struct dial *d)
{
    uv_timer_start(&d->timer, on_timer, d->egress->config.connect_timeout_ms, 0);
}

static void go_on(struct dial *d)
{
    struct sandbox *s = dial_sandbox(d);
    uint64_t now = clock_mono_ms();

    if (d->done || d->resolving || d->handshake)
        return;
    if (!s || now >= d->deadline_ms) {
        if (d->result.why.code == ERR_OK)
            dial_give_reason(d, ERR_TIMEOUT, 0, "no connection in time");
        finish(d);
        return;
    }
    if (d->attempt_count < ATTEMPTS_MAX)
        dial_try_next(d, s);
    if (!d->attempts) {
        finish(d);
        return;
    }
    dial_arm(d);
}

static void on_timer(uv_timer_t *t)
{
    struct dial *d = t->data;

    if (d->resolving) { /* c-ares gives up by itself, but not always this soon */
        d->resolving = false;
        dial_give_reason(d, ERR_TIMEOUT, 0, "no answer from DNS in time");
        d->deadline_ms = 0;
    }
    if (d->handshake) {
        dial_give_reason(d, ERR_TIMEOUT, 0, "no answer from the upstream proxy in time");
        finish(d);
        return;
    }
    go_on(d);
}

/* -- life -------------------------------------------------------------------------------------- */

struct dial *dial_make(struct egress *eg, struct sandbox *s, const struct target *t, uint64_t owner,
                       dial_cb cb)
{
    struct dial *d = calloc(1, sizeof(*d)), **p;

    if (!d)
        return NULL;
    d->egress = eg;
    d->id = ++eg->dialer->last_id;
    d->owner = owner;
    d->cb = cb;
    d->slot = s->slot;
    d->gen = s->gen;
    d->command = s->command;
    d->lone = s->slot == DIAL_LONE ? s : NULL;
    d->share = d->lone ? DIAL_LONE : registry_owner(s);
    d->port = t->port;
    d->granted = t->granted;
    d->result.fd = -1;
    d->deadline_ms = clock_mono_ms() + eg->config.connect_timeout_ms;
    if (t->name)
        memcpy(d->name, t->name, MIN(strlen(t->name), sizeof(d->name) - 1));
    uv_timer_init(eg->loop, &d->timer);
    d->timer.data = d;
    p = entry_of(eg, d->id);
    *p = d;
    return d;
}

void dial_cancel(struct egress *eg, uint64_t id)
{
    struct dial *d = id ? *entry_of(eg, id) : NULL;

    if (d)
        take_out(d);
}

int dialer_new(struct egress *eg, struct dialer **out)
{
    *out = calloc(1, sizeof(**out));
    return *out ? 0 : -ENOMEM;
}
