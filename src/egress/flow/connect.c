/* HTTP CONNECT on a sandbox's listener (RFC 9110 9.3.6). flow.c calls connect_start when the
 * first bytes are a CONNECT line. Order: the head is waited for without being taken from the
 * socket (MSG_PEEK, SO_RCVLOWAT), its target becomes the flow's, flow_route decides and dials;
 * connect_connected then answers 200 and detection begins anew on what the client sends through,
 * connect_refuse answers with the reason and ends the flow. Nothing is dialled before the whole
 * head is there. */

#include "egress/flow/connect.h"

#include "egress/flow/authority.h"

#include "base/buf.h"
#include "base/util.h"
#include "egress/flow/deny.h"
#include "egress/flow/flow.h"
#include "egress/flow/peek.h"
#include "egress/flow/protocol_detect.h"
#include "egress/flow/target.h"
#include "http/gate.h"
#include "http/message.h"
#include "policy/policy.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <uv.h>

#define TIMEOUT_MS 10000

/* -- the head ---------------------------------------------------------------------------------- */

/* The target of "CONNECT target HTTP/1.x" CR LF, copied; the header lines behind it mean nothing
 * here but that they are well formed enough to know where the head ends. */
static int authority_of(const char *head, size_t n, char *out, size_t size)
{
    static const char method[] = "CONNECT ";
    size_t skip = sizeof(method) - 1;
    const char *start = head + skip, *space = NULL;

    if (n > skip)
        space = memchr(start, ' ', n - skip);
    if (!space || memcmp(head, method, skip) != 0 || (size_t)(space - start) >= size ||
        memchr(start, 0, (size_t)(space - start)))
        return -EINVAL;
    memcpy(out, start, (size_t)(space - start));
    out[space - start] = '\0';
    return 0;
}

static void refuse_head(struct flow *f, const char *why)
{
    CLEANUP_BUF struct buf b;

    buf_init(&b, DENY_BODY_MAX);
    if (deny_body(f->sandbox, "bad_request", "none", why, &b) < 0)
        buf_clear(&b);
    connect_refuse(f, 400, "none", why, b.data, b.len);
}

static void on_authority(struct flow *f, const char *authority)
{
    char name[POLICY_NAME_MAX + 1];
    struct policy_address address = {0};
    uint16_t port;

    if (authority_parse(authority, name, &address, &port) < 0) {
        refuse_head(f, "CONNECT needs HOST:PORT");
        return;
    }
    if (flow_set_target(f, name[0] ? name : NULL, &address, port) == -ENOMEM)
        flow_reset(f);
    else
        flow_route(f);
}

static void on_head(struct flow *f, int events)
{
    static char data[CONNECT_HEAD_MAX]; /* one loop, used within this call */
    ssize_t n = peek_bytes(f->fd, data, sizeof(data), NULL), len;
    char authority[300];
    size_t scanned = 0;
    int more;

    if (n == -EAGAIN)
        return;
    len = n <= 0 ? -EPIPE : gate_head_end(data, (size_t)n, &scanned);
    if (len == 0 && (size_t)n < sizeof(data) && !(events & UV_DISCONNECT)) {
        more = (int)n + 1;
        (void)!setsockopt(f->fd, SOL_SOCKET, SO_RCVLOWAT, &more, sizeof(more));
        return;
    }
    flow_unwatch(f);
    more = 1;
    (void)!setsockopt(f->fd, SOL_SOCKET, SO_RCVLOWAT, &more, sizeof(more));
    if (n <= 0)
        flow_end(f);
    else if (len <= 0 || authority_of(data, (size_t)len, authority, sizeof(authority)) < 0)
        refuse_head(f, "a malformed CONNECT request");
    else if (recv(f->fd, data, (size_t)len, MSG_DONTWAIT) != len)
        flow_end(f);
    else
        on_authority(f, authority);
}

void connect_start(struct flow *f)
{
    f->kind = FLOW_CONNECT;
    f->via = FLOW_BY_CONNECT;
    f->state = FLOW_NEGOTIATING;
    if (flow_watch(f, UV_READABLE | UV_DISCONNECT, on_head, TIMEOUT_MS, flow_reset) < 0)
        flow_reset(f);
}

/* -- answers ----------------------------------------------------------------------------------- */

void connect_connected(struct flow *f)
{
    static const char ok[] = "HTTP/1.1 200 Connection established\r\n\r\n";

    if (send(f->fd, ok, sizeof(ok) - 1, MSG_DONTWAIT | MSG_NOSIGNAL) != (ssize_t)sizeof(ok) - 1)
        flow_reset(f);
    else
        protocol_detect_start(f);
}

void connect_refuse(struct flow *f, int status, const char *rule, const char *message,
                    const char *body, size_t n)
{
    char phrase[DENY_PHRASE_SIZE];
    CLEANUP_BUF struct buf b;

    deny_phrase(status, message, phrase);
    buf_init(&b, DENY_BODY_MAX + 1024);
    if (buf_printf(&b,
                   "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\n" DENY_HEADER
                   ": %s\r\n%sContent-Length: %zu\r\nConnection: close\r\n\r\n",
                   status, phrase, rule, status == 429 ? "Retry-After: " DENY_RETRY_S "\r\n" : "",
                   n) < 0 ||
        (n > 0 && buf_append(&b, body, n) < 0)) {
        flow_reset(f);
        return;
    }
    flow_unwatch(f);
    flow_answer(f, b.data, b.len);
}
