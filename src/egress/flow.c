/* A flow's life from its target on: asked about, dialled, looked at, handed on. */
#include "base/log.h"
#include "base/util.h"
#include "egress/audit.h"
#include "egress/clienthello.h"
#include "egress/connect.h"
#include "egress/deny.h"
#include "egress/dial.h"
#include "egress/egress.h"
#include "egress/forward.h"
#include "egress/names.h"
#include "egress/registry.h"
#include "egress/sniff.h"
#include "egress/socks.h"
#include "egress/tunnel.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>

#define ANSWER_MS     2000 /* for the client to take a last answer */
#define DISCARD_BYTES 65536

const char *flow_kind_name(enum flow_kind k)
{
    static const char *const names[] = {"unknown", "tls",    "http", "socks",
                                        "connect", "opaque", "dns"};

    return names[k];
}

/* -- handles ----------------------------------------------------------------------------------- */

/* Apart from the flow, because libuv needs them a little longer than the flow may live. */
struct flow_io {
    uv_poll_t client, upstream;
    uv_timer_t timer;
    struct flow *flow; /* NULL once closing */
    void (*on_client)(struct flow *f, int events);
    void (*late)(struct flow *f);
    bool polls_client, polls_upstream;
    unsigned handles;
};

static void on_io_closed(uv_handle_t *h)
{
    struct flow_io *io = h->data;

    if (--io->handles == 0)
        free(io);
}

static void close_handle(uv_handle_t *h)
{
    uv_close(h, on_io_closed);
}

void flow_unwatch(struct flow *f)
{
    struct flow_io *io = TAKE_PTR(f->io);

    if (!io)
        return;
    io->flow = NULL;
    if (io->polls_client)
        close_handle((uv_handle_t *)&io->client);
    if (io->polls_upstream)
        close_handle((uv_handle_t *)&io->upstream);
    close_handle((uv_handle_t *)&io->timer);
}

static void on_timer(uv_timer_t *t)
{
    struct flow_io *io = t->data;

    io->late(io->flow);
}

static void on_client(uv_poll_t *p, int status, int events)
{
    struct flow_io *io = p->data;

    io->on_client(io->flow, status < 0 ? UV_READABLE | UV_DISCONNECT : events);
}

int flow_watch(struct flow *f, int events, void (*cb)(struct flow *f, int events),
               uint64_t timeout_ms, void (*late)(struct flow *f))
{
    struct flow_io *io;

    flow_unwatch(f);
    io = calloc(1, sizeof(*io));
    if (!io)
        return -ENOMEM;
    uv_timer_init(f->egress->loop, &io->timer);
    io->timer.data = io->client.data = io->upstream.data = io;
    io->handles = 1;
    io->flow = f;
    io->on_client = cb;
    io->late = late;
    f->io = io;
    if (timeout_ms)
        uv_timer_start(&io->timer, on_timer, timeout_ms, 0);
    if (!cb)
        return 0;
    if (uv_poll_init(f->egress->loop, &io->client, f->fd) < 0) {
        flow_unwatch(f);
        return -ENOMEM;
    }
    io->polls_client = true;
    io->handles++;
    uv_poll_start(&io->client, events, on_client);
    return 0;
}

void flow_watch_again(struct flow *f, uint64_t timeout_ms)
{
    if (f->io)
        uv_timer_start(&f->io->timer, on_timer, timeout_ms, 0);
}

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
    f->started_ms = clock_mono_ms();
    registry_add_flow(f);
    return f;
}

static void record_end(struct flow *f)
{
    const struct audit_record r = {
        .event = AUDIT_END,
        .sandbox = f->sandbox,
        .flow = f,
        .allowed = !f->refused && !f->cut,
        .rule = f->rule,
        .reason = f->cut ? "cut" : NULL,
        .up_bytes = f->up_bytes,
        .down_bytes = f->down_bytes,
        .duration_ms = clock_mono_ms() - f->started_ms,
    };

    audit_record(f->egress->audit, &r);
}

void flow_end(struct flow *f)
{
    if (f->on_end)
        f->on_end(f);
    flow_unwatch(f);
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

int target_of_own(const struct sandbox *s, struct target *t)
{
    if (t->name || !names_is_own(&t->address))
        return 0;
    t->name = names_of(s->names, &t->address);
    if (!t->name)
        return -ENOENT;
    t->address = (struct policy_address){0};
    return 0;
}

bool target_is_resolved(const struct target *t)
{
    static const struct policy_address none;

    return memcmp(&t->address, &none, sizeof(none)) != 0;
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

/* -- last words -------------------------------------------------------------------------------- */

static void on_discard(struct flow *f, int events)
{
    char ignored[DISCARD_BYTES];

    if (recv(f->fd, ignored, sizeof(ignored), MSG_DONTWAIT) <= 0)
        flow_end(f);
}

/* Closing a socket with unread bytes resets it, and a reset takes the answer with it: what the client
 * sends is read and forgotten until it ends, or is late. */
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

void flow_refuse(struct flow *f, const struct policy_verdict *v, const char *rule, const char *fmt,
                 ...)
{
    char text[POLICY_REASON_SIZE];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    f->refused = true;
    util_close(&f->up_fd);
    dial_cancel(f->egress, f->dial_id);
    f->dial_id = 0;
    flow_set_rule(f, v && v->name ? v->name : rule);
    free(f->reason);
    f->reason = strdup(text);
    deny_note(f, v, NULL, NULL);
    deny_say(f);
}

/* -- the policy's word ------------------------------------------------------------------------- */

static struct policy_verdict both(const struct sandbox *s, struct policy_verdict own,
                                  struct policy_verdict (*ask)(const struct policy *,
                                                               const struct target *),
                                  const struct target *t)
{
    return s->ceiling ? policy_both(own, ask(s->ceiling, t)) : own;
}

static struct policy_verdict ask_name(const struct policy *p, const struct target *t)
{
    return policy_name(p, t->name, t->port);
}

static struct policy_verdict ask_address(const struct policy *p, const struct target *t)
{
    return policy_address(p, t->name, &t->address, t->port);
}

struct policy_verdict flow_verdict_address(const struct sandbox *s, const struct target *t)
{
    if (t->name && !target_is_resolved(t))
        return both(s, ask_name(s->policy, t), ask_name, t);
    return both(s, ask_address(s->policy, t), ask_address, t);
}

struct policy_verdict flow_verdict(const struct flow *f)
{
    const struct sandbox *s = f->sandbox;

    if (!f->target.name)
        return flow_verdict_address(s, &f->target);
    return both(s, ask_name(s->policy, &f->target), ask_name, &f->target);
}

static void refuse_by_policy(struct flow *f, const struct policy_verdict *v)
{
    char why[POLICY_REASON_SIZE];
    const struct sandbox *s = f->sandbox;
    const struct policy *p = v->source == POLICY_BY_CEILING ? s->ceiling : s->policy;

    deny_explain(p, v, &f->target, NULL, NULL, why);
    flow_refuse(f, v, "policy", "%s", why);
}

static void note_allowed(struct flow *f, const struct policy_verdict *v)
{
    const struct audit_record r = {.event = AUDIT_CONNECTION,
                                   .sandbox = f->sandbox,
                                   .flow = f,
                                   .allowed = true,
                                   .rule = f->rule,
                                   .source = v->source};

    f->sandbox->allowed++;
    audit_record(f->egress->audit, &r);
}

/* -- routing ----------------------------------------------------------------------------------- */

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
        f->target.address = r->address;
        refuse_by_policy(f, &r->verdict);
        return;
    }
    if (r->fd < 0) {
        deny_unreachable(f, &r->why);
        return;
    }
    f->up_fd = r->fd;
    f->dialed = true;
    f->target.address = r->address;
    f->must_look |= r->verdict.action == POLICY_INSPECT;
    note_allowed(f, &r->verdict);
    if (f->via == FLOW_BY_SOCKS)
        socks_connected(f);
    else if (f->via == FLOW_BY_CONNECT)
        connect_connected(f);
    else
        flow_look(f);
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
        f->must_look = true; /* served here: forward.c */
        v = (struct policy_verdict){.action = POLICY_INSPECT, .name = "cay"};
    } else {
        v = flow_verdict(f);
    }
    flow_set_rule(f, v.name);
    if (v.action == POLICY_DENY) {
        refuse_by_policy(f, &v);
        return;
    }
    if (v.action == POLICY_ALLOW) {
        dial(f);
        return;
    }
    /* Nothing is dialled before it is known to be something that can be read. */
    f->must_look = true;
    if (f->via == FLOW_BY_SOCKS)
        socks_connected(f);
    else if (f->via == FLOW_BY_CONNECT)
        connect_connected(f);
    else
        flow_look(f);
}

/* -- looking ----------------------------------------------------------------------------------- */

/* Wakes only when there is more than that. */
static void look_again(struct flow *f, size_t have)
{
    int more = (int)have + 1;

    f->low_water = true;
    (void)!setsockopt(f->fd, SOL_SOCKET, SO_RCVLOWAT, &more, sizeof(more));
}

/* Before the descriptor is handed on. */
static void looked(struct flow *f)
{
    int one = 1;

    flow_unwatch(f);
    if (f->low_water)
        (void)!setsockopt(f->fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
    f->low_water = false;
}

static void start_tunnel(struct flow *f)
{
    looked(f);
    if (tunnel_start(f) < 0)
        flow_reset(f);
}

static void start_forward(struct flow *f)
{
    looked(f);
    if (forward_adopt(f->egress, f, f->fd, false) < 0)
        flow_reset(f);
}

static void intercept(struct flow *f)
{
    struct err e = {.code = ERR_UNIMPLEMENTED};

    util_close(&f->up_fd); /* each request is dialled for once it is known */
    looked(f);
    if (!f->egress->hooks.intercept_start) {
        flow_refuse(f, NULL, f->rule[0] ? f->rule : "inspect",
                    "the rule looks at requests, and this connection is encrypted: this server "
                    "does not intercept TLS");
        return;
    }
    f->state = FLOW_INTERCEPTED;
    if (f->egress->hooks.intercept_start(f->egress, f, &e) < 0)
        flow_refuse(f, NULL, "inspect", "the connection cannot be read: %s", e.text);
}

/* The name that the client asks the server for must be the one that it dialled: an allowed address
 * is not to carry another's traffic (domain fronting). By address, the name it says is held against
 * the rules too. */
static bool name_agrees(struct flow *f, const char *said)
{
    struct target t = f->target;
    struct policy_verdict v;
    char name[POLICY_NAME_MAX + 1];

    if (policy_name_normalize(said, name) < 0) {
        flow_refuse(f, NULL, "sni", "the TLS server name is not a host name");
        return false;
    }
    if (f->target.name && strcmp(f->target.name, name) != 0) {
        flow_refuse(f, NULL, "sni", "the TLS server name %s is not the name that was dialled, %s",
                    name, f->target.name);
        return false;
    }
    if (!f->target.name) {
        t.name = name;
        v = flow_verdict_address(f->sandbox, &t);
        if (v.action == POLICY_DENY) {
            flow_refuse(f, &v, "sni", "the TLS server name %s is not allowed", name);
            return false;
        }
    }
    f->sni = strdup(name);
    return f->sni != NULL;
}

static void on_tls(struct flow *f, const void *data, size_t n, bool end)
{
    struct clienthello hello;
    int rc;

    f->kind = FLOW_TLS;
    if (f->unreachable) {
        flow_reset(f);
        return;
    }
    rc = clienthello_read(data, n, &hello);
    if (rc == -EAGAIN && !end && n < EGRESS_SNIFF_MAX_BYTES) {
        look_again(f, n);
        return;
    }
    if (f->refused) {
        deny_say(f);
        return;
    }
    if (rc < 0) {
        flow_refuse(f, NULL, "tls", "the TLS ClientHello cannot be read");
        return;
    }
    if (hello.name[0] && !name_agrees(f, hello.name))
        return;
    if (f->must_look)
        intercept(f);
    else
        start_tunnel(f);
}

static void on_opaque(struct flow *f)
{
    f->kind = FLOW_OPAQUE;
    if (f->refused || f->unreachable)
        flow_reset(f);
    else if (f->must_look)
        flow_refuse(f, NULL, f->rule,
                    "the rule looks at requests, and this is neither HTTP nor TLS");
    else
        start_tunnel(f);
}

static void on_look(struct flow *f, int events)
{
    static unsigned char data[EGRESS_SNIFF_MAX_BYTES]; /* one loop, used within this call */
    ssize_t n = recv(f->fd, data, sizeof(data), MSG_PEEK | MSG_DONTWAIT);
    bool end = n == 0 || events & UV_DISCONNECT;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) {
        flow_end(f);
        return;
    }
    switch (sniff_bytes(data, (size_t)n, end, false)) {
    case SNIFF_MORE:
        if ((size_t)n >= sizeof(data))
            on_opaque(f);
        else
            look_again(f, (size_t)n);
        return;
    case SNIFF_TLS: on_tls(f, data, (size_t)n, end); return;
    case SNIFF_HTTP:
        f->kind = FLOW_HTTP;
        start_forward(f); /* a refusal is said there too */
        return;
    default: on_opaque(f);
    }
}

/* The server speaks first: ssh, mail, databases. What the client says after that is its own affair; but
 * what it has said already is looked at. */
static void on_upstream(uv_poll_t *p, int status, int events)
{
    struct flow_io *io = p->data;
    char byte;

    if (recv(io->flow->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0)
        uv_poll_stop(p);
    else
        on_opaque(io->flow);
}

/* What has begun as TLS or HTTP and does not go on is neither let through unread, nor waited for. */
static bool has_begun(struct flow *f)
{
    unsigned char data[64];
    ssize_t n = recv(f->fd, data, sizeof(data), MSG_PEEK | MSG_DONTWAIT);
    enum sniff kind = n > 0 ? sniff_bytes(data, (size_t)n, false, false) : SNIFF_OPAQUE;

    return kind == SNIFF_MORE || kind == SNIFF_TLS || kind == SNIFF_HTTP;
}

static void on_look_late(struct flow *f)
{
    if (f->refused || f->unreachable) {
        flow_reset(f);
    } else if (f->must_look) {
        flow_refuse(f, NULL, f->rule, "the rule looks at requests, and none came in time");
    } else if (has_begun(f)) {
        f->kind = FLOW_OPAQUE;
        flow_refuse(f, NULL, "first-bytes", "the first message did not come whole in time");
    } else {
        on_opaque(f);
    }
}

static void watch_upstream(struct flow *f)
{
    if (uv_poll_init(f->egress->loop, &f->io->upstream, f->up_fd) < 0)
        return;
    f->io->polls_upstream = true;
    f->io->handles++;
    uv_poll_start(&f->io->upstream, UV_READABLE | UV_DISCONNECT, on_upstream);
}

void flow_look(struct flow *f)
{
    uint64_t wait_ms = f->refused || f->unreachable ? EGRESS_SILENT_MS : EGRESS_SNIFF_MS;

    f->state = FLOW_SNIFFING;
    if (flow_watch(f, UV_READABLE | UV_DISCONNECT, on_look, wait_ms, on_look_late) < 0) {
        flow_reset(f);
        return;
    }
    if (f->up_fd >= 0 && !f->must_look)
        watch_upstream(f);
    on_look(f, 0); /* as a rule its first message is there already */
}

void flow_recheck(struct flow *f)
{
    struct policy_verdict v;

    if (f->refused || f->state == FLOW_NEGOTIATING || f->state == FLOW_ANSWERING ||
        (f->target.name && strcmp(f->target.name, NAMES_INTERNAL_NAME) == 0) ||
        (!f->target.name && f->target.port == 0))
        return;
    v = flow_verdict(f);
    if (v.action != POLICY_DENY && f->dialed)
        v = flow_verdict_address(f->sandbox, &f->target);
    /* What has to be read from now on, and passes unread, is cut too. */
    if ((v.action == POLICY_ALLOW || (v.action == POLICY_INSPECT && f->state != FLOW_TUNNELED)) &&
        (f->state != FLOW_FORWARDED || forward_recheck(f, &v))) {
        f->must_look |= v.action == POLICY_INSPECT;
        return;
    }
    f->cut = true;
    flow_set_rule(f, v.name);
    deny_note(f, &v, NULL, NULL);
    flow_reset(f);
}
