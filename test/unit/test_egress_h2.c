/* HTTP/2 that is read, against nghttp2's own client and server in the same thread, over plain sockets. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "egress/credential/response_secrets.h"
#include "egress/h2/h2.h"
#include "egress/h2/h2_head.h"
#include "egress/tls/turns.h"
#include "held_bodies.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define SECRET    "Zq9-top-secret-0123456789"
#define COVER     "[redacted]***************" /* as long */
#define STREAMS   1024
#define TURNS     4000
#define BIG_BYTES ((size_t)8 * 1000 * 1000)

/* The state of a stream as a peer knows it. */
struct told {
    int status, heads;
    bool ended, closed;
    uint32_t code;
    size_t bytes;
    char text[256], path[64], authorization[64], trailer[64], rule[32], type[32];
};

struct peer {
    int fd;
    nghttp2_session *session;
    bool client, stalled; /* stalled: reads nothing */
    bool silent;          /* a server that answers only when a test says so */
    size_t left;          /* of a body to send */
    const char *said;     /* or this one */
    bool with_trailer;
    uint32_t goaway;
    bool gone, ended;
    struct told of[STREAMS];
};

static struct {
    uv_loop_t loop;
    struct h2s *all;
    struct held_answers *answers;
    struct h2 *conn;
    struct h2_share share;
    struct peer client, server;
    struct credentials *credentials;
    const char *credential;
    int evaluated, ends;
    bool denies, lost;
    uint64_t limit, moved; /* bytes of the client's both ways: a limit of 0 is none */
} w;

static struct told *told(struct peer *p, int32_t id)
{
    assert_in_range(id, 0, 2 * STREAMS - 1);
    return &p->of[id / 2];
}

/* -- rules ------------------------------------------------------------------------------------- */

static void refuse(struct h2_verdict *v, int status)
{
    v->status = status;
    v->rule = status == 403 ? "no-secrets" : NULL;
    assert_int_equal(buf_append_str(&v->body, "{\"error\":\"no\"}"), 0);
}

static void evaluate(void *arg, struct http_head *h, struct arena *a, struct h2_verdict *v)
{
    const struct inject_request r = {.credentials = w.credentials,
                                     .credential = w.credential,
                                     .named = UINT64_MAX,
                                     .host = "a.example",
                                     .port = 443,
                                     .transport = {.tls = true},
                                     .bodies = held_bodies_of_one()};
    struct err e;

    w.evaluated++;
    if (w.lost)
        refuse(v, 502);
    else if (strncmp(h->path, "/deny", 5) == 0)
        refuse(v, 403);
    else
        assert_int_equal(inject_decide(&r, h, a, &v->plan, &e), ERR_OK);
}

static bool still(void *arg, const struct http_head *h, struct h2_verdict *v)
{
    if (strcmp(h->path, "/kept") == 0)
        return true;
    refuse(v, 403);
    return false;
}

static void say(void *arg, const struct http_head *head, int status, const char *why,
                struct buf *body)
{
    assert_int_equal(buf_append_str(body, why), 0);
}

static void on_end(void *arg)
{
    w.ends++;
    w.conn = NULL;
}

static uint64_t on_moved(void *arg, uint64_t read, uint64_t written)
{
    w.moved = read + written;
    if (w.limit == 0 || w.moved < w.limit)
        return w.limit ? w.limit - w.moved : UINT64_MAX;
    h2_close(w.conn);
    w.conn = NULL;
    return 0;
}

/* -- peers ------------------------------------------------------------------------------------- */

static ssize_t give(nghttp2_session *s, int32_t id, uint8_t *out, size_t n, uint32_t *flags,
                    nghttp2_data_source *source, void *arg)
{
    static const nghttp2_nv trailer = {(uint8_t *)"x-last", (uint8_t *)SECRET, 6,
                                       sizeof(SECRET) - 1, 0};
    struct peer *p = arg;
    size_t have = p->said ? strlen(p->said) : p->left;

    n = MIN(n, have);
    if (p->said) {
        n = MIN(n, 7); /* in pieces */
        memcpy(out, p->said, n);
        p->said += n;
    } else {
        memset(out, 'x', n);
        p->left -= n;
    }
    if (n == have) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
        if (p->with_trailer) {
            *flags |= NGHTTP2_DATA_FLAG_NO_END_STREAM;
            nghttp2_submit_trailer(s, id, &trailer, 1);
        }
    }
    return (ssize_t)n;
}

static nghttp2_nv field(const char *name, const char *value)
{
    return (nghttp2_nv){(uint8_t *)name, (uint8_t *)value, strlen(name), strlen(value), 0};
}

static void answer(int32_t id, const char *type)
{
    const nghttp2_nv nv[] = {field(":status", "200"), field("content-type", type)};
    const nghttp2_data_provider body = {.read_callback = give};

    assert_int_equal(nghttp2_submit_response(w.server.session, id, nv, 2, &body), 0);
}

static int on_header(nghttp2_session *s, const nghttp2_frame *f, const uint8_t *name, size_t nl,
                     const uint8_t *value, size_t vl, uint8_t flags, void *arg)
{
    struct told *t = told(arg, f->hd.stream_id);
    const char *n = (const char *)name, *v = (const char *)value;

    if (strcmp(n, ":status") == 0)
        t->status = atoi(v);
    else if (strcmp(n, ":path") == 0)
        snprintf(t->path, sizeof(t->path), "%s", v);
    else if (strcmp(n, "authorization") == 0)
        snprintf(t->authorization, sizeof(t->authorization), "%s", v);
    else if (strcmp(n, "x-last") == 0)
        snprintf(t->trailer, sizeof(t->trailer), "%s", v);
    else if (strcmp(n, "content-type") == 0)
        snprintf(t->type, sizeof(t->type), "%s", v);
    else if (strcmp(n, "x-cay-denied") == 0)
        snprintf(t->rule, sizeof(t->rule), "%s", v);
    return 0;
}

static int on_frame(nghttp2_session *s, const nghttp2_frame *f, void *arg)
{
    struct peer *p = arg;
    struct told *t = told(p, f->hd.stream_id);

    if (f->hd.type == NGHTTP2_GOAWAY) {
        p->gone = true;
        p->goaway = f->goaway.error_code;
    }
    if (f->hd.type != NGHTTP2_HEADERS && f->hd.type != NGHTTP2_DATA)
        return 0;
    t->heads += f->hd.type == NGHTTP2_HEADERS;
    t->ended |= (f->hd.flags & NGHTTP2_FLAG_END_STREAM) != 0;
    if (!p->client && !p->silent && t->ended)
        answer(f->hd.stream_id, "text/plain");
    return 0;
}

static int on_data(nghttp2_session *s, uint8_t flags, int32_t id, const uint8_t *data, size_t n,
                   void *arg)
{
    struct told *t = told(arg, id);

    for (size_t i = 0; i < n && t->bytes + i < sizeof(t->text) - 1; i++)
        t->text[t->bytes + i] = (char)data[i];
    t->bytes += n;
    return 0;
}

static int on_close(nghttp2_session *s, int32_t id, uint32_t code, void *arg)
{
    told(arg, id)->closed = true;
    told(arg, id)->code = code;
    return 0;
}

static void open_peer(struct peer *p, bool client, struct tls_endpoint *end)
{
    static const nghttp2_settings_entry windows = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 65535};
    nghttp2_session_callbacks *c;
    int pair[2];

    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair), 0);
    memset(p, 0, sizeof(*p));
    p->fd = pair[0];
    p->client = client;
    *end = (struct tls_endpoint){.fd = pair[1]};
    nghttp2_session_callbacks_new(&c);
    nghttp2_session_callbacks_set_on_header_callback(c, on_header);
    nghttp2_session_callbacks_set_on_frame_recv_callback(c, on_frame);
    nghttp2_session_callbacks_set_on_data_chunk_recv_callback(c, on_data);
    nghttp2_session_callbacks_set_on_stream_close_callback(c, on_close);
    (client ? nghttp2_session_client_new : nghttp2_session_server_new)(&p->session, c, p);
    nghttp2_session_callbacks_del(c);
    nghttp2_submit_settings(p->session, 0, &windows, 1);
}

static void work(struct peer *p)
{
    static uint8_t in[65536];
    const uint8_t *out;
    ssize_t n;

    while (p->fd >= 0 && (n = nghttp2_session_mem_send(p->session, &out)) > 0)
        while (n > 0) { /* sockets take a frame whole, or the test waits */
            ssize_t sent = send(p->fd, out, (size_t)n, MSG_DONTWAIT | MSG_NOSIGNAL);

            if (sent < 0 && errno != EAGAIN)
                return;
            if (sent < 0)
                uv_run(&w.loop, UV_RUN_NOWAIT);
            out += sent > 0 ? sent : 0;
            n -= sent > 0 ? sent : 0;
        }
    while (p->fd >= 0 && !p->stalled && (n = recv(p->fd, in, sizeof(in), MSG_DONTWAIT)) >= 0) {
        p->ended |= n == 0;
        if (n == 0)
            return;
        assert_int_equal(nghttp2_session_mem_recv(p->session, in, (size_t)n), n);
    }
}

static void turns(int n)
{
    for (int i = 0; i < n; i++) {
        work(&w.client);
        uv_run(&w.loop, UV_RUN_NOWAIT);
        work(&w.server);
        uv_run(&w.loop, UV_RUN_NOWAIT);
    }
}

#define UNTIL(condition)                                   \
    do {                                                   \
        for (int i_ = 0; i_ < TURNS && !(condition); i_++) \
            turns(1);                                      \
        assert_true(condition);                            \
    } while (0)

static int32_t ask_with(const char *method, const char *path, const nghttp2_nv *more, size_t count,
                        bool body)
{
    nghttp2_nv nv[140] = {field(":method", method), field(":scheme", "https"),
                          field(":authority", "a.example"), field(":path", path)};
    const nghttp2_data_provider provider = {.read_callback = give};
    int32_t id;

    for (size_t i = 0; i < count; i++)
        nv[4 + i] = more[i];
    id = nghttp2_submit_request(w.client.session, NULL, nv, 4 + count, body ? &provider : NULL,
                                NULL);
    assert_true(id > 0);
    return id;
}

static int32_t ask(const char *path)
{
    return ask_with("GET", path, NULL, 0, false);
}

/* -- a line ------------------------------------------------------------------------------------ */

static int open_line(void **state)
{
    struct h2_options o = {.share = &w.share,
                           .like = held_bodies_of_one().like,
                           .evaluate = evaluate,
                           .say = say,
                           .on_moved = on_moved,
                           .on_end = on_end};

    signal(SIGPIPE, SIG_IGN);
    memset(&w, 0, sizeof(w));
    assert_int_equal(uv_loop_init(&w.loop), 0);
    assert_int_equal(h2s_new(&w.loop, &w.all), 0);
    open_peer(&w.client, true, &o.client);
    open_peer(&w.server, false, &o.server);
    w.share.conns = 1;
    o.answers = w.answers = held_answers_new();
    assert_non_null(w.answers);
    assert_int_equal(h2_start(w.all, &o, &w.conn), 0);
    return 0;
}

static void close_peer(struct peer *p)
{
    nghttp2_session_del(p->session);
    if (p->fd >= 0)
        close(p->fd);
}

static int close_line(void **state)
{
    h2s_free(w.all);
    for (int i = 0; i < 20; i++)
        uv_run(&w.loop, UV_RUN_NOWAIT);
    assert_int_equal(w.share.conns, 0);
    assert_int_equal(w.share.held_bytes, 0);
    assert_int_equal(w.share.grown_bytes, 0);
    assert_int_equal(w.share.head_bytes, 0);
    held_answers_free(w.answers);
    assert_int_equal(uv_loop_close(&w.loop), 0);
    close_peer(&w.client);
    close_peer(&w.server);
    if (w.credentials)
        credentials_unref(w.credentials);
    return 0;
}

static void use_credential(enum credential_kind kind)
{
    json_t *policy = json_loads("{\"rules\":[{\"action\":\"allow\",\"domains\":[\"a.example\"]}]}",
                                0, NULL);
    struct credentials *all = calloc(1, sizeof(*all) + sizeof(struct credential));
    struct err e;

    all->refs = all->count = 1;
    all->searched = response_secrets_cache_new();
    snprintf(all->list[0].name, sizeof(all->list[0].name), "key");
    all->list[0].kind = kind;
    all->list[0].in_bodies = kind == CREDENTIAL_PLACEHOLDER;
    all->list[0].value = strdup(SECRET);
    assert_int_equal(policy_new(policy, &all->list[0].bound, &e), ERR_OK);
    json_decref(policy);
    w.credentials = all;
    w.credential = kind == CREDENTIAL_PLACEHOLDER ? NULL : "key";
}

/* -- requests and answers ---------------------------------------------------------------------- */

static void test_request_and_answer(void **state)
{
    int32_t id = ask("/x?y=1"), denied = ask("/deny/it"), other = ask("/z");

    w.server.said = "hello";
    UNTIL(told(&w.client, id)->closed && told(&w.client, other)->closed &&
          told(&w.client, denied)->closed);
    assert_int_equal(told(&w.client, id)->status, 200);
    assert_string_equal(told(&w.client, id)->text, "hello");
    assert_int_equal(told(&w.client, denied)->status, 403);
    assert_string_equal(told(&w.client, denied)->rule, "no-secrets");
    assert_string_equal(told(&w.client, denied)->text, "{\"error\":\"no\"}");
    assert_int_equal(told(&w.client, other)->status, 200);
    assert_int_equal(w.evaluated, 3);
    assert_string_equal(told(&w.server, 1)->path, "/x?y=1");
    assert_string_equal(told(&w.server, 3)->path, "/z"); /* a refused one has none there */
}

/* gRPC's clients compare the type's codec with their own before they read the status (grpclib; at commit ed82e0f
 * "Invalid content-type" was what one with a codec of its own said, if it had sent its whole call by then). */
static void test_a_refused_call_has_its_own_type(void **state)
{
    const nghttp2_nv more[] = {field("content-type", "application/grpc+own"),
                               field("te", "trailers")};
    int32_t id = ask_with("POST", "/deny/it", more, 2, true), other;

    w.client.said = "x";
    UNTIL(told(&w.client, id)->closed);
    assert_int_equal(told(&w.client, id)->status, 200);
    assert_string_equal(told(&w.client, id)->type, "application/grpc+own");
    assert_int_equal(told(&w.client, id)->heads, 1);
    assert_int_equal(told(&w.client, id)->bytes, 0);
    other = ask("/deny/it");
    UNTIL(told(&w.client, other)->closed);
    assert_string_equal(told(&w.client, other)->type, "application/json");
}

static void test_credential_and_reflection(void **state)
{
    const nghttp2_nv own = field("authorization", "Bearer own");
    int32_t id;

    use_credential(CREDENTIAL_BEARER);
    w.server.said = "you said " SECRET ", did you?";
    w.server.with_trailer = true;
    id = ask_with("GET", "/x", &own, 1, false);
    UNTIL(told(&w.client, id)->closed);
    assert_string_equal(told(&w.server, 1)->authorization, "Bearer " SECRET);
    assert_string_equal(told(&w.client, id)->text, "you said " COVER ", did you?");
    assert_string_equal(told(&w.client, id)->trailer, COVER);
    assert_int_equal(told(&w.client, id)->heads, 2);
}

/* SECRET "cre", compressed by deflate. */
#define DEFLATED                                                                           \
    "\x78\xda\x8b\x2a\xb4\xd4\x2d\xc9\x2f\xd0\x2d\x4e\x4d\x2e\x4a\x2d\xd1\x35\x30\x34\x32" \
    "\x36\x31\x35\x33\xb7\xb0\x04\x72\x01\x84\x5b\x08\xac"

/* Fields of one name are a list, whatever the first of them is (test_egress_answer_kind.c has
 * more). */
static void test_answers_with_a_field_twice(void **state)
{
    static const char grpc[] = "application/grpc", plain[] = "text/plain";
    static const struct {
        const char *name, *first, *second;
        int status;
    } cases[] = {{"content-encoding", "identity", "deflate", 200},
                 {"content-encoding", "deflate", "identity", 200},
                 {"content-encoding", "", "deflate", 200},
                 {"content-encoding", "identity", "br", 502},
                 {"content-encoding", "deflate", "deflate", 502},
                 {"content-type", plain, grpc, 502},
                 {"content-type", grpc, plain, 502},
                 {"content-range", "bytes */30", "bytes 0-9/30", 502}};

    use_credential(CREDENTIAL_BEARER);
    w.server.silent = true;
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        const nghttp2_nv nv[] = {field(":status", "200"), field(cases[i].name, cases[i].first),
                                 field(cases[i].name, cases[i].second)};
        const nghttp2_data_provider body = {.read_callback = give};
        int32_t id = ask("/x");

        UNTIL(told(&w.server, id)->ended);
        w.server.said = strcmp(cases[i].name, "content-encoding") == 0 ? DEFLATED : SECRET;
        assert_int_equal(nghttp2_submit_response(w.server.session, id, nv, 3, &body), 0);
        UNTIL(told(&w.client, id)->closed);
        assert_int_equal(told(&w.client, id)->status, cases[i].status);
        if (cases[i].status == 200)
            assert_string_equal(told(&w.client, id)->text, COVER "cre");
        else
            assert_null(strstr(told(&w.client, id)->text, SECRET));
    }
}

/* The length of a body whose placeholder is replaced is another one. */
static void test_placeholder_in_a_body(void **state)
{
    static const char body[] = "{\"key\":\"cay-secret:key\"}";
    const nghttp2_nv more[] = {field("content-type", "application/json"),
                               field("content-length", "24")};
    int32_t id;

    use_credential(CREDENTIAL_PLACEHOLDER);
    w.client.said = body;
    w.server.said = "";
    id = ask_with("POST", "/x", more, 2, true);
    UNTIL(told(&w.client, id)->closed);
    assert_int_equal(told(&w.client, id)->status, 200);
    assert_string_equal(told(&w.server, 1)->text, "{\"key\":\"" SECRET "\"}");
}

/* A conversation is not held up by what might become a secret: of that three bytes pass. */
static void test_conversation(void **state)
{
    int32_t id;

    use_credential(CREDENTIAL_BEARER);
    w.server.silent = true;
    id = ask("/x");
    UNTIL(told(&w.server, 1)->ended);
    w.server.said = "\x02\x01\x01\x01\x01Z";
    answer(1, "application/grpc");
    UNTIL(told(&w.client, id)->bytes == 6);
    assert_string_equal(told(&w.client, id)->text, "\x02\x01\x01\x01\x01Z");
}

/* -- flow control ------------------------------------------------------------------------------ */

static void test_slow_reader(void **state)
{
    int32_t id;
    size_t sent;

    w.server.left = BIG_BYTES;
    id = ask("/big");
    UNTIL(told(&w.server, 1)->ended);
    w.client.stalled = true;
    turns(300);
    sent = BIG_BYTES - w.server.left;
    assert_true(sent < H2_STREAM_WIDE_BYTES +
                           (size_t)3 * H2_STREAM_BYTES); /* windows, and what sockets hold */
    assert_true(w.share.held_bytes <= H2_STREAM_WIDE_BYTES);
    w.client.stalled = false;
    UNTIL(told(&w.client, id)->closed);
    assert_int_equal(told(&w.client, id)->bytes, BIG_BYTES);
    assert_int_equal(w.share.held_bytes, 0);
}

static void test_slow_server(void **state)
{
    int32_t id;

    w.client.left = BIG_BYTES;
    w.server.said = "";
    id = ask_with("POST", "/big", NULL, 0, true);
    turns(5);
    w.server.stalled = true;
    turns(300);
    /* it may have taken enough at first for its window to have grown */
    assert_true(w.share.grown_bytes < H2_STREAM_MAX_BYTES / 2);
    assert_true(BIG_BYTES - w.client.left < (size_t)4 * H2_STREAM_BYTES + w.share.grown_bytes);
    assert_true(w.share.held_bytes <= H2_STREAM_BYTES + w.share.grown_bytes);
    w.server.stalled = false;
    UNTIL(told(&w.client, id)->closed);
    assert_int_equal(told(&w.server, 1)->bytes, BIG_BYTES);
}

/* A stream moves at most its window in a round trip (commit 009d670: 256 KiB, 6 MiB/s at 40 ms): it grows with what
 * is taken. A client that took quickly and then stops makes us hold a whole one, and no more. */
static void test_windows_grow(void **state)
{
    static const nghttp2_settings_entry wide = {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, 1 << 24};
    int32_t id;

    nghttp2_submit_settings(w.client.session, 0, &wide, 1); /* one that takes quickly */
    nghttp2_session_set_local_window_size(w.client.session, 0, 0, 1 << 24);
    w.server.left = 8 * BIG_BYTES;
    id = ask("/big");
    UNTIL(w.share.grown_bytes == H2_STREAM_MAX_BYTES - H2_STREAM_BYTES);
    w.client.stalled = true;
    UNTIL(w.share.held_bytes > (size_t)8 * H2_STREAM_BYTES);
    turns(1000);
    assert_true(w.share.held_bytes <= H2_STREAM_MAX_BYTES);
    w.client.stalled = false;
    UNTIL(told(&w.client, id)->closed);
    assert_int_equal(told(&w.client, id)->bytes, 8 * BIG_BYTES);
    assert_int_equal(w.share.grown_bytes, 0);
}

static uint64_t ticks(void)
{
    static uint64_t now;

    return now += TURNS_NS / 2;
}

/* The most that comes to the client's socket in one of a few turns, once it has opened its windows again. */
static int burst(struct turns *t, int32_t id, bool beside)
{
    uint32_t round = 0;
    int before = 0, n = 0, most = 0;

    nghttp2_session_set_local_window_size(w.client.session, 0, 0, 1 << 24);
    nghttp2_session_set_local_window_size(w.client.session, 0, id, 1 << 24);
    w.client.stalled = true;
    assert_int_equal(ioctl(w.client.fd, FIONREAD, &before), 0);
    work(&w.client);
    for (int i = 0; i < 8; i++, before = n) {
        if (beside && turns_enter(t, 1, &round))
            turns_exit(t);
        uv_run(&w.loop, UV_RUN_NOWAIT);
        assert_int_equal(ioctl(w.client.fd, FIONREAD, &n), 0);
        most = MAX(most, n - before);
    }
    return most;
}

/* A client that holds its windows shut until much waits for it, and opens them at once, is sent no more in a turn than
 * another owner can wait for. The control: without turns its socket is filled in one event. */
static void test_a_burst_is_cut_into_turns(void **state)
{
    for (int cut = 0; cut < 2; cut++) {
        struct turns *t;
        int32_t id;
        int n;

        assert_int_equal(turns_new(&w.loop, &t), 0);
        turns_set_clock(t, ticks, ticks);
        w.server.left = BIG_BYTES;
        w.client.stalled = false;
        id = ask("/big");
        UNTIL(w.share.held_bytes > (size_t)4 * H2_STREAM_BYTES);
        h2s_set_turns(w.all, cut ? t : NULL);
        n = burst(t, id, cut);
        if (cut)
            assert_in_range(n, 1, (int)(3 * TURNS_PIECE));
        else
            assert_true(n > (int)(4 * TURNS_PIECE));
        w.client.stalled = false;
        UNTIL(told(&w.client, id)->closed);
        assert_int_equal(told(&w.client, id)->bytes, BIG_BYTES);
        h2s_set_turns(w.all, NULL);
        turns_free(t);
    }
}

static void test_windows_of_uploads_grow(void **state)
{
    int32_t id;

    w.client.left = 8 * BIG_BYTES;
    w.server.said = "";
    id = ask_with("POST", "/big", NULL, 0, true);
    nghttp2_session_set_local_window_size(w.server.session, 0, 0, 1 << 30);
    UNTIL(told(&w.server, 1)->bytes > 0);
    nghttp2_session_set_local_window_size(w.server.session, 0, 1, 1 << 30);
    UNTIL(w.share.grown_bytes == /* and of the answer, which begins wide */
          H2_STREAM_MAX_BYTES + H2_STREAM_WIDE_BYTES - 2 * H2_STREAM_BYTES);
    UNTIL(told(&w.client, id)->closed);
    assert_int_equal(told(&w.server, 1)->bytes, 8 * BIG_BYTES);
    assert_int_equal(w.share.grown_bytes, 0);
}

/* The growth of windows is bounded for a sandbox: the same stream, without room. */
static void test_windows_begin_wide(void **state)
{
    static const size_t half = H2_GROWN_BYTES / 2 - (H2_STREAM_WIDE_BYTES - H2_STREAM_BYTES);

    w.server.silent = true;
    for (int i = 0; i < 2;
         i++) { /* the second beside streams that have half of what there is to grow by */
        int32_t id = ask("/x");

        UNTIL(told(&w.server, id)->ended);
        turns(3);
        assert_int_equal(nghttp2_session_get_stream_remote_window_size(w.server.session, id),
                         i == 0 ? H2_STREAM_WIDE_BYTES : H2_STREAM_BYTES);
        w.share.grown_bytes += i == 0 ? half : 0;
    }
    w.share.grown_bytes -= half;
}

static void test_windows_grow_within_the_share(void **state)
{
    int32_t id;

    w.share.grown_bytes = H2_GROWN_BYTES; /* other lines' */
    w.server.left = BIG_BYTES;
    id = ask("/big");
    UNTIL(told(&w.client, id)->bytes > BIG_BYTES / 2);
    w.client.stalled = true;
    turns(300);
    assert_true(w.share.held_bytes <= H2_STREAM_BYTES);
    w.client.stalled = false;
    UNTIL(told(&w.client, id)->closed);
    assert_int_equal(w.share.grown_bytes, H2_GROWN_BYTES);
    w.share.grown_bytes = 0;
}

/* A stream whose window is full does not stop the others. */
/* Of a download at most a record more than the limit goes to the client; of an upload nothing more
 * goes on, and a piece more of it at most was read. Control: with on_moved once a second (commit
 * 36d291f) all of it goes. */
static void test_bytes_are_limited(void **state)
{
    int32_t id;

    w.limit = BIG_BYTES / 8;
    w.server.left = BIG_BYTES;
    id = ask("/big");
    UNTIL(!w.conn);
    turns(20);
    assert_in_range(w.moved, w.limit, w.limit + H2_PIECE_BYTES);
    assert_in_range(told(&w.client, id)->bytes, w.limit - w.limit / 100, w.limit + H2_PIECE_BYTES);
    assert_int_equal(w.ends, 0);
}

static void test_bytes_of_uploads_are_limited(void **state)
{
    w.limit = BIG_BYTES / 8;
    w.client.left = BIG_BYTES;
    w.server.said = "";
    (void)ask_with("POST", "/big", NULL, 0, true);
    UNTIL(!w.conn);
    turns(20);
    assert_in_range(w.moved, w.limit, w.limit + TLS_ENDPOINT_READ_BYTES);
    assert_in_range(told(&w.server, 1)->bytes, w.limit / 8, w.limit);
}

static void test_other_streams_go_on(void **state)
{
    int32_t slow = ask("/big"), quick;

    w.server.left = BIG_BYTES;
    nghttp2_session_set_local_window_size(w.client.session, 0, slow, 1000);
    w.server.silent = true;
    UNTIL(told(&w.server, 1)->ended);
    answer(1, "text/plain");
    nghttp2_session_set_local_window_size(w.client.session, 0, 0, 1 << 30);
    turns(50);
    quick = ask("/deny/quick");
    UNTIL(told(&w.client, quick)->closed);
    assert_false(told(&w.client, slow)->closed);
}

static void test_a_refused_upload_is_drained(void **state)
{
    int32_t id;

    w.client.left = BIG_BYTES;
    id = ask_with("POST", "/deny/up", NULL, 0, true);
    UNTIL(told(&w.client, id)->closed);
    assert_int_equal(told(&w.client, id)->status, 403);
    assert_int_equal(told(&w.client, id)->code, NGHTTP2_NO_ERROR);
    assert_int_equal(told(&w.server, 1)->heads, 0);
}

/* -- ends -------------------------------------------------------------------------------------- */

static void test_resets_pass(void **state)
{
    int32_t id = ask("/x"), other = ask("/y");

    w.server.silent = true;
    UNTIL(told(&w.server, 3)->ended);
    nghttp2_submit_rst_stream(w.client.session, 0, id, NGHTTP2_CANCEL);
    nghttp2_submit_rst_stream(w.server.session, 0, 3, NGHTTP2_REFUSED_STREAM);
    UNTIL(told(&w.server, 1)->closed && told(&w.client, other)->closed);
    assert_int_equal(told(&w.server, 1)->code, NGHTTP2_CANCEL);
    assert_int_equal(told(&w.client, other)->code, NGHTTP2_REFUSED_STREAM);
}

static void test_server_lost(void **state)
{
    int32_t begun = ask("/a"), waiting = ask("/b");

    w.server.silent = true;
    w.server.left = BIG_BYTES;
    UNTIL(told(&w.server, 3)->ended);
    answer(1, "text/plain");
    UNTIL(told(&w.client, begun)->bytes > 0);
    close(w.server.fd);
    w.server.fd = -1;
    UNTIL(told(&w.client, begun)->closed && told(&w.client, waiting)->closed);
    assert_int_equal(told(&w.client, begun)->code, NGHTTP2_INTERNAL_ERROR);
    assert_int_equal(told(&w.client, waiting)->status, 502);
    assert_non_null(strstr(told(&w.client, waiting)->text, "before it answered"));
    UNTIL(w.client.gone && w.client.ended);
    assert_int_equal(w.client.goaway, NGHTTP2_NO_ERROR);
}

static void test_server_goes_away(void **state)
{
    int32_t id = ask("/a");

    w.server.silent = true;
    UNTIL(told(&w.server, 1)->ended);
    nghttp2_submit_goaway(w.server.session, 0, 1, NGHTTP2_NO_ERROR, NULL, 0);
    UNTIL(w.client.gone);
    w.server.said = "last";
    answer(1, "text/plain");
    UNTIL(told(&w.client, id)->closed && w.client.ended);
    assert_string_equal(told(&w.client, id)->text, "last");
}

static void test_client_leaves(void **state)
{
    ask("/a");
    w.server.silent = true;
    UNTIL(told(&w.server, 1)->ended);
    close(w.client.fd);
    w.client.fd = -1;
    UNTIL(w.ends == 1 && w.server.ended);
}

static void test_other_rules(void **state)
{
    int32_t kept = ask("/kept"), begun = ask("/begun"), waiting = ask("/waiting");

    w.server.silent = true;
    w.server.left = BIG_BYTES;
    UNTIL(told(&w.server, 5)->ended);
    answer(3, "text/plain");
    UNTIL(told(&w.client, begun)->bytes > 0);
    h2_recheck_all(w.conn);
    assert_true(h2_recheck(w.conn, still)); /* one of them at a time */
    assert_true(h2_recheck(w.conn, still));
    assert_false(h2_recheck(w.conn, still));
    assert_false(h2_recheck(w.conn, still));
    UNTIL(told(&w.client, begun)->closed && told(&w.client, waiting)->closed);
    assert_int_equal(told(&w.client, begun)->code, NGHTTP2_CANCEL);
    assert_int_equal(told(&w.client, waiting)->status, 403);
    assert_true(told(&w.server, 3)->closed && told(&w.server, 5)->closed);
    assert_false(told(&w.client, kept)->closed || told(&w.server, 1)->closed);
}

/* -- what a peer may not ----------------------------------------------------------------------- */

static void test_streams_are_bounded(void **state)
{
    int open = 0;

    w.server.silent = true;
    turns(3);
    for (int i = 0; i < 120; i++)
        ask("/x");
    turns(30);
    for (int32_t id = 1; id < 2 * STREAMS; id += 2)
        open += told(&w.server, id)->heads;
    assert_int_equal(open, H2_STREAMS_MAX); /* a well-behaved client keeps to the setting */
}

/* Appends the bytes that the client has to send. */
static void say_to(char *out, size_t size, size_t *n)
{
    const uint8_t *bytes;
    ssize_t more;

    while ((more = nghttp2_session_mem_send(w.client.session, &bytes)) > 0) {
        assert_true(*n + (size_t)more <= size);
        memcpy(out + *n, bytes, (size_t)more);
        *n += (size_t)more;
    }
}

#define PROVOKED 50 /* their streams are there until the reset has left: fewer than may be */

/* A frame that makes the other side reset a stream: a window that overflows (RFC 9113 6.9.1). */
static size_t overflow(char *out, uint32_t id)
{
    memcpy(out, "\0\0\4\10\0....\x7f\xff\xff\xff", 13);
    id = htonl(id);
    memcpy(out + 5, &id, sizeof(id));
    return 13;
}

/* Requests that the other side takes back, and then some that are taken back at once. A single
 * write, so that one turn of the loop reads them: they are counted by the second of its clock,
 * however long the machine takes for them. */
static void reset_at_once(unsigned count, unsigned provoked)
{
    static char frames[65536];
    size_t n = 0;

    w.server.silent = true;
    turns(5);
    for (unsigned i = 0; i < count; i++) {
        int32_t id = ask("/x");

        say_to(frames, sizeof(frames), &n);
        if (i >= provoked)
            nghttp2_submit_rst_stream(w.client.session, 0, id, NGHTTP2_CANCEL);
        else
            n += overflow(frames + n, (uint32_t)id);
        say_to(frames, sizeof(frames), &n);
    }
    assert_int_equal(send(w.client.fd, frames, n, MSG_DONTWAIT | MSG_NOSIGNAL), n);
}

static void test_rapid_reset(void **state)
{
    reset_at_once(H2_RESETS_MAX + 1, 0);
    UNTIL(w.client.gone || w.ends == 1);
    assert_int_equal(w.client.goaway, NGHTTP2_ENHANCE_YOUR_CALM);
    UNTIL(w.client.ended);
}

/* A client may make this side reset its streams instead ("MadeYouReset", CVE-2025-8671). */
static void test_resets_that_are_provoked(void **state)
{
    reset_at_once(H2_RESETS_MAX + 1, PROVOKED);
    UNTIL(w.client.gone || w.ends == 1);
    assert_int_equal(w.client.goaway, NGHTTP2_ENHANCE_YOUR_CALM);
    UNTIL(w.client.ended);
}

/* The control: as many as may be in a second. */
static void some_resets(unsigned provoked)
{
    int32_t id;

    reset_at_once(H2_RESETS_MAX, provoked);
    turns(30);
    assert_false(w.client.gone);
    w.server.silent = false;
    w.server.said = "hello";
    id = ask("/x");
    UNTIL(told(&w.client, id)->closed);
    assert_string_equal(told(&w.client, id)->text, "hello");
}

static void test_some_resets(void **state)
{
    some_resets(0);
}

static void test_some_resets_that_are_provoked(void **state)
{
    some_resets(PROVOKED);
}

static void put_frames(struct peer *p, const char *frame, size_t n, int times)
{
    for (int i = 0; i < times; i++) {
        (void)!send(p->fd, frame, n, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (i % 50 == 0)
            uv_run(&w.loop, UV_RUN_NOWAIT);
    }
}

static void test_ping_flood(void **state)
{
    turns(5);
    put_frames(&w.client, "\0\0\10\6\0\0\0\0\0........", 17, 5000);
    UNTIL(w.client.gone && w.client.ended);
    assert_int_equal(w.client.goaway, NGHTTP2_ENHANCE_YOUR_CALM);
}

static void test_settings_flood(void **state)
{
    turns(5);
    put_frames(&w.client, "\0\0\0\4\0\0\0\0\0", 9, 5000);
    UNTIL(w.client.ended);
}

static void again(void **state)
{
    close_line(state);
    open_line(state);
}

#define UPDATE "\0\0\4\10\0\0\0\0\0\0\0\0\1"

/* Frames that nghttp2 takes without a word, or does not know. */
static const struct {
    const char *frame;
    size_t n;
} idle_frames[] = {
    {UPDATE, 13},                                /* of the connection */
    {"\0\0\5\2\0\0\0\0\3\0\0\0\0\20", 14},       /* PRIORITY */
    {"\0\0\0\40\0\0\0\0\0", 9},                  /* of no known type */
    {"\0\0\4\14\0\0\0\0\0....", 13},             /* ORIGIN */
    {"\0\0\10\7\0\0\0\0\0\0\0\0\0\0\0\0\0", 17}, /* GOAWAY */
    {"\0\0\10\6\1\0\0\0\0........", 17},         /* an answer to no PING */
};

static void test_idle_floods_of_a_client(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(idle_frames); i++) {
        if (i > 0)
            again(state);
        w.server.silent = true;
        ask("/x");
        UNTIL(told(&w.server, 1)->ended);
        put_frames(&w.client, idle_frames[i].frame, idle_frames[i].n, 5000);
        UNTIL(w.client.gone && w.client.ended);
        assert_int_equal(w.client.goaway, NGHTTP2_ENHANCE_YOUR_CALM);
    }
}

static void test_idle_floods_of_a_server(void **state)
{
    for (size_t i = 0; i < ARRAY_SIZE(idle_frames); i++) {
        char frame[17];
        int32_t id;

        memcpy(frame, idle_frames[i].frame, idle_frames[i].n);
        if (frame[3] == NGHTTP2_GOAWAY)
            frame[12] = 1; /* the stream is to go on */
        if (i > 0)
            again(state);
        id = ask("/x");
        w.server.silent = true;
        UNTIL(told(&w.server, 1)->ended);
        put_frames(&w.server, frame, idle_frames[i].n, 5000);
        UNTIL(told(&w.client, id)->closed);
        assert_int_equal(told(&w.client, id)->status, 502);
    }
}

/* The control: as many as may be in a second, but GOAWAY, and those that an answer accounts for. */
static void test_some_idle_frames(void **state)
{
    int32_t id;

    turns(5);
    for (size_t i = 0; i < ARRAY_SIZE(idle_frames); i++)
        if (idle_frames[i].frame[3] != 7)
            put_frames(&w.client, idle_frames[i].frame, idle_frames[i].n, 150);
    w.server.left = BIG_BYTES;
    id = ask("/x");
    UNTIL(told(&w.client, id)->closed);
    assert_int_equal(told(&w.client, id)->bytes, BIG_BYTES);
    put_frames(&w.client, UPDATE, 13, 1500);
    turns(30);
    assert_false(w.client.gone);
}

/* Heads for a stream that has ended are decoded for nothing. */
static void test_late_heads(void **state)
{
    int32_t id;

    w.server.said = "hello";
    id = ask("/x");
    UNTIL(told(&w.client, id)->closed);
    put_frames(&w.server, "\0\0\1\1\5\0\0\0\1\x88", 10, 5000);
    UNTIL(w.server.gone && w.server.ended);
    assert_int_equal(w.server.goaway, NGHTTP2_ENHANCE_YOUR_CALM);
}

/* The control of both: a few of each do nothing. */
static void test_few_pings(void **state)
{
    int32_t id;

    turns(5);
    put_frames(&w.client, "\0\0\10\6\0\0\0\0\0........", 17, 200);
    w.server.said = "hello";
    id = ask("/x");
    UNTIL(told(&w.client, id)->closed);
    assert_string_equal(told(&w.client, id)->text, "hello");
    assert_false(w.client.gone);
}

static void test_server_floods(void **state)
{
    int32_t id = ask("/x");

    w.server.silent = true;
    UNTIL(told(&w.server, 1)->ended);
    put_frames(&w.server, "\0\0\5\2\0\0\0\0\3\0\0\0\0\0", 14, 5000); /* PRIORITY */
    UNTIL(told(&w.client, id)->closed);
    assert_int_equal(told(&w.client, id)->status, 502);
}

/* A head of 16 KB in 40 bytes, before the final one, again and again. */
static void say_interim(struct peer *p, const char *value)
{
    const nghttp2_nv nv[] = {field(":status", "103"), field("x", value), field("x", value),
                             field("x", value), field("x", value)};

    assert_true(nghttp2_submit_headers(p->session, 0, 1, NULL, nv, 5, NULL) >= 0);
}

static void test_interim_answers_that_are_not_read(void **state)
{
    static char value[4001];
    const struct told *t;
    int32_t id = ask("/x");

    memset(value, 'v', sizeof(value) - 1);
    w.server.silent = true;
    UNTIL(told(&w.server, 1)->ended);
    t = told(&w.client, id);
    say_interim(&w.server, value); /* the control: one that is read comes, and the next one too */
    UNTIL(t->heads == 1);
    say_interim(&w.server, value);
    UNTIL(t->heads == 2 && t->status == 103);
    for (int i = 0; i < 500; i++) /* in one piece: nothing leaves in between */
        say_interim(&w.server, value);
    UNTIL(t->heads > 2);
    turns(50);
    assert_in_range(t->heads, 3, 100);
    w.server.said = "hello";
    answer(1, "text/plain");
    UNTIL(t->closed);
    assert_int_equal(t->status, 200);
    assert_string_equal(t->text, "hello");
}

static void test_interim_flood(void **state)
{
    int32_t id = ask("/x");

    w.server.silent = true;
    UNTIL(told(&w.server, 1)->ended);
    put_frames(&w.server,
               "\0\0\5\1\4\0\0\0\1\x08\x03"
               "103",
               14, 5000);
    UNTIL(told(&w.client, id)->closed);
    assert_int_equal(told(&w.client, id)->status, 502);
}

static void test_push_is_not_taken(void **state)
{
    int32_t id = ask("/x");

    w.server.silent = true;
    UNTIL(told(&w.server, 1)->ended);
    turns(5); /* it has said that it knows */
    put_frames(&w.server, "\0\0\5\5\4\0\0\0\1\0\0\0\2\x82", 14, 1);
    UNTIL(told(&w.client, id)->closed);
    assert_int_equal(told(&w.client, id)->status, 502);
}

/* There is no other protocol behind 101 here (RFC 9113 8.6): later bytes would pass unread. */
static void test_a_change_of_protocol_is_not_taken(void **state)
{
    int32_t id = ask("/x");

    w.server.silent = true;
    UNTIL(told(&w.server, 1)->ended);
    put_frames(&w.server,
               "\0\0\5\1\4\0\0\0\1\x08\x03"
               "101",
               14, 1);
    UNTIL(told(&w.client, id)->closed);
    assert_true(told(&w.client, id)->status != 101 && told(&w.client, id)->status != 200);
    id = ask("/y"); /* the control */
    w.server.said = "hello";
    UNTIL(told(&w.server, 3)->ended);
    answer(3, "text/plain");
    UNTIL(told(&w.client, id)->closed);
    assert_string_equal(told(&w.client, id)->text, "hello");
}

static void test_head_without_end(void **state)
{
    turns(5);
    put_frames(&w.client, "\0\0\1\1\0\0\0\0\1\x82", 10, 1); /* HEADERS, not the last of it */
    put_frames(&w.client, "\0\0\1\11\0\0\0\0\1\x84", 10, 100);
    UNTIL(w.ends == 1);
    assert_int_equal(w.evaluated, 0);
}

static void test_large_heads(void **state)
{
    static char value[9000];
    nghttp2_nv more[120];
    int32_t id;

    memset(value, 'v', sizeof(value) - 1);
    for (size_t i = 0; i < 120; i++)
        more[i] = field("x-many", "y");
    id = ask_with("GET", "/x", more, 120, false);
    UNTIL(told(&w.client, id)->closed);
    assert_int_equal(told(&w.client, id)->status, 431);
    for (size_t i = 0; i < 5; i++)
        more[i] = field("x-large", value);
    id = ask_with("GET", "/x", more, 5, false);
    UNTIL(told(&w.client, id)->closed);
    assert_int_equal(told(&w.client, id)->status, 431);
    w.server.said = "";
    id = ask_with("GET", "/x", more, 3, false);
    UNTIL(told(&w.client, id)->closed);
    assert_int_equal(told(&w.client, id)->status, 200);
    assert_int_equal(w.evaluated, 1);
}

/* Heads are kept as long as their streams are there, and a few bytes of a peer's are many (HPACK):
 * the first few are the control. */
static void test_heads_are_bounded(void **state)
{
    static char value[4001];
    nghttp2_nv more[7];
    size_t others;
    int32_t id;

    memset(value, 'v', sizeof(value) - 1);
    for (size_t i = 0; i < ARRAY_SIZE(more); i++)
        more[i] = field("x-many", value);
    w.server.silent = true;
    for (int i = 0; i < 20; i++)
        ask_with("GET", "/x", more, ARRAY_SIZE(more), false);
    UNTIL(told(&w.server, 39)->ended);
    assert_in_range(w.share.head_bytes, 20 * 7 * 4000, 20 * H2_LIST_BYTES_MAX);
    others = H2_HEADS_BYTES - w.share.head_bytes; /* of connections of the same sandbox */
    w.share.head_bytes += others;
    id = ask("/more");
    UNTIL(told(&w.client, id)->closed);
    assert_int_equal(told(&w.client, id)->status, 503);
    answer(1, "text/plain"); /* whose head is one more */
    UNTIL(told(&w.client, 1)->closed);
    assert_int_equal(told(&w.client, 1)->status, 503);
    w.share.head_bytes -= others;
    w.server.said = "hello";
    answer(3, "text/plain");
    UNTIL(told(&w.client, 3)->closed);
    assert_string_equal(told(&w.client, 3)->text, "hello");
    assert_true(w.share.head_bytes < 19 * H2_LIST_BYTES_MAX);
}

/* -- heads ------------------------------------------------------------------------------------- */

static int read_head(const char *const *texts, bool ends, struct arena *a, struct http_head **out)
{
    struct h2_fields f = {.count = 0};
    const char *why = "";
    int status;

    h2_fields_reset(&f);
    for (; *texts; texts += 2)
        assert_int_equal(h2_fields_add(&f, (const uint8_t *)texts[0], strlen(texts[0]),
                                       (const uint8_t *)texts[1], strlen(texts[1])),
                         0);
    status = h2_head_request(&f, ends, a, out, &why);
    assert_true(status == 0 || why[0]);
    h2_fields_free(&f);
    return status;
}

#define OWN ":method", "GET", ":scheme", "https", ":path", "/a?b", ":authority", "a.example:443"

static void test_heads(void **state)
{
    static const struct {
        int status;
        const char *texts[24];
    } cases[] = {
        {0, {OWN}},
        {0, {OWN, "host", "a.example"}},
        {0, {":method", "OPTIONS", ":scheme", "https", ":path", "*", ":authority", "a"}},
        {0, {":method", "CONNECT", ":authority", "a.example:443"}},
        {0, {":method", "GET", ":scheme", "https", ":path", "/", "host", "a.example"}},
        {400, {":method", "GET", ":scheme", "https", ":path", "/"}},
        {400, {":method", "GET", ":scheme", "http", ":path", "/", ":authority", "a"}},
        {400, {":method", "GET", ":scheme", "https", ":path", "no", ":authority", "a"}},
        {400, {":method", "GET", ":scheme", "https", ":path", "/ x", ":authority", "a"}},
        {400, {":method", "get", ":scheme", "https", ":path", "/", ":authority", "a"}},
        {400, {":method", "Delete", ":scheme", "https", ":path", "/", ":authority", "a"}},
        {0, {":method", "M-SEARCH", ":scheme", "https", ":path", "/", ":authority", "a"}},
        {400, {":method", "G T", ":scheme", "https", ":path", "/", ":authority", "a"}},
        {400, {":method", "GET", ":scheme", "https", ":path", "/", ":authority", "u@a"}},
        {400, {OWN, "host", "a b"}},
        {400, {OWN, "transfer-encoding", "chunked"}},
        {400, {OWN, "connection", "close"}},
        {400, {OWN, "upgrade", "h2c"}},
        {400, {OWN, "x", "a\r\ny: b"}},
        {400, {OWN, "x: y", "a"}},
        {400, {OWN, "content-length", "1", "content-length", "1"}},
        {400, {OWN, "content-length", "+1"}},
        {417, {OWN, "expect", "more"}},
    };
    CLEANUP_ARENA struct arena a;
    struct http_head *h = NULL;

    arena_init(&a, (size_t)1 << 20);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (read_head(cases[i].texts, true, &a, &h) != cases[i].status)
            fail_msg("case %zu", i);
}

static void test_head_fields(void **state)
{
    static const char *const texts[] = {OWN, "cookie", "a=1", "x-y", "z", "cookie", "b=2", NULL};
    static const char *const counted[] = {OWN, "content-length", "7", NULL};
    CLEANUP_ARENA struct arena a;
    struct http_head *h = NULL;

    arena_init(&a, (size_t)1 << 20);
    assert_int_equal(read_head(texts, true, &a, &h), 0);
    assert_string_equal(h->path, "/a");
    assert_string_equal(h->query, "b");
    assert_string_equal(h->authority, "a.example:443");
    assert_string_equal(h->host, "a.example:443");
    assert_string_equal(http_head_get(h, "cookie"), "a=1; b=2");
    assert_int_equal(h->framing, HTTP_BODY_NONE);
    assert_int_equal(read_head(texts, false, &a, &h), 0);
    assert_int_equal(h->framing, HTTP_BODY_CHUNKED);
    assert_int_equal(read_head(counted, false, &a, &h), 0);
    assert_int_equal(h->framing, HTTP_BODY_LENGTH);
    assert_int_equal(h->content_length, 7);
}

#define ON_A_LINE(test) cmocka_unit_test_setup_teardown(test, open_line, close_line)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads),
        cmocka_unit_test(test_head_fields),
        ON_A_LINE(test_request_and_answer),
        ON_A_LINE(test_credential_and_reflection),
        ON_A_LINE(test_answers_with_a_field_twice),
        ON_A_LINE(test_placeholder_in_a_body),
        ON_A_LINE(test_conversation),
        ON_A_LINE(test_slow_reader),
        ON_A_LINE(test_slow_server),
        ON_A_LINE(test_windows_grow),
        ON_A_LINE(test_a_burst_is_cut_into_turns),
        ON_A_LINE(test_windows_of_uploads_grow),
        ON_A_LINE(test_windows_begin_wide),
        ON_A_LINE(test_windows_grow_within_the_share),
        ON_A_LINE(test_bytes_are_limited),
        ON_A_LINE(test_bytes_of_uploads_are_limited),
        ON_A_LINE(test_other_streams_go_on),
        ON_A_LINE(test_a_refused_call_has_its_own_type),
        ON_A_LINE(test_a_refused_upload_is_drained),
        ON_A_LINE(test_resets_pass),
        ON_A_LINE(test_server_lost),
        ON_A_LINE(test_server_goes_away),
        ON_A_LINE(test_client_leaves),
        ON_A_LINE(test_other_rules),
        ON_A_LINE(test_streams_are_bounded),
        ON_A_LINE(test_rapid_reset),
        ON_A_LINE(test_resets_that_are_provoked),
        ON_A_LINE(test_some_resets),
        ON_A_LINE(test_some_resets_that_are_provoked),
        ON_A_LINE(test_ping_flood),
        ON_A_LINE(test_settings_flood),
        ON_A_LINE(test_few_pings),
        ON_A_LINE(test_idle_floods_of_a_client),
        ON_A_LINE(test_idle_floods_of_a_server),
        ON_A_LINE(test_some_idle_frames),
        ON_A_LINE(test_late_heads),
        ON_A_LINE(test_server_floods),
        ON_A_LINE(test_interim_answers_that_are_not_read),
        ON_A_LINE(test_interim_flood),
        ON_A_LINE(test_push_is_not_taken),
        ON_A_LINE(test_a_change_of_protocol_is_not_taken),
        ON_A_LINE(test_head_without_end),
        ON_A_LINE(test_large_heads),
        ON_A_LINE(test_heads_are_bounded),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
