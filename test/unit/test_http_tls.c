/* The server with TLS as its layer, against OpenSSL's own client in the same thread. */
#include "http_fixture.h"

#include "http/tls.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define BIG_BYTES ((size_t)20 * 1000 * 1000)
#define TRIES     20000

static struct tls *tls;
static SSL_CTX *client_ctx;
static struct buf got;

/* -- a certificate ----------------------------------------------------------------------------- */

static int file_of(BIO *bio)
{
    int fd = memfd_create("pem", MFD_CLOEXEC);
    char *data;
    long n = BIO_get_mem_data(bio, &data);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, data, (size_t)n), n);
    BIO_free(bio);
    return fd;
}

static void make_files(int *cert_fd, int *key_fd)
{
    BIO *cert_bio = BIO_new(BIO_s_mem()), *key_bio = BIO_new(BIO_s_mem());
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    X509_NAME *name = X509_get_subject_name(x);

    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -60);
    X509_gmtime_adj(X509_getm_notAfter(x), 86400 * 90);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)"a", -1, -1, 0);
    X509_set_issuer_name(x, name);
    X509_set_pubkey(x, key);
    assert_true(X509_sign(x, key, EVP_sha256()) > 0);
    assert_int_equal(PEM_write_bio_X509(cert_bio, x), 1);
    assert_int_equal(PEM_write_bio_PrivateKey(key_bio, key, NULL, NULL, 0, NULL, NULL), 1);
    X509_free(x);
    EVP_PKEY_free(key);
    *cert_fd = file_of(cert_bio);
    *key_fd = file_of(key_bio);
}

static int set_up(void **state)
{
    int cert_fd, key_fd;
    struct err e;

    make_files(&cert_fd, &key_fd);
    assert_int_equal(tls_load(cert_fd, key_fd, NULL, &tls, &e), ERR_OK);
    close(cert_fd);
    close(key_fd);
    client_ctx = SSL_CTX_new(TLS_client_method());
    assert_non_null(client_ctx);
    SSL_CTX_set_mode(client_ctx,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    buf_init(&got, 64u << 20);
    return 0;
}

static int tear_down(void **state)
{
    tls_free(tls);
    SSL_CTX_free(client_ctx);
    buf_free(&got);
    return 0;
}

/* -- the server -------------------------------------------------------------------------------- */

static void on_close(struct http_exchange *x, void *data)
{
    struct fixture *f = data;

    f->closes++;
    f->x = NULL;
}

static void count_data(struct http_exchange *x, const char *data, size_t len)
{
    struct fixture *f = http_exchange_get(x);

    f->bytes += len;
    for (size_t i = 0; i < len; i++)
        f->sum = f->sum * 31 + (unsigned char)data[i];
}

static void count_end(struct http_exchange *x)
{
    struct fixture *f = http_exchange_get(x);
    char text[64];

    snprintf(text, sizeof(text), "%zu %u", f->bytes, f->sum);
    http_respond(x, 200, NULL, 0, text, strlen(text));
}

static void fill(struct http_exchange *x, void *data)
{
    struct fixture *f = data;
    static char piece[10000];

    f->drains++;
    while (f->bytes > 0) {
        size_t n = MIN(f->bytes, sizeof(piece));

        f->bytes -= n;
        if (http_response_write(x, piece, n) == 1)
            return;
    }
    http_response_end(x);
}

static void handler(struct http_exchange *x, void *ctx)
{
    struct fixture *f = ctx;
    const char *path = http_exchange_head(x)->path;

    f->calls++;
    http_exchange_set(x, f, on_close);
    if (strcmp(path, "/hello") == 0) {
        http_respond(x, 200, NULL, 0, "hello\n", 6);
    } else if (strcmp(path, "/count") == 0) {
        f->bytes = 0;
        f->sum = 0;
        http_body_stream(x, count_data, count_end);
    } else if (strcmp(path, "/big") == 0) {
        f->bytes = BIG_BYTES;
        http_response_begin(x, 200, NULL, 0, (int64_t)BIG_BYTES);
        http_response_on_drain(x, fill);
        fill(x, f);
    } else {
        http_response_begin(x, 200, NULL, 0, -1);
        http_response_write(x, "abc", 3);
        f->x = x; /* ended by the test, or never */
    }
}

static void start(struct fixture *f, bool required, size_t max_beginning, uint64_t begin_ms)
{
    struct http_server_config config;

    http_server_config_default(&config);
    config.layer = tls_layer(tls, required);
    if (max_beginning)
        config.layer.max_beginning = max_beginning;
    if (begin_ms)
        config.layer.begin_timeout_ms = begin_ms;
    fixture_start(f, &config, handler);
}

/* Nothing is to be done: a loop that slept now would sleep on. */
static void assert_idle(struct fixture *f)
{
    struct pollfd p = {.fd = uv_backend_fd(&f->loop), .events = POLLIN};

    for (int i = 0; i < 100; i++)
        uv_run(&f->loop, UV_RUN_NOWAIT);
    assert_int_equal(poll(&p, 1, 0), 0);
}

/* -- the client -------------------------------------------------------------------------------- */

struct client {
    struct fixture *f;
    SSL *ssl;
    int fd;
};

static struct client client_open(struct fixture *f)
{
    struct client c = {.f = f, .ssl = SSL_new(client_ctx), .fd = fixture_client(f)};

    assert_int_equal(fcntl(c.fd, F_SETFL, O_NONBLOCK), 0);
    assert_int_equal(SSL_set_fd(c.ssl, c.fd), 1);
    SSL_set_connect_state(c.ssl);
    return c;
}

static void client_close(struct client *c)
{
    SSL_free(c->ssl);
    close(c->fd);
    fixture_spin(c->f);
}

/* Again until it is done, or failed otherwise than for want of the other side. */
static int client_do(struct client *c, int (*step)(struct client *c, void *arg), void *arg)
{
    for (int i = 0; i < TRIES; i++) {
        int r, why;

        ERR_clear_error();
        r = step(c, arg);
        why = SSL_get_error(c->ssl, r);
        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE)
            return why;
        uv_run(&c->f->loop, UV_RUN_NOWAIT);
    }
    fail_msg("it takes too long");
    return -1;
}

static int do_handshake(struct client *c, void *arg)
{
    return SSL_do_handshake(c->ssl);
}

static int do_read(struct client *c, void *arg)
{
    char bytes[16384];
    int n = SSL_read(c->ssl, bytes, sizeof(bytes));

    if (n > 0)
        assert_int_equal(buf_append(&got, bytes, (size_t)n), 0);
    return n;
}

struct bytes {
    const char *data;
    size_t len;
};

static int do_write(struct client *c, void *arg)
{
    struct bytes *b = arg;
    int n = SSL_write(c->ssl, b->data, (int)b->len);

    if (n > 0) {
        b->data += n;
        b->len -= (size_t)n;
    }
    return n;
}

static void client_send(struct client *c, const char *data, size_t len)
{
    struct bytes b = {data, len};

    while (b.len > 0)
        assert_int_equal(client_do(c, do_write, &b), SSL_ERROR_NONE);
    fixture_spin(c->f);
}

/* Reads until so many bytes are there, or the end. */
static int client_recv(struct client *c, size_t len)
{
    int why = SSL_ERROR_NONE;

    buf_clear(&got);
    while (got.len < len && why == SSL_ERROR_NONE)
        why = client_do(c, do_read, NULL);
    assert_int_equal(buf_append(&got, "", 1), 0);
    return why;
}

/* The answer to /big, whole, and so many bytes more. */
static int client_recv_big(struct client *c, size_t more)
{
    int why = SSL_ERROR_NONE;
    size_t want = SIZE_MAX;

    buf_clear(&got);
    while (got.len < want && why == SSL_ERROR_NONE) {
        const char *end;

        why = client_do(c, do_read, NULL);
        end = want == SIZE_MAX ? memmem(got.data, got.len, "\r\n\r\n", 4) : NULL;
        if (end)
            want = (size_t)(end + 4 - got.data) + BIG_BYTES + more;
    }
    assert_int_equal(buf_append(&got, "", 1), 0);
    return why;
}

static struct client client_ready(struct fixture *f)
{
    struct client c = client_open(f);

    assert_int_equal(client_do(&c, do_handshake, NULL), SSL_ERROR_NONE);
    return c;
}

#define SEND(c, text) client_send(c, text, sizeof(text) - 1)
#define GET(path)     "GET " path " HTTP/1.1\r\nHost: a\r\n\r\n"
#define LAST(path)    "GET " path " HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"

/* -- tests ------------------------------------------------------------------------------------- */

static void test_requests(void **state)
{
    struct fixture f;
    struct client c;

    start(&f, false, 0, 0);
    c = client_ready(&f);
    for (int i = 0; i < 3; i++) {
        SEND(&c, GET("/hello"));
        assert_int_equal(client_recv(&c, 60), SSL_ERROR_NONE);
        assert_non_null(strstr(got.data, "hello\n"));
    }
    SEND(&c, GET("/hello") LAST("/hello"));
    assert_int_equal(client_recv(&c, SIZE_MAX), SSL_ERROR_ZERO_RETURN); /* close_notify */
    assert_int_equal(f.calls, 5);
    fixture_spin(&f);
    assert_int_equal(http_server_connections(f.server), 0);
    client_close(&c);
    fixture_stop(&f);
}

static void test_large_bodies(void **state)
{
    static char body[3 * 1000 * 1000], head[200], want[64];
    struct fixture f;
    struct client c;
    uint32_t sum = 0;

    start(&f, false, 0, 0);
    c = client_ready(&f);
    SEND(&c, GET("/big"));
    assert_int_equal(client_recv_big(&c, 0), SSL_ERROR_NONE);
    for (size_t i = 0; i < sizeof(body); i++) {
        body[i] = (char)(i * 7 + i / 251);
        sum = sum * 31 + (unsigned char)body[i];
    }
    snprintf(head, sizeof(head), "POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: %zu\r\n\r\n",
             sizeof(body));
    snprintf(want, sizeof(want), "\r\n\r\n%zu %u", sizeof(body), sum);
    client_send(&c, head, strlen(head));
    client_send(&c, body, sizeof(body));
    assert_int_equal(client_recv(&c, 60), SSL_ERROR_NONE);
    assert_non_null(strstr(got.data, want));
    client_close(&c);
    fixture_stop(&f);
}

static void test_plain_beside_it(void **state)
{
    struct fixture f;
    int fd;

    start(&f, false, 0, 0);
    fd = fixture_client(&f);
    assert_idle(&f); /* a connection without a byte waits */
    fixture_send(&f, fd, GET("/hello"));
    assert_int_equal(fixture_recv(&f, fd, &got), FIXTURE_OPEN);
    assert_int_equal(buf_append(&got, "", 1), 0);
    assert_non_null(strstr(got.data, "hello\n"));
    close(fd);
    fixture_stop(&f);
}

static void test_required(void **state)
{
    struct fixture f;
    struct client c;
    int fd;

    start(&f, true, 0, 0);
    fd = fixture_client(&f);
    fixture_send(&f, fd, GET("/hello"));
    fixture_recv(&f, fd, &got);
    assert_int_equal(buf_append(&got, "", 1), 0);
    assert_ptr_equal(strstr(got.data, "HTTP/1.1 400 "), got.data);
    assert_int_equal(f.calls, 0);
    close(fd);
    c = client_ready(&f);
    SEND(&c, GET("/hello"));
    assert_int_equal(client_recv(&c, 60), SSL_ERROR_NONE);
    client_close(&c);
    fixture_stop(&f);
}

static void test_handshake_has_its_time(void **state)
{
    struct fixture f;
    int fd;

    start(&f, false, 0, 30);
    fd = fixture_client(&f);
    fixture_send(&f, fd, "\x16\x03\x01");
    assert_int_equal(http_server_connections(f.server), 1);
    assert_idle(&f);
    fixture_wait(&f, 100);
    assert_int_equal(http_server_connections(f.server), 0);
    close(fd);
    fixture_stop(&f);
}

static void test_the_slowest_makes_room(void **state)
{
    struct fixture f;
    struct client c;
    int fd[3];

    start(&f, false, 2, 0);
    for (int i = 0; i < 3; i++) {
        fd[i] = fixture_client(&f);
        fixture_send(&f, fd[i], "\x16\x03\x01");
    }
    assert_int_equal(http_server_connections(f.server), 2);
    assert_true(fixture_recv(&f, fd[0], &got) != FIXTURE_OPEN);
    assert_int_equal(fixture_recv(&f, fd[2], &got), FIXTURE_OPEN);
    c = client_ready(&f); /* the second goes */
    assert_true(fixture_recv(&f, fd[1], &got) != FIXTURE_OPEN);
    SEND(&c, GET("/hello"));
    assert_int_equal(client_recv(&c, 60), SSL_ERROR_NONE);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
    client_close(&c);
    fixture_stop(&f);
}

static void test_garbage(void **state)
{
    static const char *const texts[] = {"\x16GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01\x01\x01hello",
                                        "\x16\x16\x16\x16\x16\x16\x16\x16\x16\x16\x16\x16\x16"};
    struct fixture f;

    start(&f, false, 0, 30);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        int fd = fixture_client(&f);

        fixture_send(&f, fd, texts[i]);
        fixture_wait(&f, 60);
        assert_int_equal(http_server_connections(f.server), 0);
        close(fd);
    }
    fixture_stop(&f);
}

/* Requests to change keys, while the server cannot write its answers to them. */
static void test_key_updates(void **state)
{
    struct fixture f;
    struct client c;

    start(&f, false, 0, 0);
    c = client_ready(&f);
    SEND(&c, GET("/big"));
    for (int i = 0; i < 20; i++) {
        assert_int_equal(SSL_key_update(c.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        assert_int_equal(client_do(&c, do_handshake, NULL), SSL_ERROR_NONE);
    }
    SEND(&c, GET("/hello"));
    assert_idle(&f);
    assert_int_equal(client_recv_big(&c, 60), SSL_ERROR_NONE);
    assert_non_null(memmem(got.data, got.len, "\r\n\r\nhello\n", 10));
    client_close(&c);
    fixture_stop(&f);
}

static void test_key_updates_in_an_upload(void **state)
{
    static char body[100000];
    struct fixture f;
    struct client c;

    start(&f, false, 0, 0);
    c = client_ready(&f);
    SEND(&c, "POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
    for (int i = 0; i < 10; i++) {
        assert_int_equal(SSL_key_update(c.ssl, SSL_KEY_UPDATE_REQUESTED), 1);
        client_send(&c, body, sizeof(body));
    }
    assert_int_equal(client_recv(&c, 60), SSL_ERROR_NONE);
    assert_non_null(strstr(got.data, "1000000 0"));
    client_close(&c);
    fixture_stop(&f);
}

/* A peer that is gone without a word, in the middle and between requests. */
static void test_peer_is_gone(void **state)
{
    struct fixture f;
    struct client c;

    start(&f, false, 0, 0);
    c = client_ready(&f);
    SEND(&c, "POST /count HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\nabc");
    assert_int_equal(f.closes, 0);
    client_close(&c);
    fixture_wait(&f, 20);
    assert_int_equal(f.closes, 1);
    c = client_ready(&f);
    client_close(&c);
    fixture_wait(&f, 20);
    assert_int_equal(http_server_connections(f.server), 0);
    fixture_stop(&f);
}

/* The end that a client announces with its last request does not take the answer away. */
static void test_client_ends_first(void **state)
{
    struct fixture f;
    struct client c;

    start(&f, false, 0, 0);
    c = client_ready(&f);
    {
        struct bytes b = {LAST("/hello"), sizeof(LAST("/hello")) - 1};

        assert_int_equal(client_do(&c, do_write, &b), SSL_ERROR_NONE);
        SSL_shutdown(c.ssl);
    }
    fixture_spin(&f);
    assert_int_equal(client_recv(&c, SIZE_MAX), SSL_ERROR_ZERO_RETURN);
    assert_non_null(strstr(got.data, "hello\n"));
    client_close(&c);
    fixture_stop(&f);
}

/* A part that is missing is not announced as an end. */
static void test_a_cut_is_no_end(void **state)
{
    struct fixture f;
    struct client c;

    start(&f, false, 0, 0);
    c = client_ready(&f);
    SEND(&c, GET("/never"));
    assert_non_null(f.x);
    http_exchange_abort(f.x);
    fixture_spin(&f);
    assert_int_not_equal(client_recv(&c, SIZE_MAX), SSL_ERROR_ZERO_RETURN);
    client_close(&c);
    fixture_stop(&f);
}

static void test_stop(void **state)
{
    struct fixture f;
    struct client ready, busy;
    int fd[2];

    start(&f, false, 0, 0);
    ready = client_ready(&f);
    busy = client_ready(&f);
    SEND(&busy, GET("/never"));
    fd[0] = fixture_client(&f);
    fd[1] = fixture_client(&f);
    fixture_send(&f, fd[1], "\x16\x03");
    fixture_stop(&f);
    assert_int_equal(f.closes, 1);
    SSL_free(ready.ssl);
    SSL_free(busy.ssl);
    close(ready.fd);
    close(busy.fd);
    close(fd[0]);
    close(fd[1]);
}

static void test_bad_files(void **state)
{
    int a[2], b[2], empty = memfd_create("empty", MFD_CLOEXEC), pipe_fds[2];
    struct tls *none = NULL;
    struct err e;

    make_files(&a[0], &a[1]);
    make_files(&b[0], &b[1]);
    assert_int_equal(pipe(pipe_fds), 0);
    assert_int_equal(tls_load(a[0], b[1], NULL, &none, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "does not belong"));
    assert_int_equal(tls_load(a[1], a[1], NULL, &none, &e), ERR_INVALID);
    assert_int_equal(tls_load(a[0], a[0], NULL, &none, &e), ERR_INVALID);
    assert_int_equal(tls_load(empty, a[1], NULL, &none, &e), ERR_INVALID);
    assert_int_equal(tls_load(a[0], pipe_fds[0], NULL, &none, &e), ERR_INVALID);
    assert_null(none);
    for (int i = 0; i < 2; i++) {
        close(a[i]);
        close(b[i]);
        close(pipe_fds[i]);
    }
    close(empty);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests),
        cmocka_unit_test(test_large_bodies),
        cmocka_unit_test(test_plain_beside_it),
        cmocka_unit_test(test_required),
        cmocka_unit_test(test_handshake_has_its_time),
        cmocka_unit_test(test_the_slowest_makes_room),
        cmocka_unit_test(test_garbage),
        cmocka_unit_test(test_key_updates),
        cmocka_unit_test(test_key_updates_in_an_upload),
        cmocka_unit_test(test_peer_is_gone),
        cmocka_unit_test(test_client_ends_first),
        cmocka_unit_test(test_a_cut_is_no_end),
        cmocka_unit_test(test_stop),
        cmocka_unit_test(test_bad_files),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
