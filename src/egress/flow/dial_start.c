/* Where a dial begins: which addresses it tries. A reroute of the policy's comes first, then an
 * upstream proxy that resolves names itself, then the resolver; an address that was dialled is its
 * own. dial.c handles their results. */

#include "base/clock.h"
#include "base/util.h"
#include "egress/flow/dial_internal.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/ownproxy.h"
#include "egress/flow/resolve.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/upstream.h"
#include "egress/flow/verdict.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Perhaps inside dial_start: a failure at once is told from the timer. */
static void first_try(struct dial *d)
{
    struct sandbox *s = dial_sandbox(d);

    if (!s || !dial_try_next(d, s))
        dial_fail_soon(d);
    else
        dial_arm(d);
}

static void on_resolved(struct egress *eg, uint64_t id, int status, const struct policy_address *a,
                        size_t n)
{
    struct dial *d = dial_find(eg, id);

    if (!d || !d->resolving)
        return;
    d->resolving = false;
    if (status < 0) {
        dial_give_reason(d, status == -ETIMEDOUT ? ERR_TIMEOUT : ERR_UNAVAILABLE, 0, "%s",
                         status == -ENOENT      ? "DNS knows no address of that name"
                         : status == -ETIMEDOUT ? "no answer from DNS in time"
                         : status == -EAGAIN    ? "too many DNS questions are under way"
                                                : "DNS did not give a sensible answer");
        dial_fail_soon(d);
        return;
    }
    d->n = MIN(n, (size_t)RESOLVE_ADDRESSES_MAX);
    memcpy(d->addresses, a, d->n * sizeof(*a));
    d->deadline_ms = clock_mono_ms() + d->egress->config.connect_timeout_ms;
    first_try(d);
}

/* For a proxy that resolves names itself: only the name can be asked about. */
static void dial_by_name(struct dial *d, struct sandbox *s, const struct target *t)
{
    struct policy_verdict v = verdict_flow(&(struct flow){.sandbox = s, .target = *t});
    int rc;

    if (v.action == POLICY_DENY) {
        dial_deny(d, s, &v);
        dial_give_reason(d, ERR_DENIED, 0, "that destination is not allowed");
        dial_fail_soon(d);
        return;
    }
    rc = dial_try_address(d, &t->address, &v);
    if (rc < 0) {
        dial_give_reason(d, ERR_UNAVAILABLE, rc, "cannot connect to the upstream proxy");
        dial_fail_soon(d);
        return;
    }
    dial_arm_whole(d);
}

static void resolve(struct dial *d, struct sandbox *s, const char *name)
{
    d->resolving = true;
    dial_arm_whole(d);
    resolver_query(d->egress->resolver, s, name, d->id, on_resolved);
}

/* The way of a rerouted name: an address, or a name, which is resolved where every name is. That
 * one's own way is not looked for. */
static void dial_way(struct dial *d, struct sandbox *s, const struct target *t,
                     const struct policy_reroute *way)
{
    struct target to = *t;
    struct policy_verdict v;

    d->via_port = way->port ? way->port : t->port;
    if (!way->to_name) {
        d->addresses[0] = way->to;
        d->n = 1;
        first_try(d);
        return;
    }
    snprintf(d->via_name, sizeof(d->via_name), "%s", way->to_name);
    to.address = to.via = (struct policy_address){0};
    to.via_port = d->via_port;
    memcpy(to.via_name, d->via_name, sizeof(to.via_name));
    v = verdict_way(s, &to);
    if (v.action != POLICY_DENY) {
        resolve(d, s, d->via_name);
        return;
    }
    dial_set_address(d, &to.via);
    dial_deny(d, s, &v);
    dial_give_reason(d, ERR_DENIED, 0, "that way is not allowed");
    dial_fail_soon(d);
}

static void begin(struct dial *d, struct sandbox *s, const struct target *t)
{
    const struct upstream *up = dial_upstream(d),
                          *own = s->parent ? s->parent->upstream : s->upstream;
    const struct policy_reroute *way = verdict_reroute(s, t->name);

    if (d->egress->config.offline) {
        dial_give_reason(d, ERR_UNAVAILABLE, 0, "this server is offline: [egress] offline is set");
        dial_fail_soon(d);
    } else if (own && !ownproxy_allowed(d->egress, s, own, d->owner, &d->result.why)) {
        dial_fail_soon(d);
    } else if (way) {
        dial_way(d, s, t, way);
    } else if (t->name && up && upstream_resolves(up)) {
        dial_by_name(d, s, t);
    } else if (t->name) {
        resolve(d, s, d->name);
    } else {
        d->addresses[0] = t->address;
        d->n = 1;
        first_try(d);
    }
}

uint64_t dial_start(struct egress *eg, struct sandbox *s, const struct target *t, uint64_t owner,
                    dial_cb cb)
{
    struct dial *d = dial_make(eg, s, t, owner, cb);

    if (!d)
        return 0;
    begin(d, s, t);
    return d->id;
}
