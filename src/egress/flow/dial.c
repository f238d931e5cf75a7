/* A dial goes: name asked of the policy, resolved, then address by address: asked of the policy
 * again, connected, and where an upstream proxy is set its handshake; the first that succeeds
 * ends it, the last that fails ends it with its reason. One timer is for the whole and for the
 * start of the next attempt. The owner is told once, never from inside dial_start, by its id,
 * and may have gone: dial_cancel. A sandbox is looked up again at each step. */

#include "egress/flow/dial.h"

#include "base/clock.h"
#include "base/err.h"
#include "base/log.h"
#include "base/util.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/names.h"
#include "egress/flow/ownproxy.h"
#include "egress/flow/registry.h"
#include "egress/flow/resolve.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "egress/flow/upstream.h"
#include "egress/flow/verdict.h"
#include "egress/tls/turns.h"
#include "policy/policy.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <uv.h>

#define ATTEMPTS_MAX 4u /* at a time */
#define BUCKETS      1024u

struct attempt {
    uv_poll_t poll;
    struct dial *dial;
    struct attempt *next;
    int fd;
    uint32_t round; /* turns.h */
    struct policy_address address;
    struct policy_verdict verdict;
};

struct dial {
    struct egress *egress;
    struct dial *next; /* of its bucket */
    uint64_t id, owner;
    dial_cb cb;
    uint32_t slot, gen, command;
    uint64_t share;                 /* whose share of the loop's time it has */
    struct sandbox *lone;           /* DIAL_LONE, or NULL */
    char name[POLICY_NAME_MAX + 1]; /* "" for an address */
    uint16_t port;
    uint16_t via_port;                  /* the addresses are a reroute's, at that port; else 0 */
    char via_name[POLICY_NAME_MAX + 1]; /* they are this name's; "": the policy has the one */
    enum target_granted granted;
    struct policy_address addresses[RESOLVE_ADDRESSES_MAX];
    size_t n, at; /* the next to try */
    struct attempt *attempts;
    size_t attempt_count;
    uint64_t handshake; /* with an upstream proxy, under way, or 0 */
    uv_timer_t timer;   /* the next attempt, or the end */
    uint64_t deadline_ms;
    bool done; /* told, or cancelled: only handles are left */
    bool resolving;
    struct dial_result result;
};

struct dialer {
    struct dial *buckets[BUCKETS];
    uint64_t last_id;
};

static void go_on(struct dial *d);
static void on_timer(uv_timer_t *t);

static struct sandbox *sandbox_of(const struct dial *d)
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

/* -- ends -------------------------------------------------------------------------------------- */

static void on_attempt_closed(uv_handle_t *h)
{
    free(h->data);
}

/* keep: the descriptor is returned, not closed. */
static int drop_attempt(struct attempt *a, bool keep)
{
    struct attempt **p = &a->dial->attempts;
    int fd = a->fd;

    while (*p != a)
        p = &(*p)->next;
    *p = a->next;
    a->dial->attempt_count--;
    uv_close((uv_handle_t *)&a->poll, on_attempt_closed);
    if (keep)
        return fd;
    close(fd);
    return -1;
}

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
        drop_attempt(d->attempts, false);
    if (d->handshake)
        upstream_cancel(d->egress, d->handshake);
    uv_close((uv_handle_t *)&d->timer, on_timer_closed);
}

static void finish(struct dial *d)
{
    struct dial_result r = d->result;

    take_out(
        d); /* d itself, and so r.via_name, goes with its timer: not before the loop's next turn */
    d->cb(d->egress, d->owner, &r);
}

/* Never from inside dial_start: the timer tells it. */
static void fail_soon(struct dial *d)
{
    d->at = d->n;
    d->deadline_ms = 0;
    uv_timer_start(&d->timer, on_timer, 0, 0);
}

PRINTF(4, 5)
static void give_reason(struct dial *d, enum err_code code, int sys, const char *fmt, ...)
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

/* -- connecting -------------------------------------------------------------------------------- */

static socklen_t socket_address(const struct policy_address *a, uint16_t port,
                                struct sockaddr_storage *out)
{
    struct sockaddr_in *v4 = (struct sockaddr_in *)out;
    struct sockaddr_in6 *v6 = (struct sockaddr_in6 *)out;

    memset(out, 0, sizeof(*out));
    if (IN6_IS_ADDR_V4MAPPED(&a->in6)) {
        v4->sin_family = AF_INET;
        v4->sin_port = htons(port);
        memcpy(&v4->sin_addr, a->in6.s6_addr + 12, 4);
        return sizeof(*v4);
    }
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    v6->sin6_addr = a->in6;
    return sizeof(*v6);
}

static uint16_t port_of(const struct dial *d)
{
    return d->via_port ? d->via_port : d->port;
}

/* Of a rerouted name the address is not its own: the rules are not asked about it. */
static void set_address(struct dial *d, const struct policy_address *a)
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
    struct dial *d = *entry_of(eg, dial_id);

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

/* The sandbox's own proxy, or that of all sandboxes. */
static const struct upstream *upstream_of(const struct dial *d)
{
    const struct sandbox *s = registry_find(d->egress, d->slot, d->gen, 0);

    return s && s->upstream ? s->upstream : d->egress->config.upstream;
}

static void connected(struct attempt *a)
{
    struct dial *d = a->dial;
    const struct upstream *up = upstream_of(d);
    /* A name goes on only to a proxy that is to resolve it; else it is told the checked address. */
    bool by_name = up && upstream_resolves(up) && d->name[0] && !d->via_port;
    struct target t = {.name = by_name ? d->name : NULL, .address = a->address, .port = port_of(d)};
    int fd;

    set_address(d, &a->address);
    d->result.verdict = a->verdict;
    d->result.denied = false;
    fd = drop_attempt(a, true);
    while (d->attempts)
        drop_attempt(d->attempts, false);
    if (up) {
        d->at = d->n;
        d->handshake = upstream_handshake(d->egress, up, fd, &t, d->id, on_handshake);
        if (d->handshake)
            return;
        give_reason(d, ERR_EXHAUSTED, 0, "out of memory");
        fd = -1;
    }
    d->result.fd = fd;
    finish(d);
}

static void attempt_failed(struct attempt *a, int err)
{
    struct dial *d = a->dial;
    char text[INET6_ADDRSTRLEN];

    policy_address_format(&a->address, text);
    give_reason(d, ERR_UNAVAILABLE, err, "cannot connect to %s port %u", text, port_of(d));
    drop_attempt(a, false);
    go_on(d);
}

static void conclude(struct attempt *a, int status)
{
    int err = 0;
    socklen_t n = sizeof(err);

    if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &err, &n) < 0 || (status < 0 && err == 0))
        err = EIO;
    if (err != 0)
        attempt_failed(a, err);
    else
        connected(a);
}

static void on_connect(uv_poll_t *p, int status, int events)
{
    struct attempt *a = p->data;
    struct turns *turns = a->dial->egress->turns;
    bool entered = turns_enter(turns, a->dial->share, &a->round);

    if (entered || status < 0)
        conclude(a, status);
    if (entered)
        turns_exit(turns);
}

static int open_socket(const struct policy_address *a)
{
    int family = IN6_IS_ADDR_V4MAPPED(&a->in6) ? AF_INET : AF_INET6, one = 1;
    int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    (void)!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    (void)!setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
    return fd;
}

/* Connects to `address`, or to the proxy that is to connect there. 0 when it is under way; -errno
 * when it failed at once. */
static int try_address(struct dial *d, const struct policy_address *address,
                       const struct policy_verdict *v)
{
    const struct upstream *up = upstream_of(d);
    const struct policy_address *to = up ? upstream_address(up) : address;
    struct sockaddr_storage sa;
    socklen_t n = socket_address(to, up ? upstream_port(up) : port_of(d), &sa);
    struct attempt *a = calloc(1, sizeof(*a));
    int rc;

    if (!a)
        return -ENOMEM;
    a->fd = open_socket(to);
    rc = a->fd < 0 ? a->fd : 0;
    if (rc == 0 && connect(a->fd, (struct sockaddr *)&sa, n) < 0 && errno != EINPROGRESS)
        rc = -errno;
    if (rc == 0)
        rc = uv_poll_init(d->egress->loop, &a->poll, a->fd);
    if (rc < 0) {
        util_close(&a->fd);
        free(a);
        return rc;
    }
    a->poll.data = a;
    a->dial = d;
    a->address = *address;
    a->verdict = *v;
    a->next = d->attempts;
    d->attempts = a;
    d->attempt_count++;
    uv_poll_start(&a->poll, UV_WRITABLE, on_connect);
    return 0;
}

/* The next address that the policy allows; false when there is none left. */
static bool try_next(struct dial *d, struct sandbox *s)
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
                d->result.verdict = v;
                set_address(d, &to);
                d->result.denied = true;
                give_reason(d, ERR_DENIED, 0, "the address %s is not allowed", text);
            }
            continue;
        }
        d->result.denied = false;
        rc = try_address(d, &to, &v);
        if (rc == 0)
            return true;
        give_reason(d, ERR_UNAVAILABLE, rc, "cannot connect to %s port %u", text, port_of(d));
    }
    return false;
}

static void arm(struct dial *d)
{
    uint64_t now = clock_mono_ms(), left = d->deadline_ms > now ? d->deadline_ms - now : 0;

    uv_timer_start(&d->timer, on_timer, d->at < d->n ? MIN((uint64_t)DIAL_STAGGER_MS, left) : left,
                   0);
}

static void go_on(struct dial *d)
{
    struct sandbox *s = sandbox_of(d);
    uint64_t now = clock_mono_ms();

    if (d->done || d->resolving || d->handshake)
        return;
    if (!s || now >= d->deadline_ms) {
        if (d->result.why.code == ERR_OK)
            give_reason(d, ERR_TIMEOUT, 0, "no connection in time");
        finish(d);
        return;
    }
    if (d->attempt_count < ATTEMPTS_MAX)
        try_next(d, s);
    if (!d->attempts) {
        finish(d);
        return;
    }
    arm(d);
}

static void on_timer(uv_timer_t *t)
{
    struct dial *d = t->data;

    if (d->resolving) { /* c-ares gives up by itself, but not always this soon */
        d->resolving = false;
        give_reason(d, ERR_TIMEOUT, 0, "no answer from DNS in time");
        d->deadline_ms = 0;
    }
    if (d->handshake) {
        give_reason(d, ERR_TIMEOUT, 0, "no answer from the upstream proxy in time");
        finish(d);
        return;
    }
    go_on(d);
}

/* -- start ------------------------------------------------------------------------------------- */

/* Perhaps inside dial_start: what fails at once is told from the timer. */
static void first_try(struct dial *d)
{
    struct sandbox *s = sandbox_of(d);

    if (!s || !try_next(d, s))
        fail_soon(d);
    else
        arm(d);
}

static void on_resolved(struct egress *eg, uint64_t id, int status, const struct policy_address *a,
                        size_t n)
{
    struct dial *d = *entry_of(eg, id);

    if (!d || !d->resolving)
        return;
    d->resolving = false;
    if (status < 0) {
        give_reason(d, status == -ETIMEDOUT ? ERR_TIMEOUT : ERR_UNAVAILABLE, 0, "%s",
                    status == -ENOENT      ? "DNS knows no address of that name"
                    : status == -ETIMEDOUT ? "no answer from DNS in time"
                    : status == -EAGAIN    ? "too many DNS questions are under way"
                                           : "DNS did not give a sensible answer");
        fail_soon(d);
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
        d->result.verdict = v;
        d->result.denied = true;
        give_reason(d, ERR_DENIED, 0, "that destination is not allowed");
        fail_soon(d);
        return;
    }
    rc = try_address(d, &t->address, &v);
    if (rc < 0) {
        give_reason(d, ERR_UNAVAILABLE, rc, "cannot connect to the upstream proxy");
        fail_soon(d);
        return;
    }
    uv_timer_start(&d->timer, on_timer, d->egress->config.connect_timeout_ms, 0);
}

static void resolve(struct dial *d, struct sandbox *s, const char *name)
{
    d->resolving = true;
    uv_timer_start(&d->timer, on_timer, d->egress->config.connect_timeout_ms, 0);
    resolver_query(d->egress->resolver, s, name, d->id, on_resolved);
}

/* The way of a rerouted name: an address, or a name, which is resolved where every name is. That
 * one's own way is not looked for. */
static void dial_way(struct dial *d, struct sandbox *s, const struct target *t,
                     const struct policy_reroute *way)
{
    struct target to = *t;

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
    d->result.verdict = verdict_way(s, &to);
    if (d->result.verdict.action != POLICY_DENY) {
        resolve(d, s, d->via_name);
        return;
    }
    set_address(d, &to.via);
    d->result.denied = true;
    give_reason(d, ERR_DENIED, 0, "that way is not allowed");
    fail_soon(d);
}

static void begin(struct dial *d, struct sandbox *s, const struct target *t)
{
    const struct upstream *up = upstream_of(d),
                          *own = s->parent ? s->parent->upstream : s->upstream;
    const struct policy_reroute *way = verdict_reroute(s, t->name);

    if (d->egress->config.offline) {
        give_reason(d, ERR_UNAVAILABLE, 0, "this server is offline: [egress] offline is set");
        fail_soon(d);
    } else if (own && !ownproxy_allowed(d->egress, s, own, d->owner, &d->result.why)) {
        fail_soon(d);
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
    struct dial *d = calloc(1, sizeof(*d)), **p;

    if (!d)
        return 0;
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
    begin(d, s, t);
    return d->id;
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
