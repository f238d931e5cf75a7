/* SOCKS5 (RFC 1928) on a sandbox's listener: no authentication, CONNECT only, with a name or an
 * address. flow.c calls socks_start when the first byte is 5. Order: greeting, its answer,
 * request, then flow_route decides and dials; socks_connected answers and detection begins on
 * what follows, socks_refuse answers with the reply code and ends the flow. A message is peeked
 * at until it is whole, within SOCKS_MESSAGE_MAX and TIMEOUT_MS, so that no byte of what comes
 * behind it is taken. The bound address is never told: the reply has zeros. */

#include "egress/flow/socks.h"

#include "base/util.h"
#include "egress/flow/flow.h"
#include "egress/flow/peek.h"
#include "egress/flow/protocol_detect.h"
#include "egress/flow/target.h"
#include "policy/policy.h"

#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <uv.h>

enum { VERSION = 5, NO_AUTH = 0, NONE_ACCEPTABLE = 0xff, CMD_CONNECT = 1 };
enum { TYPE_V4 = 1, TYPE_NAME = 3, TYPE_V6 = 4 };

#define TIMEOUT_MS 10000

/* -- parsing ----------------------------------------------------------------------------------- */

ssize_t socks_parse_greeting(const unsigned char *data, size_t n, bool *accepts)
{
    if (n >= 1 && data[0] != VERSION)
        return -EPROTO;
    if (n < 2 || n < 2u + data[1])
        return 0;
    *accepts = memchr(data + 2, NO_AUTH, data[1]) != NULL;
    return 2 + data[1];
}

/* How long the request is, from its fixed part; 0 when that is not whole yet. */
static ssize_t request_length(const unsigned char *data, size_t n)
{
    if (n < 5)
        return 0;
    switch (data[3]) {
    case TYPE_V4: return 4 + 4 + 2;
    case TYPE_V6: return 4 + 16 + 2;
    case TYPE_NAME: return 4 + 1 + data[4] + 2;
    default: return -EPROTO;
    }
}

static bool take_name(const unsigned char *p, size_t n, char name[static POLICY_NAME_MAX + 1],
                      struct policy_address *address)
{
    char text[256];

    if (n == 0 || memchr(p, 0, n))
        return false;
    memcpy(text, p, n);
    text[n] = '\0';
    if (policy_address_parse(text, address) == 0) {
        name[0] = '\0';
        return true;
    }
    return policy_name_normalize(text, name) == 0;
}

static void take_v4(const unsigned char *p, struct policy_address *out)
{
    memset(out, 0, sizeof(*out));
    out->in6.s6_addr[10] = out->in6.s6_addr[11] = 0xff;
    memcpy(out->in6.s6_addr + 12, p, 4);
}

ssize_t socks_parse_request(const unsigned char *data, size_t n,
                            char name[static POLICY_NAME_MAX + 1], struct policy_address *address,
                            uint16_t *port, enum socks_reply *reply)
{
    ssize_t len;

    if (n >= 1 && data[0] != VERSION)
        return -EPROTO;
    if (n >= 4 && data[3] != TYPE_V4 && data[3] != TYPE_V6 && data[3] != TYPE_NAME) {
        *reply = SOCKS_NO_ADDRESS;
        return (
            ssize_t)n; /* later bytes cannot be told apart: the connection ends with the answer */
    }
    len = request_length(data, n);
    if (len <= 0 || n < (size_t)len)
        return len < 0 ? len : 0;
    *reply = SOCKS_DONE;
    name[0] = '\0';
    if (data[3] == TYPE_V4)
        take_v4(data + 4, address);
    else if (data[3] == TYPE_V6)
        memcpy(address->in6.s6_addr, data + 4, 16);
    else if (!take_name(data + 5, data[4], name, address))
        *reply = SOCKS_FAILED;
    *port = (uint16_t)(data[len - 2] << 8 | data[len - 1]);
    if (data[1] != CMD_CONNECT)
        *reply = SOCKS_NO_COMMAND;
    else if (*port == 0)
        *reply = SOCKS_FAILED;
    return len;
}

/* -- the conversation -------------------------------------------------------------------------- */

/* Takes n bytes that were peeked at. */
static bool consume(struct flow *f, size_t n)
{
    unsigned char ignored[SOCKS_MESSAGE_MAX + 1];

    return recv(f->fd, ignored, MIN(n, sizeof(ignored)), MSG_DONTWAIT) == (ssize_t)n;
}

static void wait_for(struct flow *f, size_t have)
{
    int more = (int)have + 1;

    (void)!setsockopt(f->fd, SOL_SOCKET, SO_RCVLOWAT, &more, sizeof(more));
}

static bool say(struct flow *f, const void *bytes, size_t n)
{
    wait_for(f, 0);
    return send(f->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

/* The bound address is not told to the sandbox: zeros, as many proxies answer. */
static void reply_bytes(enum socks_reply reply, unsigned char out[10])
{
    memcpy(out, (unsigned char[]){VERSION, reply, 0, TYPE_V4, 0, 0, 0, 0, 0, 0}, 10);
}

void socks_refuse(struct flow *f, enum socks_reply reply)
{
    unsigned char bytes[10];

    reply_bytes(reply, bytes);
    flow_unwatch(f);
    flow_answer(f, bytes, sizeof(bytes));
}

void socks_connected(struct flow *f)
{
    unsigned char bytes[10];

    reply_bytes(SOCKS_DONE, bytes);
    if (!say(f, bytes, sizeof(bytes))) {
        flow_reset(f);
        return;
    }
    protocol_detect_start(f);
}

static ssize_t peek(struct flow *f, unsigned char *data, size_t size)
{
    ssize_t n = peek_bytes(f->fd, data, size, NULL);

    return n == 0 ? -EPIPE : n;
}

/* Of the n bytes that are there, len are a message (0: it is not whole, negative: it is none).
 * False: it is waited for more, or the flow has ended. */
static bool take_message(struct flow *f, ssize_t n, ssize_t len, int events)
{
    if (len == 0 && !(events & UV_DISCONNECT)) {
        wait_for(f, (size_t)n);
        return false;
    }
    if (len <= 0 || !consume(f, (size_t)len)) {
        flow_end(f);
        return false;
    }
    return true;
}

static void on_request(struct flow *f, int events)
{
    unsigned char data[SOCKS_MESSAGE_MAX];
    char name[POLICY_NAME_MAX + 1] = "";
    struct policy_address address = {0};
    enum socks_reply reply = SOCKS_DONE;
    uint16_t port = 0;
    ssize_t n = peek(f, data, sizeof(data)), len;

    if (n == -EAGAIN)
        return;
    len = n < 0 ? n : socks_parse_request(data, (size_t)n, name, &address, &port, &reply);
    if (!take_message(f, n, len, events))
        return;
    if (reply != SOCKS_DONE) {
        socks_refuse(f, reply);
        return;
    }
    flow_unwatch(f);
    wait_for(f, 0);
    if (flow_set_target(f, name[0] ? name : NULL, &address, port) == -ENOMEM)
        flow_reset(f);
    else
        flow_route(f);
}

static void on_greeting(struct flow *f, int events)
{
    static const unsigned char yes[] = {VERSION, NO_AUTH}, no[] = {VERSION, NONE_ACCEPTABLE};
    unsigned char data[SOCKS_MESSAGE_MAX];
    ssize_t n = peek(f, data, sizeof(data)), len;
    bool accepts = false;

    if (n == -EAGAIN)
        return;
    len = n < 0 ? n : socks_parse_greeting(data, (size_t)n, &accepts);
    if (!take_message(f, n, len, events))
        return;
    if (!accepts) {
        flow_unwatch(f);
        flow_answer(f, no, sizeof(no));
        return;
    }
    if (!say(f, yes, sizeof(yes)) ||
        flow_watch(f, UV_READABLE | UV_DISCONNECT, on_request, TIMEOUT_MS, flow_reset) < 0)
        flow_reset(f);
}

void socks_start(struct flow *f)
{
    f->kind = FLOW_SOCKS;
    f->via = FLOW_BY_SOCKS;
    f->state = FLOW_NEGOTIATING;
    if (flow_watch(f, UV_READABLE | UV_DISCONNECT, on_greeting, TIMEOUT_MS, flow_reset) < 0)
        flow_reset(f);
}
