/* Detects the protocol of a flow's first bytes, and hands the flow on. Looks without reading
 * (MSG_PEEK) until it is known: TLS (its name must agree with what was dialled; then a tunnel or
 * interception), HTTP (forward), opaque (a tunnel where the rules allow it), or a server that
 * speaks first, whose greeting passes before the client's first bytes are looked at. A silence has
 * a time limit. Undecidable bytes are refused. */
#include "egress/flow/protocol_detect.h"

#include "base/err.h"
#include "base/util.h"
#include "egress/flow/deny.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/forward.h"
#include "egress/flow/greeting.h"
#include "egress/flow/peek.h"
#include "egress/flow/retry.h"
#include "egress/flow/sniff.h"
#include "egress/flow/target.h"
#include "egress/flow/tls_intercept.h"
#include "egress/flow/tunnel.h"
#include "egress/flow/verdict.h"
#include "egress/tls/clienthello.h"
#include "policy/policy.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <uv.h>

/* Wakes only when there is more than that. */
static void await_more(struct flow *f, size_t have)
{
    int more = (int)have + 1;

    f->low_water = true;
    (void)!setsockopt(f->fd, SOL_SOCKET, SO_RCVLOWAT, &more, sizeof(more));
}

void protocol_detect_done(struct flow *f)
{
    int one = 1;

    flow_unwatch(f);
    if (f->low_water)
        (void)!setsockopt(f->fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
    f->low_water = false;
}

static void start_tunnel(struct flow *f)
{
    int one = 1;

    protocol_detect_done(f);
    if (f->up_fd >= 0)
        (void)!setsockopt(f->up_fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof(one));
    if (tunnel_start(f) < 0)
        flow_reset(f);
}

static void start_forward(struct flow *f)
{
    protocol_detect_done(f);
    if (forward_adopt(f->egress, f, NULL, NULL) < 0)
        flow_reset(f);
}

static void intercept(struct flow *f)
{
    struct err e = {.code = ERR_UNIMPLEMENTED};

    util_close(&f->up_fd); /* each request is dialled for once it is known */
    protocol_detect_done(f);
    if (!f->egress->intercept) {
        flow_refuse(f, NULL, f->rule[0] ? f->rule : "inspect",
                    "the rule looks at requests, and this connection is encrypted: this server "
                    "does not intercept TLS");
        return;
    }
    f->state = FLOW_INTERCEPTED;
    if (tls_intercept_start(f->egress, f, &e) < 0)
        flow_refuse(f, NULL, "inspect", "the connection cannot be read: %s", e.text);
}

/* By address, f->sni is held against the rules too: from here on they are asked about both. */
static bool address_agrees(struct flow *f)
{
    struct policy_verdict v;

    f->target.said = f->sni;
    v = verdict_target(f->sandbox, &f->target);
    f->must_inspect |= v.action == POLICY_INSPECT;
    if (v.action != POLICY_DENY)
        return true;
    flow_refuse(f, &v, "sni", "the TLS server name %.80s is not allowed", f->sni);
    return false;
}

/* The name that the client asks the server for must be the one that it dialled: an allowed address
 * is not to carry another's traffic (domain fronting). */
static bool name_agrees(struct flow *f, const char *said)
{
    char name[POLICY_NAME_MAX + 1];

    if (policy_name_normalize(said, name) < 0) {
        f->offers_h2 = f->offers_http1 = false; /* no certificate is made for that */
        flow_refuse(f, NULL, "sni", "the TLS server name is not a host name");
        return false;
    }
    f->sni = strdup(name);
    if (!f->sni) {
        flow_reset(f);
        return false;
    }
    if (f->target.name && strcmp(f->target.name, name) != 0) {
        flow_refuse(f, NULL, "sni",
                    "the TLS server name %.80s is not the name that was dialled, %.80s", name,
                    f->target.name);
        return false;
    }
    return f->target.name || address_agrees(f);
}

/* It is told so under the name that it asked for. */
static void say_refused(struct flow *f, const char *said)
{
    char name[POLICY_NAME_MAX + 1];

    if (said[0] && policy_name_normalize(said, name) == 0)
        f->sni = strdup(name);
    else if (said[0])
        f->offers_h2 = f->offers_http1 = false; /* no certificate is made for that */
    deny_say(f);
}

static void on_tls(struct flow *f, const void *data, size_t n, bool end)
{
    struct clienthello hello = {0};
    int rc;

    f->kind = FLOW_TLS;
    rc = clienthello_read(data, n, &hello);
    if (rc == -EAGAIN && !end && n < EGRESS_SNIFF_MAX_BYTES) {
        await_more(f, n);
        return;
    }
    if (rc == 0) {
        f->offers_h2 = clienthello_offers(&hello, "h2");
        f->offers_http1 = hello.alpn_len == 0 || clienthello_offers(&hello, "http/1.1");
    }
    if (f->refused || f->unreachable) {
        say_refused(f, hello.name);
        return;
    }
    if (rc < 0) {
        flow_refuse(f, NULL, "tls", "the TLS ClientHello cannot be read");
        return;
    }
    if (hello.name[0] && !name_agrees(f, hello.name))
        return;
    /* To an address, and which name is meant is said in the requests alone. */
    if (!f->target.name && !hello.name[0])
        f->must_inspect |= verdict_narrows_names(f->sandbox);
    /* Another name may be inside, encrypted for the server: GREASE looks the same. Opened here, the
     * server never sees it, and clients go on without (RFC 9849 6.1.6; test:
     * test_egress_fronting.py, test_an_encrypted_client_hello_is_opened). */
    if (hello.ech)
        f->must_inspect |= verdict_depends_on_names(f->sandbox);
    if (f->must_inspect) {
        intercept(f);
    } else {
        flow_unwatch(f);
        retry_start(f, hello.wire_bytes);
    }
}

static void on_opaque(struct flow *f)
{
    f->kind = FLOW_OPAQUE;
    if (f->refused || f->unreachable)
        flow_reset(f);
    else if (f->must_inspect)
        flow_refuse(f, NULL, f->rule,
                    "the rule looks at requests, and this is neither HTTP nor TLS");
    else
        start_tunnel(f);
}

/* A start that only hides the message behind it, or that cannot be read here. */
static void on_unreadable(struct flow *f, const char *what)
{
    f->kind = FLOW_OPAQUE;
    if (f->refused || f->unreachable)
        flow_reset(f);
    else
        flow_refuse(f, NULL, "first-bytes", "%s", what);
}

/* The first bytes come after a silence: they have the time that others have. */
static void end_silence(struct flow *f)
{
    if (f->silent)
        flow_watch_again(f, EGRESS_SNIFF_MS);
    f->silent = false;
}

static void on_first_bytes(struct flow *f, int events)
{
    static unsigned char data[EGRESS_SNIFF_MAX_BYTES]; /* one loop, used within this call */
    bool all = false, end;
    ssize_t n = peek_bytes(f->fd, data, sizeof(data), &all);

    if (n == -EAGAIN)
        return;
    if (n == -EPROTO) {
        on_unreadable(f, "urgent data (MSG_OOB) among the first bytes hides what stands behind it");
        return;
    }
    if (n < 0) {
        flow_end(f);
        return;
    }
    end = n == 0 || (all && events & UV_DISCONNECT);
    end_silence(f);
    if (n == 0 && f->must_inspect) { /* it has asked for nothing: nothing is refused */
        flow_end(f);
        return;
    }
    switch (sniff_bytes(data, (size_t)n, end, false)) {
    case SNIFF_MORE:
        if ((size_t)n >= sizeof(data))
            on_unreadable(f, "the first message is longer than any that is known");
        else
            await_more(f, (size_t)n);
        return;
    case SNIFF_HTTP2:
        on_unreadable(f, "HTTP/2 without TLS cannot be read here: use TLS or HTTP/1.1");
        return;
    case SNIFF_PROXY_HEADER:
        on_unreadable(f, "a header of the PROXY protocol hides the first message");
        return;
    case SNIFF_TLS: on_tls(f, data, (size_t)n, end); return;
    case SNIFF_HTTP:
        f->kind = FLOW_HTTP;
        start_forward(f); /* a refusal is said there too */
        return;
    default: on_opaque(f);
    }
}

static bool server_ended(const struct flow *f)
{
    struct pollfd p = {.fd = f->up_fd, .events = POLLRDHUP};

    return poll(&p, 1, 0) > 0;
}

/* The server's greeting passes when it is no HTTP/2, and the tunnel looks at the client's bytes
 * then. */
static void on_greeting(struct flow *f, const unsigned char *data, size_t n)
{
    int more = (int)n + 1, rc = greeting_is_http2(data, n);

    if (rc == -EAGAIN && !server_ended(f)) {
        (void)!setsockopt(f->up_fd, SOL_SOCKET, SO_RCVLOWAT, &more, sizeof(more));
        return;
    }
    if (rc > 0) {
        on_unreadable(f, "HTTP/2 without TLS cannot be read here: use TLS or HTTP/1.1");
        return;
    }
    f->greeted = true;
    on_opaque(f);
}

/* The server speaks first: ssh, mail, databases. Bytes that the client sent before that are looked
 * at here. A server that only ends has not spoken: it may still read. False: the server need not be
 * watched any more. */
static bool on_upstream(struct flow *f)
{
    unsigned char data[16];
    char byte;
    ssize_t n;

    if (peek_bytes(f->fd, &byte, 1, NULL) > 0)
        return false;
    n = peek_bytes(f->up_fd, data, sizeof(data), NULL);
    if (n == 0) {
        shutdown(f->fd, SHUT_WR);
        return false;
    }
    if (n > 0)
        on_greeting(f, data, (size_t)n);
    else if (n == -EPROTO)
        on_unreadable(f, "urgent data (MSG_OOB) among the server's first bytes");
    else if (n != -EAGAIN)
        flow_reset(f);
    return true;
}

static bool has_begun(struct flow *f)
{
    char byte;

    return peek_bytes(f->fd, &byte, 1, NULL) > 0;
}

/* Bytes that could still become TLS or a request are neither let through unread, nor waited for.
 * Where both sides are silent there is nothing to let through: the wait goes on, for the first
 * bytes are looked at whenever they come (test: test_egress_attacks.py,
 * test_first_bytes_hide_nothing). */
static void on_no_first_bytes(struct flow *f)
{
    if (f->refused || f->unreachable) {
        flow_reset(f);
    } else if (f->must_inspect) {
        flow_refuse(f, NULL, f->rule, "the rule looks at requests, and none came in time");
    } else if (has_begun(f)) {
        on_unreadable(f, "the first message did not come whole in time");
    } else if (f->silent) {
        flow_end(f);
    } else {
        f->silent = true;
        flow_watch_again(f, f->egress->config.idle_timeout_ms);
    }
}

void protocol_detect_start(struct flow *f)
{
    uint64_t wait_ms = f->refused || f->unreachable ? EGRESS_SILENT_MS : EGRESS_SNIFF_MS;

    f->state = FLOW_SNIFFING;
    if (flow_watch(f, UV_READABLE | UV_DISCONNECT, on_first_bytes, wait_ms, on_no_first_bytes) <
        0) {
        flow_reset(f);
        return;
    }
    if (f->up_fd >= 0 && !f->must_inspect)
        flow_watch_upstream(f, on_upstream);
    on_first_bytes(f, 0); /* as a rule its first message is there already */
}
