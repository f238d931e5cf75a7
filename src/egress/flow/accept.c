/* A connection that is accepted becomes a flow, if its sandbox has room; its target is what was
 * dialled before the redirect (or what an explicit proxy's client says); it waits if the policy
 * has not come; then it is protocol_detect.c's. A listener rests for a moment where a rate or a
 * maximum is reached, so that the backlog holds what comes. UDP is DNS alone (dns.c). */

#include "egress/flow/accept.h"

#include "base/log.h"
#include "base/util.h"
#include "egress/flow/arrivals.h"
#include "egress/flow/connect.h"
#include "egress/flow/deny.h"
#include "egress/flow/dns.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/forward.h"
#include "egress/flow/names.h"
#include "egress/flow/peek.h"
#include "egress/flow/rate.h"
#include "egress/flow/registry.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/sniff.h"
#include "egress/flow/socks.h"
#include "egress/flow/target.h"
#include "egress/tls/turns.h"
#include "policy/policy.h"

#include <errno.h>
#include <linux/netfilter_ipv4.h>
#include <linux/netfilter_ipv6/ip6_tables.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <uv.h>

#define BATCH         32
#define RETRY_MS      200
#define RATE_MS       50
#define DNS_PORT      53
#define NAMES_WAIT_MS 2000u /* for the rules of a sandbox, before its questions are answered */
#define NAMES_POLL_MS 20
#define CONGESTION    "reno" /* every kernel has it, and it needs no capability */
#define HARD_FACTOR   2u /* past its limit a sandbox is told so, past this many times it is reset */

struct sandbox_io {
    struct sandbox *sandbox; /* NULL once closing */
    uv_poll_t tcp, udp;
    uv_timer_t again;              /* accepting, or what failed, rests until then */
    uint32_t tcp_round, udp_round; /* turns.h */
    uint64_t since_ms;
    unsigned handles;
};

/* -- where to ---------------------------------------------------------------------------------- */

static bool same_endpoint(const struct sockaddr_in6 *a, const struct policy_address *b,
                          uint16_t port)
{
    return memcmp(&a->sin6_addr, &b->in6, sizeof(b->in6)) == 0 && ntohs(a->sin6_port) == port;
}

/* The address that was dialled, before the redirect; the listener's own address when nothing was
 * redirected. The socket is dual-stack, so that its own addresses are IPv6, mapped ones too. */
static int original_destination(int fd, struct policy_address *a, uint16_t *port, bool *listener)
{
    struct sockaddr_in6 local;
    struct sockaddr_storage original;
    socklen_t n = sizeof(local), m = sizeof(original);
    int rc;

    if (getsockname(fd, (struct sockaddr *)&local, &n) < 0)
        return -errno;
    if (local.sin6_family != AF_INET6)
        return -EAFNOSUPPORT;
    memset(&original, 0, sizeof(original));
    rc = IN6_IS_ADDR_V4MAPPED(&local.sin6_addr)
             ? getsockopt(fd, SOL_IP, SO_ORIGINAL_DST, &original, &m)
             : getsockopt(fd, SOL_IPV6, IP6T_SO_ORIGINAL_DST, &original, &m);
    if (rc < 0) { /* not tracked: it was not redirected */
        if (errno != ENOENT && errno != ENOPROTOOPT)
            return -errno;
        memcpy(&original, &local, sizeof(local));
    }
    policy_address_from((struct sockaddr *)&original, a);
    *port = original.ss_family == AF_INET ? ntohs(((struct sockaddr_in *)&original)->sin_port)
                                          : ntohs(((struct sockaddr_in6 *)&original)->sin6_port);
    *listener = same_endpoint(&local, a, *port);
    return 0;
}

/* -- explicit ---------------------------------------------------------------------------------- */

static void on_first_bytes(struct flow *f, int events)
{
    static unsigned char data[EGRESS_SNIFF_MAX_BYTES]; /* one loop, used within this call */
    bool all = false;
    ssize_t n = peek_bytes(f->fd, data, sizeof(data), &all);
    int more;

    if (n == -EAGAIN)
        return;
    if (n <= 0) {
        flow_end(f);
        return;
    }
    switch (sniff_bytes(data, (size_t)n, all && events & UV_DISCONNECT, true)) {
    case SNIFF_MORE:
        more = (int)n + 1;
        (void)!setsockopt(f->fd, SOL_SOCKET, SO_RCVLOWAT, &more, sizeof(more));
        return;
    case SNIFF_SOCKS5: socks_start(f); return;
    case SNIFF_CONNECT: connect_start(f); return;
    case SNIFF_HTTP:
        f->via = FLOW_BY_REQUEST;
        f->kind = FLOW_HTTP;
        flow_unwatch(f);
        if (forward_adopt(f->egress, f, NULL, NULL) < 0)
            flow_reset(f);
        return;
    default: flow_reset(f); /* neither kind nor destination is known */
    }
}

static void explicit_proxy(struct flow *f)
{
    f->state = FLOW_NEGOTIATING;
    if (flow_watch(f, UV_READABLE | UV_DISCONNECT, on_first_bytes, EGRESS_SNIFF_MS, flow_reset) < 0)
        flow_reset(f);
}

/* -- one connection ---------------------------------------------------------------------------- */

static void start(struct flow *f)
{
    if (!f->to_listener && f->target.port == DNS_PORT) {
        dns_tcp_start(f);
        return;
    }
    if (f->to_listener) {
        explicit_proxy(f);
        return;
    }
    flow_route(f);
}

/* The name of what was dialled, so that a refusal for a limit has it too. */
static bool set_target(struct flow *f)
{
    struct policy_address a = f->target.address;

    return f->to_listener || f->target.port == DNS_PORT ||
           flow_set_target(f, NULL, &a, f->target.port) != -ENOMEM;
}

/* cay.internal tells a sandbox why it is refused, so that it is reached also beyond a limit
 * (has_space bounds such connections). */
static bool is_internal(const struct flow *f)
{
    return f->target.name && strcmp(f->target.name, NAMES_INTERNAL_NAME) == 0;
}

/* Or it has come, and this one's turn has not. */
static void policy_is_late(struct flow *f)
{
    if (f->sandbox->has_policy)
        (void)flow_settle(f);
    else
        flow_refuse(f, NULL, "no-policy", "this sandbox has no policy yet: try again in a moment");
}

static uint32_t limit_of(uint32_t own, uint32_t all)
{
    return own && all ? MIN(own, all) : own ? own : all;
}

/* The maximum that s, or the sandbox that it is a command sandbox of, would exceed so many times
 * with so many more; else 0. */
static uint32_t connections_exceeded(const struct sandbox *s, uint32_t more, uint32_t times)
{
    for (; s; s = s->parent) {
        uint32_t own = s->has_policy ? policy_limits(s->policy)->connections : 0,
                 max = limit_of(own, s->egress->config.connections);

        if (max && s->flow_count + more > max * times)
            return max;
    }
    return 0;
}

uint32_t accept_exceeded(const struct sandbox *s)
{
    return connections_exceeded(s, 1, 1);
}

static void begin(struct flow *f)
{
    struct sandbox *s = f->sandbox;
    uint32_t max;

    if (!s->has_policy) {
        f->state = FLOW_WAITING;
        if (flow_watch(f, 0, NULL, EGRESS_POLICY_WAIT_MS, policy_is_late) < 0)
            flow_reset(f);
        return;
    }
    if (!set_target(f)) {
        flow_reset(f);
        return;
    }
    if (is_internal(f)) {
        start(f);
        return;
    }
    max = connections_exceeded(s, 0, 1);
    if (max) {
        f->busy = true;
        flow_refuse(f, NULL, "limit", "the sandbox has its %u connections open already", max);
        return;
    }
    if (registry_over_bytes(s)) {
        flow_refuse(f, NULL, "limit", "the sandbox has used up its bytes");
        return;
    }
    start(f);
}

void accept_go_on(struct flow *f)
{
    if (!f->sandbox->has_policy)
        return;
    flow_unwatch(f);
    f->state = FLOW_SNIFFING;
    begin(f);
}

static void take(struct sandbox *s, int fd)
{
    struct policy_address a = {0};
    uint16_t port = 0;
    bool listener = false;
    int one = 1;
    struct flow *f;

    if (original_destination(fd, &a, &port, &listener) < 0) {
        close(fd);
        return;
    }
    (void)!setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    peek_prepare(fd);
    arrivals_note(s);
    f = flow_new(s, fd);
    if (!f)
        return;
    f->target = (struct target){.address = a, .port = port};
    f->to_listener = listener;
    begin(f);
}

/* -- the listener ------------------------------------------------------------------------------ */

static void on_tcp(uv_poll_t *p, int status, int events);
static void on_udp(uv_poll_t *p, int status, int events);

static void on_again(uv_timer_t *t)
{
    struct sandbox_io *io = t->data;

    uv_poll_start(&io->tcp, UV_READABLE, on_tcp);
    uv_poll_start(&io->udp, UV_READABLE, on_udp);
}

/* Connections wait in the backlog meanwhile: a fast client is not refused. */
static void rest(struct sandbox_io *io, uint64_t ms)
{
    uv_poll_stop(&io->tcp);
    uv_timer_start(&io->again, on_again, ms, 0);
}

static bool has_space(struct sandbox *s)
{
    return registry_has_space(s) && !connections_exceeded(s, 1, HARD_FACTOR);
}

static bool rate_allows(struct sandbox *s)
{
    uint32_t own = s->has_policy ? policy_limits(s->policy)->connections_per_second : 0;

    return (!s->parent || rate_allows(s->parent)) &&
           rate_take(&s->connections, limit_of(own, s->egress->config.connections_per_second));
}

static void accept_some(struct sandbox_io *io, struct turns *turns)
{
    for (int i = 0; i < BATCH && io->sandbox && !turns_is_over(turns); i++) {
        struct sandbox *s = io->sandbox;
        int fd;

        if (!has_space(s) || !rate_allows(s)) {
            rest(io, has_space(s) ? RATE_MS : RETRY_MS);
            return;
        }
        fd = accept4(s->tcp_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            take(s, fd);
            continue;
        }
        if (errno == ECONNABORTED || errno == EINTR || errno == EPROTO)
            continue;
        if (errno != EAGAIN)
            rest(io, RETRY_MS);
        return;
    }
}

/* Connections and questions count in the sandbox's share of the turn, as what its connections
 * do. */
static void on_tcp(uv_poll_t *p, int status, int events)
{
    struct sandbox_io *io = p->data;
    struct turns *turns = io->sandbox->egress->turns;

    if (status < 0) { /* libuv has stopped */
        rest(io, RETRY_MS);
        return;
    }
    if (!turns_enter(turns, registry_owner(io->sandbox), &io->tcp_round))
        return;
    accept_some(io, turns);
    turns_exit(turns);
}

/* Which addresses its names had before a restart is known when its id is (names_kept.h): a question
 * that is answered before may get another name's. */
static bool has_names(const struct sandbox_io *io)
{
    const struct sandbox *s = io->sandbox;

    return s->id[0] || s->parent || uv_now(s->egress->loop) - io->since_ms >= NAMES_WAIT_MS;
}

/* An error of the socket stops libuv's watch, and would end all names of the sandbox. Reading takes
 * an error from the socket as a rule; one that stays is not looked at again at once. */
static void on_udp(uv_poll_t *p, int status, int events)
{
    struct sandbox_io *io = p->data;
    struct turns *turns = io->sandbox->egress->turns;

    if (status < 0)
        uv_timer_start(&io->again, on_again, RETRY_MS, 0);
    if (status == 0 && !has_names(io)) {
        uv_poll_stop(&io->udp);
        uv_timer_start(&io->again, on_again, NAMES_POLL_MS, 0);
        return;
    }
    if (!turns_enter(turns, registry_owner(io->sandbox), &io->udp_round))
        return;
    dns_udp_readable(io->sandbox);
    turns_exit(turns);
}

static void on_closed(uv_handle_t *h)
{
    struct sandbox_io *io = h->data;

    if (--io->handles == 0)
        free(io);
}

void accept_stop(struct sandbox *s)
{
    struct sandbox_io *io = TAKE_PTR(s->io);

    if (!io)
        return;
    io->sandbox = NULL;
    uv_close((uv_handle_t *)&io->tcp, on_closed);
    uv_close((uv_handle_t *)&io->udp, on_closed);
    uv_close((uv_handle_t *)&io->again, on_closed);
}

/* Its connections do not leave the machine, and nothing on their way is congested. Where the
 * machine's choice paces what it sends (BBR), a download sets a timer of the kernel for each few
 * packets, and those expire on cay-egress's processor before a neighbour's packets. They inherit it
 * from the listener. A kernel that refuses it leaves them the machine's. */
static void send_unpaced(int listener)
{
    (void)!setsockopt(listener, IPPROTO_TCP, TCP_CONGESTION, CONGESTION, sizeof(CONGESTION) - 1);
}

int accept_start(struct sandbox *s)
{
    struct sandbox_io *io = calloc(1, sizeof(*io));
    uv_loop_t *loop = s->egress->loop;
    int rc;

    if (!io)
        return -ENOMEM;
    rc = uv_poll_init(loop, &io->tcp, s->tcp_fd);
    if (rc < 0) {
        free(io);
        return rc;
    }
    uv_timer_init(loop, &io->again);
    io->tcp.data = io->udp.data = io->again.data = io;
    io->sandbox = s;
    io->since_ms = uv_now(loop);
    io->handles = 2;
    rc = uv_poll_init(loop, &io->udp, s->udp_fd);
    if (rc < 0) {
        uv_close((uv_handle_t *)&io->tcp, on_closed);
        uv_close((uv_handle_t *)&io->again, on_closed);
        return rc;
    }
    io->handles = 3;
    s->io = io;
    send_unpaced(s->tcp_fd);
    dns_udp_options(s->udp_fd);
    uv_poll_start(&io->tcp, UV_READABLE, on_tcp);
    uv_poll_start(&io->udp, UV_READABLE, on_udp);
    return 0;
}
