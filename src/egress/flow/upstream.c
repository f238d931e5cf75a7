/* Two things: the setting, read once at the start (or from a sandbox's own), and the
 * conversation on a socket that dial.c has connected: messages are made ahead, each answer is
 * awaited and read to its last byte and not beyond, then the socket is given back. Its time is
 * limited; it ends once, with the descriptor or the reason, and may be cancelled before. */

#include "egress/flow/upstream.h"

#include "base/base64.h"
#include "base/buf.h"
#include "base/err.h"
#include "base/util.h"
#include "egress/flow/authority.h"
#include "egress/flow/egress.h"
#include "egress/flow/peek.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/target.h"
#include "http/gate.h"
#include "policy/policy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <jansson.h>
#include <string.h>
#include <sys/socket.h>
#include <uv.h>

#define CREDENTIAL_MAX 255u /* RFC 1929 */
#define REPLY_MAX      4096u

enum protocol { BY_SOCKS, BY_SOCKS_NAME, BY_CONNECT };

struct upstream {
    enum protocol protocol;
    struct policy_address address;
    uint16_t port;
    char user[CREDENTIAL_MAX + 1], password[CREDENTIAL_MAX + 1];
};

/* -- the setting ------------------------------------------------------------------------------- */

static const struct {
    const char *scheme;
    enum protocol protocol;
} schemes[] = {{"socks5://", BY_SOCKS}, {"socks5h://", BY_SOCKS_NAME}, {"http://", BY_CONNECT}};

static enum err_code take_address(const char *text, struct upstream *u, struct err *e)
{
    char name[POLICY_NAME_MAX + 1];

    if (authority_parse(text, name, &u->address, &u->port) < 0 || name[0])
        return err_set(e, ERR_INVALID,
                       "upstream proxy: found \"%.100s\", allowed is an address in digits and a "
                       "port, as 192.0.2.1:1080",
                       text);
    return ERR_OK;
}

/* Takes USER:PASSWORD@ off the front of text, when it is there, and returns the rest. */
static const char *take_user(const char *text, struct upstream *u)
{
    const char *at = strrchr(text, '@'),
               *colon = at ? memchr(text, ':', (size_t)(at - text)) : NULL;

    if (!at)
        return text;
    if (!colon || (size_t)(colon - text) > CREDENTIAL_MAX ||
        (size_t)(at - colon - 1) > CREDENTIAL_MAX)
        return NULL;
    memcpy(u->user, text, (size_t)(colon - text));
    memcpy(u->password, colon + 1, (size_t)(at - colon - 1));
    return at + 1;
}

enum err_code upstream_parse(const char *text, struct upstream **out, struct err *e)
{
    CLEANUP_FREE struct upstream *u = calloc(1, sizeof(*u));
    const char *rest = NULL;

    if (!u)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    for (size_t i = 0; i < ARRAY_SIZE(schemes) && !rest; i++)
        if (strncmp(text, schemes[i].scheme, strlen(schemes[i].scheme)) == 0) {
            u->protocol = schemes[i].protocol;
            rest = text + strlen(schemes[i].scheme);
        }
    rest = rest ? take_user(rest, u) : NULL;
    if (!rest) /* the text is not shown: it may hold a password */
        return err_set(e, ERR_INVALID,
                       "upstream proxy: allowed are socks5://, socks5h:// and http://, then "
                       "[USER:PASSWORD@]ADDRESS:PORT");
    if (take_address(rest, u, e) != ERR_OK)
        return e->code;
    *out = TAKE_PTR(u);
    return ERR_OK;
}

static bool take_credential(const json_t *o, const char *key, char *out)
{
    const char *text = json_string_value(json_object_get(o, key));

    if (!text)
        return true;
    if (strlen(text) > CREDENTIAL_MAX)
        return false;
    memcpy(out, text, strlen(text) + 1);
    return true;
}

enum err_code upstream_from_json(const json_t *json, struct upstream **out, struct err *e)
{
    const char *address = json_string_value(json_object_get(json, "address"));
    struct upstream u = {.protocol = BY_SOCKS};

    if (!address)
        return err_set(e, ERR_INVALID, "proxy.address: missing");
    if (!take_credential(json, "username", u.user) ||
        !take_credential(json, "password", u.password))
        return err_set(e, ERR_INVALID, "proxy: username and password have at most %u bytes",
                       CREDENTIAL_MAX);
    if (take_address(address, &u, e) != ERR_OK)
        return e->code;
    *out = malloc(sizeof(u));
    if (!*out)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    **out = u;
    explicit_bzero(&u, sizeof(u));
    return ERR_OK;
}

void upstream_free(struct upstream *u)
{
    if (u)
        explicit_bzero(u, sizeof(*u));
    free(u);
}

const struct policy_address *upstream_address(const struct upstream *u)
{
    return &u->address;
}

uint16_t upstream_port(const struct upstream *u)
{
    return u->port;
}

bool upstream_resolves(const struct upstream *u)
{
    return u->protocol != BY_SOCKS;
}

/* -- the conversation -------------------------------------------------------------------------- */

enum step { WAIT_METHOD, WAIT_AUTH, WAIT_REPLY, WAIT_HEAD };

/* The messages of both sides are made at the start: a configuration that changes meanwhile is for
 * the next one. Kept in a list of struct egress; there are few at a time. */
struct handshake {
    uv_poll_t poll;
    struct handshake *next;
    struct egress *egress;
    uint64_t id, owner;
    void (*cb)(struct egress *eg, uint64_t owner, int fd, const struct err *why);
    int fd;
    enum step step;
    struct buf auth, request; /* to be said in those steps */
};

static void on_closed(uv_handle_t *h)
{
    struct handshake *s = h->data;

    if (s->auth.data)
        explicit_bzero(s->auth.data, s->auth.len);
    buf_free(&s->auth);
    buf_free(&s->request);
    free(s);
}

static void finish(struct handshake *s, enum err_code code, const char *why)
{
    struct handshake **p = &s->egress->handshakes;
    struct err e = {0};
    int fd = s->fd;

    while (*p != s)
        p = &(*p)->next;
    *p = s->next;
    if (code != ERR_OK) {
        close(fd);
        fd = -1;
        err_set(&e, code, "the upstream proxy %s", why);
    }
    uv_close((uv_handle_t *)&s->poll, on_closed);
    if (s->cb)
        s->cb(s->egress, s->owner, fd, &e);
}

static bool say(struct handshake *s, const void *bytes, size_t n)
{
    return send(s->fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)n;
}

/* How much of what is there belongs to the answer that is awaited: not a byte more is read, since
 * what follows it is the server's. 0: more is needed, -EPROTO. */
static ssize_t answer_length(const struct handshake *s, const unsigned char *p, size_t n)
{
    size_t scanned = 0, need;

    if (s->step == WAIT_HEAD)
        return gate_head_end((const char *)p, n, &scanned);
    if (s->step == WAIT_METHOD || s->step == WAIT_AUTH)
        return n >= 2 ? 2 : 0;
    if (n < 5)
        return 0;
    need = p[3] == 1 ? 10u : p[3] == 4 ? 22u : p[3] == 3 ? 7u + p[4] : 0;
    if (need == 0)
        return -EPROTO;
    return n >= need ? (ssize_t)need : 0;
}

static void go_on(struct handshake *s, const unsigned char *p, size_t n)
{
    const struct buf *next = &s->request;

    switch (s->step) {
    case WAIT_METHOD:
        if (p[0] != 5 || p[1] == 0xff || (p[1] != 0 && !(p[1] == 2 && s->auth.len > 0))) {
            finish(s, ERR_UNAVAILABLE, "does not take our way to log in");
            return;
        }
        s->step = p[1] == 2 ? WAIT_AUTH : WAIT_REPLY;
        next = p[1] == 2 ? &s->auth : &s->request;
        break;
    case WAIT_AUTH:
        if (p[1] != 0) {
            finish(s, ERR_UNAVAILABLE, "refuses user and password");
            return;
        }
        s->step = WAIT_REPLY;
        break;
    case WAIT_REPLY:
        finish(s, p[1] == 0 ? ERR_OK : ERR_UNAVAILABLE, "cannot connect there");
        return;
    case WAIT_HEAD:
        finish(s, n > 12 && memcmp(p, "HTTP/1.", 7) == 0 && p[9] == '2' ? ERR_OK : ERR_UNAVAILABLE,
               "refuses to connect there");
        return;
    }
    if (!say(s, next->data, next->len))
        finish(s, ERR_UNAVAILABLE, "does not listen");
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    struct handshake *s = poll->data;
    unsigned char data[REPLY_MAX];
    ssize_t n = peek_bytes(s->fd, data, sizeof(data), NULL), len;
    int more;

    if (n == -EAGAIN)
        return;
    len = n <= 0 ? -EPROTO : answer_length(s, data, (size_t)n);
    more = len == 0 ? (int)n + 1 : 1;
    (void)!setsockopt(s->fd, SOL_SOCKET, SO_RCVLOWAT, &more, sizeof(more));
    if (len == 0 && (size_t)n < sizeof(data) && !(events & UV_DISCONNECT))
        return;
    if (len <= 0 || recv(s->fd, data, (size_t)len, MSG_DONTWAIT) != len)
        finish(s, ERR_UNAVAILABLE, "answers nothing sensible");
    else
        go_on(s, data, (size_t)len);
}

/* RFC 1928 4 */
static int socks_request(const struct target *t, struct buf *b)
{
    unsigned char head[] = {5, 1, 0, 1},
                  port[] = {(unsigned char)(t->port >> 8), (unsigned char)t->port};
    bool v4 = IN6_IS_ADDR_V4MAPPED(&t->address.in6);
    unsigned char len = t->name ? (unsigned char)strlen(t->name) : 0;
    int rc;

    head[3] = t->name ? 3 : v4 ? 1 : 4;
    rc = buf_append(b, head, sizeof(head));
    if (rc == 0 && t->name)
        rc = buf_append(b, &len, 1);
    if (rc == 0)
        rc = t->name ? buf_append(b, t->name, len)
                     : buf_append(b, t->address.in6.s6_addr + (v4 ? 12 : 0), v4 ? 4 : 16);
    return rc == 0 ? buf_append(b, port, sizeof(port)) : rc;
}

static int socks_auth(const struct upstream *u, struct buf *b)
{
    unsigned char version = 1, user = (unsigned char)strlen(u->user),
                  password = (unsigned char)strlen(u->password);
    int rc = buf_append(b, &version, 1);

    if (rc == 0)
        rc = buf_append(b, &user, 1);
    if (rc == 0)
        rc = buf_append(b, u->user, user);
    if (rc == 0)
        rc = buf_append(b, &password, 1);
    return rc == 0 ? buf_append(b, u->password, password) : rc;
}

static int connect_request(const struct upstream *u, const struct target *t, struct buf *b)
{
    char address[INET6_ADDRSTRLEN], where[POLICY_NAME_MAX + 16], both[2 * CREDENTIAL_MAX + 2];
    char encoded[(2 * CREDENTIAL_MAX + 2) * 4 / 3 + 8];
    int rc;

    policy_address_format(&t->address, address);
    snprintf(where, sizeof(where),
             t->name || IN6_IS_ADDR_V4MAPPED(&t->address.in6) ? "%s:%u" : "[%s]:%u",
             t->name ? t->name : address, t->port);
    rc = buf_printf(b, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n", where, where);
    if (rc == 0 && u->user[0]) {
        snprintf(both, sizeof(both), "%s:%s", u->user, u->password);
        base64_encode(both, strlen(both), encoded);
        rc = buf_printf(b, "Proxy-Authorization: Basic %s\r\n", encoded);
        explicit_bzero(both, sizeof(both));
        explicit_bzero(encoded, sizeof(encoded));
    }
    return rc == 0 ? buf_append_str(b, "\r\n") : rc;
}

static bool begin(struct handshake *s, const struct upstream *u, const struct target *t)
{
    static const unsigned char plain[] = {5, 1, 0}, both[] = {5, 2, 0, 2};

    if (u->protocol == BY_CONNECT) {
        s->step = WAIT_HEAD;
        return connect_request(u, t, &s->request) == 0 && say(s, s->request.data, s->request.len);
    }
    s->step = WAIT_METHOD;
    if (socks_request(t, &s->request) < 0 || (u->user[0] && socks_auth(u, &s->auth) < 0))
        return false;
    return u->user[0] ? say(s, both, sizeof(both)) : say(s, plain, sizeof(plain));
}

uint64_t upstream_handshake(struct egress *eg, const struct upstream *u, int fd,
                            const struct target *t, uint64_t owner,
                            void (*cb)(struct egress *eg, uint64_t owner, int fd,
                                       const struct err *why))
{
    struct handshake *s = calloc(1, sizeof(*s));

    if (!s || uv_poll_init(eg->loop, &s->poll, fd) < 0) {
        free(s);
        close(fd);
        return 0;
    }
    buf_init(&s->auth, 1024);
    buf_init(&s->request, 4096);
    s->poll.data = s;
    s->egress = eg;
    s->id = ++eg->last_handshake;
    s->owner = owner;
    s->cb = cb;
    s->fd = fd;
    s->next = eg->handshakes;
    eg->handshakes = s;
    /* Where the request cannot be sent the connection has failed: the poll reports it. */
    if (!begin(s, u, t))
        shutdown(fd, SHUT_RDWR);
    uv_poll_start(&s->poll, UV_READABLE | UV_DISCONNECT, on_readable);
    return s->id;
}

void upstream_cancel(struct egress *eg, uint64_t id)
{
    struct handshake *s = eg->handshakes;

    while (s && s->id != id)
        s = s->next;
    if (!s)
        return;
    s->cb = NULL;
    finish(s, ERR_CANCELED, "");
}
