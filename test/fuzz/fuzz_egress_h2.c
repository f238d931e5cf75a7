/* HTTP/2 that is read, between a client and a server that may both say anything. The input is a script: each
 * step sends a frame that is well-formed but for its contents, or bytes as they are, to one of the two, changes
 * the rules, ends a side, or lets the line work. Checked: the secret does not come back to the client (heads,
 * bodies, trailers), no request leaves that was refused, the memory that a connection takes stays within
 * some times what it was sent, held memory is given back, and everything ends. */
#include <malloc.h>
#include <nghttp2/nghttp2.h>
#include <signal.h>
#include <sys/socket.h>

#include "../unit/held_bodies.h"
#include "egress/credential/response_secrets.h"
#include "egress/h2/h2.h"
#include "fuzz.h"

#define SECRET "Zq9-top-secret-0123456789"
#define SEEN   ((size_t)1 << 20)
#define BODIES 64u

static struct credentials *credentials;

struct script {
    const uint8_t *data;
    size_t left;
};

/* The input of one side: frames, taken apart as they come. */
struct ear {
    int fd;
    bool client;
    uint8_t bytes[SEEN];
    size_t len;
    nghttp2_hd_inflater *inflater;
    uint8_t block[SEEN];
    size_t block_len;
    struct buf bodies[BODIES];
};

static struct {
    uv_loop_t loop;
    struct h2s *all;
    struct h2 *conn;
    struct h2_share share;
    struct ear ears[2]; /* the client, the server */
    int ends;
    bool denies;
    size_t put_bytes;   /* to both sides */
    size_t start_bytes; /* that were allocated before the connection was there */
} w;

/* -- memory ------------------------------------------------------------------------------------ */

/* The memory that nghttp2 and a connection take that says nothing, and of heads in the making. */
#define HELD_BYTES ((size_t)512 * 1024)

size_t __sanitizer_get_current_allocated_bytes(void) __attribute__((weak));

static size_t allocated_bytes(void)
{
    struct mallinfo2 m;

    if (__sanitizer_get_current_allocated_bytes)
        return __sanitizer_get_current_allocated_bytes();
    m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* Allocated here for what came out. */
static size_t heard_bytes(void)
{
    size_t total = 0;

    for (size_t i = 0; i < BODIES; i++)
        total += w.ears[0].bodies[i].cap + w.ears[1].bodies[i].cap;
    return total;
}

/* Each byte that is put in may be there twice, as it came and as it goes on, and so may those of
 * heads, of which few bytes stand for many. */
static void check_memory(void)
{
    size_t now = allocated_bytes(), most = w.start_bytes + heard_bytes() + HELD_BYTES;

    FUZZ_CHECK(now <= most + 4 * w.put_bytes + 4 * w.share.head_bytes);
    FUZZ_CHECK(w.share.head_bytes <= H2_HEADS_BYTES);
}

/* -- rules ------------------------------------------------------------------------------------- */

static void make_credentials(void)
{
    static const enum credential_kind kinds[] = {CREDENTIAL_BEARER, CREDENTIAL_PLACEHOLDER,
                                                 CREDENTIAL_SIGV4};
    static const char *const names[] = {"bearer", "here", "aws"};

    credentials = calloc(1, sizeof(*credentials) + 4 * sizeof(struct credential));
    credentials->refs = 1;
    credentials->searched = response_secrets_cache_new();
    for (size_t i = 0; i < 3; i++) {
        struct credential *c = &credentials->list[credentials->count++];
        json_t *policy = json_loads(
            "{\"rules\":[{\"action\":\"allow\",\"domains\":[\"a.example\"]}]}", 0, NULL);
        struct err e;

        snprintf(c->name, sizeof(c->name), "%s", names[i]);
        c->kind = kinds[i];
        c->any_header = c->in_target = c->in_bodies = c->kind == CREDENTIAL_PLACEHOLDER;
        FUZZ_CHECK(policy_new(policy, &c->bound, &e) == ERR_OK);
        json_decref(policy);
        if (kinds[i] != CREDENTIAL_SIGV4) {
            c->value = strdup(SECRET);
        } else {
            c->access_key_id = strdup("AKIDEXAMPLE");
            c->secret_access_key = strdup(SECRET);
            c->region = strdup("r");
            c->service = strdup("s");
        }
    }
}

static bool is_denied(const struct http_head *h)
{
    return strncmp(h->path, "/deny", 5) == 0 || strcmp(h->method, "CONNECT") == 0;
}

static void refuse(struct h2_verdict *v)
{
    v->status = 403;
    v->rule = "rule";
    FUZZ_CHECK(buf_append_str(&v->body, "{\"error\":\"no\"}") == 0);
}

static void evaluate(void *arg, struct http_head *h, struct arena *a, struct h2_verdict *v)
{
    const struct inject_request r = {.credentials = credentials,
                                     .credential = strncmp(h->path, "/v1", 3) == 0    ? "bearer"
                                                   : strncmp(h->path, "/aws", 4) == 0 ? "aws"
                                                                                      : NULL,
                                     .named = UINT64_MAX,
                                     .host = "a.example",
                                     .port = 443,
                                     .transport = {.tls = true},
                                     .bodies = held_bodies_of_one()};
    struct err e;

    FUZZ_CHECK(h->method[0] && (h->path[0] == '/' || h->path[0] == '*') && h->host[0]);
    if (is_denied(h) || inject_decide(&r, h, a, &v->plan, &e) != ERR_OK)
        refuse(v);
}

static bool still(void *arg, const struct http_head *h, struct h2_verdict *v)
{
    if (!w.denies)
        return true;
    refuse(v);
    return false;
}

static void say(void *arg, const struct http_head *head, int status, const char *why,
                struct buf *body)
{
    FUZZ_CHECK(status >= 400 && status < 600 && why[0]);
    FUZZ_CHECK(buf_append_str(body, why) == 0);
}

static void on_end(void *arg)
{
    w.ends++;
    w.conn = NULL;
}

/* -- what comes out ---------------------------------------------------------------------------- */

static void check_field(const struct ear *e, const nghttp2_nv *nv)
{
    size_t n = strlen(SECRET);

    if (e->client) {
        FUZZ_CHECK(!memmem(nv->name, nv->namelen, SECRET, n));
        FUZZ_CHECK(!memmem(nv->value, nv->valuelen, SECRET, n));
    } else if (nv->namelen == 5 && memcmp(nv->name, ":path", 5) == 0) {
        FUZZ_CHECK(nv->valuelen < 5 || memcmp(nv->value, "/deny", 5) != 0);
    }
}

static void check_block(struct ear *e)
{
    const uint8_t *in = e->block;
    size_t left = e->block_len;
    int flags = 0;

    while (!(flags & NGHTTP2_HD_INFLATE_FINAL)) {
        nghttp2_nv nv;
        ssize_t n = nghttp2_hd_inflate_hd2(e->inflater, &nv, &flags, in, left, 1);

        FUZZ_CHECK(n >= 0);
        in += n;
        left -= (size_t)n;
        if (flags & NGHTTP2_HD_INFLATE_EMIT)
            check_field(e, &nv);
    }
    nghttp2_hd_inflate_end_headers(e->inflater);
    e->block_len = 0;
}

static void hear_frame(struct ear *e, uint8_t type, uint8_t flags, uint32_t id, const uint8_t *body,
                       size_t n)
{
    if (type == NGHTTP2_HEADERS || type == NGHTTP2_CONTINUATION) {
        FUZZ_CHECK(!(flags & (NGHTTP2_FLAG_PADDED | NGHTTP2_FLAG_PRIORITY)));
        FUZZ_CHECK(e->block_len + n <= SEEN);
        memcpy(e->block + e->block_len, body, n);
        e->block_len += n;
        if (flags & NGHTTP2_FLAG_END_HEADERS)
            check_block(e);
    } else if (type == NGHTTP2_DATA && e->client) {
        struct buf *b = &e->bodies[id / 2 % BODIES];

        FUZZ_CHECK(buf_append(b, body, n) == 0);
        FUZZ_CHECK(b->len == 0 || !memmem(b->data, b->len, SECRET, strlen(SECRET)));
    }
}

static void hear(struct ear *e)
{
    size_t at = 0;
    ssize_t n;

    while (e->fd >= 0 && e->len < SEEN &&
           (n = recv(e->fd, e->bytes + e->len, SEEN - e->len, MSG_DONTWAIT)) > 0)
        e->len += (size_t)n;
    if (!e->client && e->len >= NGHTTP2_CLIENT_MAGIC_LEN &&
        memcmp(e->bytes, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN) == 0)
        at = NGHTTP2_CLIENT_MAGIC_LEN;
    while (e->len - at >= 9) {
        const uint8_t *h = e->bytes + at;
        size_t length = (size_t)h[0] << 16 | (size_t)h[1] << 8 | h[2];
        uint32_t id = ((uint32_t)h[5] & 0x7f) << 24 | (uint32_t)h[6] << 16 | (uint32_t)h[7] << 8 |
                      h[8];

        if (e->len - at - 9 < length)
            break;
        hear_frame(e, h[3], h[4], id, h + 9, length);
        at += 9 + length;
    }
    memmove(e->bytes, e->bytes + at, e->len - at);
    e->len -= at;
}

static void turn(bool listen)
{
    for (int i = 0; i < 3; i++)
        uv_run(&w.loop, UV_RUN_NOWAIT);
    if (listen) {
        hear(&w.ears[0]);
        hear(&w.ears[1]);
    }
    check_memory();
}

/* -- what goes in ------------------------------------------------------------------------------ */

static uint8_t next(struct script *s)
{
    if (s->left == 0)
        return 0;
    s->left--;
    return *s->data++;
}

static void put(int side, const void *bytes, size_t n)
{
    ssize_t sent = -1;

    if (w.ears[side].fd >= 0)
        sent = send(w.ears[side].fd, bytes, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    w.put_bytes += sent > 0 ? (size_t)sent : 0;
}

static void put_frame(int side, uint8_t type, uint8_t flags, uint32_t id, const void *body,
                      size_t n)
{
    uint8_t f[9 + 16384];

    memcpy(f,
           (uint8_t[]){(uint8_t)(n >> 16), (uint8_t)(n >> 8), (uint8_t)n, type, flags,
                       (uint8_t)(id >> 24), (uint8_t)(id >> 16), (uint8_t)(id >> 8), (uint8_t)id},
           9);
    if (n > 0)
        memcpy(f + 9, body, n);
    put(side, f, 9 + n);
}

/* A literal that is not indexed: RFC 7541 6.2.2. */
static size_t put_field(uint8_t *out, const char *name, const void *value, size_t n)
{
    size_t len = strlen(name);

    out[0] = 0;
    out[1] = (uint8_t)len;
    memcpy(out + 2, name, len);
    out[2 + len] = (uint8_t)n;
    memcpy(out + 3 + len, value, n);
    return 3 + len + n;
}

static size_t put_word(uint8_t *out, const char *name, const char *value)
{
    return put_field(out, name, value, strlen(value));
}

/* Up to so many bytes of the script. */
static size_t take(struct script *s, size_t max, const uint8_t **out)
{
    size_t n = next(s) % (max + 1);

    n = n < s->left ? n : s->left;
    *out = s->data;
    s->data += n;
    s->left -= n;
    return n;
}

static size_t put_some_field(struct script *s, uint8_t *out)
{
    static const char *const names[] = {"x-a",
                                        "cookie",
                                        "content-length",
                                        "te",
                                        "authorization",
                                        "content-type",
                                        "expect",
                                        "host",
                                        "content-encoding",
                                        "x-bad ",
                                        "grpc-encoding",
                                        "transfer-encoding",
                                        ":path",
                                        "accept-encoding",
                                        "x-key",
                                        "x"};
    static const char *const values[] = {
        "cay-secret:here", "5",    "trailers", "application/json", "text/plain",
        "100-continue",    SECRET, "gzip"};
    const char *name = names[next(s) % 16];
    uint8_t choice = next(s);
    const uint8_t *bytes;
    size_t n;

    if (choice < 128)
        return put_word(out, name, values[choice % 8]);
    n = take(s, 100, &bytes);
    return put_field(out, name, bytes, n);
}

static void request(struct script *s)
{
    static const char *const methods[] = {"GET",     "POST", "CONNECT", "HEAD",
                                          "OPTIONS", "PUT",  "",        "x y"};
    static const char *const paths[] = {
        "/v1/x", "/deny", "/other?k=cay-secret:here", "/aws", "*", "/", "no", "/v1/../deny"};
    static const char *const hosts[] = {"a.example", "a.example:443", "b.example", "a b"};
    uint8_t block[2048], shape = next(s), what = next(s), flags = NGHTTP2_FLAG_END_HEADERS;
    uint32_t id = (uint32_t)(next(s) % 32) * 2 + 1;
    size_t n = 0;

    n += put_word(block + n, ":method", methods[what & 7]);
    if (!(shape & 0x10))
        n += put_word(block + n, ":scheme", shape & 0x20 ? "http" : "https");
    if (!(shape & 0x40))
        n += put_word(block + n, ":authority", hosts[shape & 3]);
    n += put_word(block + n, ":path", paths[what >> 3 & 7]);
    for (int i = what >> 6; i > 0; i--)
        n += put_some_field(s, block + n);
    if (shape & 4)
        flags |= NGHTTP2_FLAG_END_STREAM;
    put_frame(0, NGHTTP2_HEADERS, flags, id, block, n);
}

static void response(struct script *s, int side)
{
    static const char *const statuses[] = {"200", "100", "103", "204", "304", "500", "101", "abc"};
    uint8_t block[2048], shape = next(s), flags = NGHTTP2_FLAG_END_HEADERS;
    uint32_t id = (uint32_t)(next(s) % 32) * 2 + 1;
    size_t n = 0;

    if (!(shape & 0x80))
        n += put_word(block + n, ":status", statuses[shape & 7]);
    for (int i = shape >> 4 & 3; i > 0; i--)
        n += put_some_field(s, block + n);
    if (shape & 8)
        flags |= NGHTTP2_FLAG_END_STREAM;
    put_frame(side, NGHTTP2_HEADERS, flags, id, block, n);
}

static void data(struct script *s, int side)
{
    uint8_t body[16384], shape = next(s);
    uint32_t id = (uint32_t)(next(s) % 32) * 2 + 1;
    size_t n = 0, at = shape >> 4;
    const uint8_t *bytes;

    if (shape & 2) { /* a piece of the secret, from `at` on */
        n = strlen(SECRET) - at;
        n = shape & 4 ? 1 + n / 2 : n;
        memcpy(body, &SECRET[at], n);
    } else if (shape & 4) {
        n = (size_t)next(s) * 64;
        memset(body, 'x', n);
    } else {
        n = take(s, 255, &bytes);
        memcpy(body, bytes, n);
    }
    put_frame(side, NGHTTP2_DATA, shape & 1, id, body, n);
}

static void control(struct script *s, int side)
{
    uint8_t what = next(s), body[64] = {0};
    uint32_t id = (uint32_t)(next(s) % 32) * 2 + 1, times = what & 0x80 ? 60 : 1;
    const uint8_t *bytes;
    size_t n = take(s, 60, &bytes);

    memcpy(body, bytes, n);
    for (; times > 0; times--)
        switch (what & 7) {
        case 0: put_frame(side, NGHTTP2_RST_STREAM, 0, id, body, 4); break;
        case 1: put_frame(side, NGHTTP2_WINDOW_UPDATE, 0, what & 8 ? id : 0, body, 4); break;
        case 2: put_frame(side, NGHTTP2_PING, what & 8 ? 1 : 0, 0, body, 8); break;
        case 3: put_frame(side, NGHTTP2_SETTINGS, 0, 0, body, n / 6 * 6); break;
        case 4: put_frame(side, NGHTTP2_SETTINGS, 1, 0, body, 0); break;
        case 5: put_frame(side, NGHTTP2_GOAWAY, 0, 0, body, 8); break;
        case 6: put_frame(side, NGHTTP2_CONTINUATION, what & 8 ? 4 : 0, id, body, n); break;
        default: put_frame(side, (uint8_t)(what >> 3), body[0], id, body, n);
        }
}

/* A head that expands to many times its bytes: a field is put into the table, and meant again and
 * again. */
static void expand(struct script *s, int side)
{
    static const uint8_t field[] = {0x40, 3, 'x', '-', 'b', 0x7f, 0xa1, 30}; /* of 4000 bytes */
    uint8_t block[8192];
    uint32_t id = (uint32_t)(next(s) % 32) * 2 + 1;
    size_t n = 0, again = next(s);

    if (side == 0) {
        n += put_word(block + n, ":method", "GET");
        n += put_word(block + n, ":scheme", "https");
        n += put_word(block + n, ":authority", "a.example");
        n += put_word(block + n, ":path", "/other");
    } else {
        n += put_word(block + n, ":status", again & 1 ? "103" : "200");
    }
    memcpy(block + n, field, sizeof(field));
    memset(block + n + sizeof(field), 'v', 4000);
    n += sizeof(field) + 4000;
    memset(block + n, 0xbe, again);
    put_frame(side, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, id, block, n + again);
}

static void raw(struct script *s, int side)
{
    const uint8_t *bytes;
    size_t n = take(s, 255, &bytes);

    put(side, bytes, n);
}

/* Some are left for the next time, and end meanwhile or do not. */
static void recheck(struct script *s)
{
    unsigned how = next(s), most = how >> 1;

    w.denies = how & 1;
    if (!w.conn)
        return;
    h2_recheck_all(w.conn);
    for (unsigned i = 0; (most == 0 || i < most) && h2_recheck(w.conn, still); i++)
        ;
}

static void hang_up(struct script *s, int side)
{
    struct ear *e = &w.ears[side];

    if (e->fd < 0)
        return;
    if (next(s) & 1) {
        shutdown(e->fd, SHUT_WR);
    } else {
        close(e->fd);
        e->fd = -1;
    }
}

static void step(struct script *s)
{
    uint8_t op = next(s);

    switch (op & 15) {
    case 0:
    case 1: request(s); break;
    case 2: response(s, 1); break;
    case 3: data(s, 0); break;
    case 4:
    case 5: data(s, 1); break;
    case 6: control(s, 0); break;
    case 7: control(s, 1); break;
    case 8: raw(s, 0); break;
    case 9: raw(s, 1); break;
    case 10: recheck(s); break;
    case 11: hang_up(s, op >> 7); break;
    case 12: response(s, 0); break; /* a request's trailers, or nonsense */
    case 13: expand(s, op >> 7); break;
    default: break;
    }
    if (!(op & 0x10))
        turn(!(op & 0x20));
}

/* -- one run ----------------------------------------------------------------------------------- */

static void open_ear(struct ear *e, bool client, struct tls_endpoint *end)
{
    int pair[2], size = 1 << 20;

    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof(size));
    e->fd = pair[0];
    *end = (struct tls_endpoint){.fd = pair[1]};
    e->client = client;
    e->len = e->block_len = 0;
    FUZZ_CHECK(nghttp2_hd_inflate_new(&e->inflater) == 0);
    for (size_t i = 0; i < BODIES; i++)
        buf_init(&e->bodies[i], 8 * SEEN);
}

static void close_ear(struct ear *e)
{
    if (e->fd >= 0)
        close(e->fd);
    nghttp2_hd_inflate_del(e->inflater);
    for (size_t i = 0; i < BODIES; i++)
        buf_free(&e->bodies[i]);
}

static void run(const uint8_t *bytes, size_t size)
{
    struct script s = {bytes + 1, size - 1};
    struct h2_options o = {.share = &w.share, .evaluate = evaluate, .say = say, .on_end = on_end};

    FUZZ_CHECK(h2s_new(&w.loop, &w.all) == 0);
    open_ear(&w.ears[0], true, &o.client);
    open_ear(&w.ears[1], false, &o.server);
    if (bytes[0] & 1)
        put(0, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
    if (bytes[0] & 2)
        put_frame(0, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
    if (bytes[0] & 4)
        put_frame(1, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
    w.start_bytes = allocated_bytes();
    FUZZ_CHECK(h2_start(w.all, &o, &w.conn) == 0);
    turn(true);
    for (int i = 0; i < 400 && s.left > 0; i++)
        step(&s);
    turn(true);
    if (w.conn && bytes[0] & 8) {
        h2_close(w.conn);
        w.conn = NULL;
    }
    FUZZ_CHECK(w.ends <= 1);
    h2s_free(w.all);
    close_ear(&w.ears[0]);
    close_ear(&w.ears[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    signal(SIGPIPE, SIG_IGN);
    if (size < 2 || size > 16000 || memmem(bytes, size, "Zq9", 3))
        return 0;
    if (!credentials)
        make_credentials();
    w.share = (struct h2_share){.conns = 1};
    w.ends = 0;
    w.put_bytes = 0;
    w.denies = false;
    w.conn = NULL;
    FUZZ_CHECK(uv_loop_init(&w.loop) == 0);
    run(bytes, size);
    for (int i = 0; i < 8; i++)
        uv_run(&w.loop, UV_RUN_NOWAIT);
    FUZZ_CHECK(w.share.held_bytes == 0 && w.share.head_bytes == 0 && w.share.conns == 0);
    FUZZ_CHECK(uv_loop_close(&w.loop) == 0);
    return 0;
}
