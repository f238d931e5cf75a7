#include "egress/flow/retry.h"

#include "base/util.h"
#include "egress/flow/egress.h"
#include "egress/flow/flow.h"
#include "egress/flow/peek.h"
#include "egress/flow/tunnel.h"
#include "egress/flow/verdict.h"
#include "egress/tls/clienthello.h"
#include "policy/policy.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <uv.h>

#define RECORD_HEAD        5u
#define CHANGE_CIPHER_SPEC 0x14
#define HANDSHAKE          0x16
#define APPLICATION_DATA   0x17

/* -- pure -------------------------------------------------------------------------------------- */

int retry_is_requested(const unsigned char *p, size_t n)
{
    /* Record and handshake heads, then the version and the random that is the SHA-256 of
     * "HelloRetryRequest" (RFC 8446 4.1.3). 0 in the mask: any. */
    static const unsigned char start[] = {HANDSHAKE, 3, 0, 0, 0, 2, 0, 0, 0, 3, 3};
    static const unsigned char mask[] = {1, 1, 0, 0, 0, 1, 0, 0, 0, 1, 1};
    static const unsigned char random[] = {0xcf, 0x21, 0xad, 0x74, 0xe5, 0x9a, 0x61, 0x11,
                                           0xbe, 0x1d, 0x8c, 0x02, 0x1e, 0x65, 0xb8, 0x91,
                                           0xc2, 0xa2, 0x11, 0x16, 0x7a, 0xbb, 0x8c, 0x5e,
                                           0x07, 0x9e, 0x09, 0xe2, 0xc8, 0xa8, 0x33, 0x9c};

    for (size_t i = 0; i < sizeof(start) + sizeof(random); i++) {
        if (i >= n)
            return -EAGAIN;
        if (i < sizeof(start) ? mask[i] && p[i] != start[i] : p[i] != random[i - sizeof(start)])
            return 0;
    }
    return 1;
}

ssize_t retry_hello_at(const unsigned char *p, size_t n)
{
    size_t at = 0;

    while (at < n && p[at] != HANDSHAKE) {
        if (p[at] != CHANGE_CIPHER_SPEC && p[at] != APPLICATION_DATA)
            return -EPROTO;
        if (n - at < RECORD_HEAD)
            return -EAGAIN;
        at += RECORD_HEAD + ((size_t)p[at + 3] << 8 | p[at + 4]);
    }
    return at < n ? (ssize_t)at : -EAGAIN;
}

/* -- the flow ---------------------------------------------------------------------------------- */

static void low_water(int fd, int bytes)
{
    (void)!setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

/* By an alert: the handshake has begun with the server, and cannot be finished here. */
static void refuse(struct flow *f, const char *rule, const char *why)
{
    f->offers_h2 = f->offers_http1 = false;
    flow_refuse(f, NULL, rule, "%s", why);
}

static void on_late(struct flow *f)
{
    refuse(f, "first-bytes", "the TLS handshake did not go on in time");
}

static void tunnel(struct flow *f)
{
    flow_unwatch(f);
    low_water(f->fd, 1);
    low_water(f->up_fd, 1);
    f->low_water = false;
    if (f->must_inspect) /* since the policy changed on the way here */
        flow_refuse(f, NULL, f->rule,
                    "the rule looks at requests, and this connection is encrypted");
    else if (tunnel_start(f) < 0)
        flow_reset(f);
}

/* The name of the second is the first's, or none where that had none. */
static bool same_name(const struct flow *f, const struct clienthello *h)
{
    char name[POLICY_NAME_MAX + 1];

    if (!h->name[0] || !f->sni)
        return !h->name[0] && !f->sni;
    return policy_name_normalize(h->name, name) == 0 && strcmp(name, f->sni) == 0;
}

static void on_second(struct flow *f, int events)
{
    static unsigned char data[EGRESS_SNIFF_MAX_BYTES]; /* one loop, used within this call */
    ssize_t n = peek_bytes(f->fd, data, sizeof(data), NULL), at;
    struct clienthello h;
    int rc;

    if (n == -EAGAIN)
        return;
    if (n <= 0) {
        flow_end(f);
        return;
    }
    at = retry_hello_at(data, (size_t)n);
    rc = at < 0 ? (int)at : clienthello_read(data + at, (size_t)(n - at), &h);
    if (rc == -EAGAIN && !(events & UV_DISCONNECT) && (size_t)n < sizeof(data))
        low_water(f->fd, (int)n + 1);
    else if (rc < 0)
        refuse(f, "tls", "the second TLS ClientHello cannot be read");
    else if (!same_name(f, &h) || (h.ech && verdict_depends_on_names(f->sandbox)))
        refuse(f, "sni", "the second TLS ClientHello names another server");
    else
        tunnel(f);
}

/* The server's bytes go to the client while the client's answer is held: a HelloRetryRequest, and
 * perhaps a change_cipher_spec behind it. */
static bool on_more(struct flow *f)
{
    unsigned char data[2048];
    ssize_t n = recv(f->up_fd, data, sizeof(data), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    if (n <= 0 || send(f->fd, data, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL) < n) {
        flow_end(f);
        return true;
    }
    f->down_bytes += (uint64_t)n;
    return true;
}

static void request_again(struct flow *f)
{
    if (flow_watch(f, UV_READABLE | UV_DISCONNECT, on_second, EGRESS_SNIFF_MS, on_late) < 0) {
        flow_reset(f);
        return;
    }
    low_water(f->up_fd, 1);
    flow_watch_upstream(f, on_more);
}

static bool on_answer(struct flow *f)
{
    unsigned char data[64];
    ssize_t n = peek_bytes(f->up_fd, data, sizeof(data), NULL);
    int rc;

    if (n == -EAGAIN)
        return true;
    if (n == -EPROTO) {
        refuse(f, "tls", "urgent data (MSG_OOB) in the server's answer hides what it asks for");
        return true;
    }
    rc = n > 0 ? retry_is_requested(data, (size_t)n) : 0;
    if (rc == -EAGAIN)
        low_water(f->up_fd, (int)n + 1);
    else if (rc == 0)
        tunnel(f); /* its end too is the tunnel's to tell */
    else
        request_again(f);
    return true;
}

/* Nothing more comes from it; what it has said already, a second ClientHello perhaps, is not sent
 * on. */
static void on_client_end(struct flow *f, int events)
{
    char byte;

    if (peek_bytes(f->fd, &byte, 1, NULL) == 0)
        tunnel(f);
    else
        flow_end(f);
}

static bool send_first(struct flow *f, size_t n)
{
    static unsigned char data[EGRESS_SNIFF_MAX_BYTES]; /* one loop, used within this call */

    if (n > sizeof(data) || recv(f->fd, data, n, MSG_DONTWAIT) != (ssize_t)n)
        return false;
    f->up_bytes += n;
    /* Nothing was sent on this connection before: its buffer is empty, and takes a message that is
     * smaller than the smallest there is. */
    return send(f->up_fd, data, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

void retry_start(struct flow *f, size_t wire_bytes)
{
    low_water(f->fd, 1);
    f->low_water = false;
    if (!send_first(f, wire_bytes)) {
        refuse(f, "tls", "the TLS ClientHello cannot be sent on");
        return;
    }
    if (flow_watch(f, UV_DISCONNECT, on_client_end, f->egress->config.idle_timeout_ms, flow_end) <
        0)
        flow_reset(f);
    else
        flow_watch_upstream(f, on_answer);
}
