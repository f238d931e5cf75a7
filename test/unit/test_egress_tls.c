/* TLS ends after their handshakes, and the authority behind them, against OpenSSL's own ends in the
 * same thread. */
#include "egress/tls/ca.h"
#include "egress/tls/tlshand.h"
#include "egress/tls/turns.h"
#include "http/tls_conn.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <cmocka.h>

#define TRIES     20000
#define BIG_BYTES ((size_t)8 * 1000 * 1000)

static uv_loop_t loop;
static struct tlshands *hands;
static struct ca *ca;
static char state_dir[] = "/tmp/cay-test-egress-XXXXXX";
static SSL_CTX *server_ctx, *client_ctx;

/* The result of the last handshake. */
static struct {
    struct tls_endpoint end;
    int calls;
    enum err_code code;
    char text[400];
} ready;

static void on_done(void *arg, const struct tls_endpoint *end, const struct err *why)
{
    ready.calls++;
    ready.code = why ? why->code : ERR_OK;
    snprintf(ready.text, sizeof(ready.text), "%s", why ? why->text : "");
    if (end)
        ready.end = *end;
}

static int set_up(void **state)
{
    struct err e;

    signal(SIGPIPE, SIG_IGN);
    assert_non_null(mkdtemp(state_dir));
    assert_int_equal(uv_loop_init(&loop), 0);
    assert_int_equal(tlshands_new(&loop, &hands), 0);
    assert_int_equal(ca_new(state_dir, &ca, &e), ERR_OK);
    server_ctx = tls_conn_context(false);
    client_ctx = tls_conn_context(true);
    SSL_CTX_set_verify(client_ctx, SSL_VERIFY_PEER, NULL);
    return 0;
}

static int tear_down(void **state)
{
    char command[128];

    tlshands_free(hands);
    for (int i = 0; i < 100 && uv_loop_alive(&loop); i++)
        uv_run(&loop, UV_RUN_NOWAIT);
    assert_int_equal(uv_loop_close(&loop), 0);
    ca_free(ca);
    SSL_CTX_free(server_ctx);
    SSL_CTX_free(client_ctx);
    snprintf(command, sizeof(command), "rm -r %s", state_dir);
    return system(command);
}

static void turn(void)
{
    uv_run(&loop, UV_RUN_NOWAIT);
}

static void pair(int fds[2])
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
}

/* -- an authority's files ---------------------------------------------------------------------- */

static X509 *authority(const char *tenant)
{
    char *pem = NULL;
    struct err e;
    BIO *bio;
    X509 *x;

    assert_int_equal(ca_pem(ca, tenant, &pem, &e), ERR_OK);
    bio = BIO_new_mem_buf(pem, -1);
    x = PEM_read_bio_X509(bio, NULL, NULL, NULL);
    BIO_free(bio);
    free(pem);
    assert_non_null(x);
    return x;
}

static void trust(SSL_CTX *ctx, const char *tenant)
{
    X509 *x = authority(tenant);
    X509_STORE *store = X509_STORE_new();

    assert_int_equal(X509_STORE_add_cert(store, x), 1);
    SSL_CTX_set_cert_store(ctx, store);
    X509_free(x);
}

static void test_authority(void **state)
{
    char path[256], *pem = NULL;
    X509 *one = authority("acme"), *again, *other = authority("other");
    struct stat st;
    struct err e;
    struct ca *second;

    snprintf(path, sizeof(path), "%s/ca/acme.key", state_dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(X509_check_ca(one), 1);
    assert_int_equal(X509_get_pathlen(one), 0);
    assert_int_not_equal(X509_cmp(one, other), 0);
    /* It is the same after a restart, and for another process. */
    assert_int_equal(ca_new(state_dir, &second, &e), ERR_OK);
    assert_int_equal(ca_pem(second, "acme", &pem, &e), ERR_OK);
    ca_free(second);
    again = authority("acme");
    assert_int_equal(X509_cmp(one, again), 0);
    free(pem);
    X509_free(one);
    X509_free(again);
    X509_free(other);
}

static void test_no_such_tenant(void **state)
{
    static const char *const names[] = {
        "",
        "../x",
        "a/b",
        ".hidden",
        "a b",
        "\xff",
        "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"};
    char *pem = NULL;
    struct err e;

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        assert_int_equal(ca_pem(ca, names[i], &pem, &e), ERR_INVALID);
}

static void test_damaged_authority(void **state)
{
    char path[256], *pem = NULL;
    struct err e;
    int fd;

    snprintf(path, sizeof(path), "%s/ca/damaged.key", state_dir);
    fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_int_equal(write(fd, "nonsense\n", 9), 9);
    close(fd);
    assert_int_equal(ca_pem(ca, "damaged", &pem, &e), ERR_INTERNAL);
    assert_non_null(strstr(e.text, "ca/damaged.key is damaged"));
    /* A link is not followed. */
    snprintf(path, sizeof(path), "%s/ca/link.key", state_dir);
    assert_int_equal(symlink("acme.key", path), 0);
    assert_int_equal(ca_pem(ca, "link", &pem, &e), ERR_INTERNAL);
}

static SSL *leaf(const char *tenant, const char *name, const char *address)
{
    SSL *ssl = SSL_new(server_ctx);
    struct policy_address a;
    struct err e;

    if (address)
        assert_int_equal(policy_address_parse(address, &a), 0);
    assert_int_equal(ca_use(ca, tenant, name, &a, ssl, &e), ERR_OK);
    SSL_set_accept_state(ssl);
    return ssl;
}

static bool verifies(const char *tenant, X509 *cert)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();
    X509 *root = authority(tenant);
    bool good;

    X509_STORE_add_cert(store, root);
    X509_STORE_CTX_init(ctx, store, cert, NULL);
    X509_STORE_CTX_set_default(ctx, "ssl_server");
    good = X509_verify_cert(ctx) == 1;
    X509_STORE_CTX_free(ctx);
    X509_STORE_free(store);
    X509_free(root);
    return good;
}

static void test_leafs(void **state)
{
    SSL *ssl = leaf("acme", "api.example.com", NULL),
        *again = leaf("acme", "api.example.com", NULL);
    SSL *number = leaf("acme", NULL, "192.0.2.7"), *six = leaf("acme", NULL, "2001:db8::7");
    X509 *cert = SSL_get_certificate(ssl);
    int days = 0, seconds = 0;

    assert_int_equal(X509_cmp(cert, SSL_get_certificate(again)), 0);
    assert_int_equal(X509_check_host(cert, "api.example.com", 0, 0, NULL), 1);
    assert_int_equal(X509_check_host(cert, "example.com", 0, 0, NULL), 0);
    assert_int_equal(X509_check_ip_asc(SSL_get_certificate(number), "192.0.2.7", 0), 1);
    assert_int_equal(X509_check_ip_asc(SSL_get_certificate(six), "2001:db8::7", 0), 1);
    assert_int_equal(X509_check_ca(cert), 0);
    assert_true(verifies("acme", cert));
    assert_false(verifies("other", cert));
    assert_int_equal(X509_cmp_current_time(X509_get0_notBefore(cert)), -1);
    ASN1_TIME_diff(&days, &seconds, X509_get0_notBefore(cert), X509_get0_notAfter(cert));
    assert_int_equal(days, 8);
    SSL_free(ssl);
    SSL_free(again);
    SSL_free(number);
    SSL_free(six);
}

static void test_leafs_are_bounded(void **state)
{
    for (unsigned i = 0; i < CA_LEAFS_MAX + 20; i++) {
        char name[64];

        snprintf(name, sizeof(name), "h%u.example.com", i);
        SSL_free(leaf("acme", name, NULL));
    }
    assert_int_equal(ca_leafs(ca), CA_LEAFS_MAX);
}

/* A name of 253 characters does not fit a subject, and need not. */
static void test_long_name(void **state)
{
    char name[254];
    SSL *ssl;

    for (size_t i = 0; i < 253; i++)
        name[i] = i % 50 == 49 ? '.' : 'a';
    name[253] = '\0';
    ssl = leaf("acme", name, NULL);
    assert_int_equal(X509_check_host(SSL_get_certificate(ssl), name, 0, 0, NULL), 1);
    SSL_free(ssl);
}

/* -- ends -------------------------------------------------------------------------------------- */

static struct tlshand *start(int fd, SSL *ssl, bool server, uint64_t ms)
{
    struct tlshand_options o = {
        .fd = fd, .ssl = ssl, .server = server, .timeout_ms = ms, .on_done = on_done};
    struct tlshand *h;

    memset(&ready, 0, sizeof(ready));
    ready.end.fd = -1;
    assert_int_equal(tlshand_start(hands, &o, &h), 0);
    assert_int_equal(ready.calls, 0); /* never from inside */
    return h;
}

static SSL *client(const char *name)
{
    SSL *ssl = SSL_new(client_ctx);

    SSL_set1_host(ssl, name);
    SSL_set_tlsext_host_name(ssl, name);
    SSL_set_connect_state(ssl);
    return ssl;
}

/* peer (whose socket is set) and the end that was started shake hands. */
static void shake(SSL *peer)
{
    int r = 0;

    for (int i = 0; i < TRIES && (r != 1 || ready.calls == 0); i++) {
        if (r != 1)
            r = SSL_do_handshake(peer);
        turn();
    }
    assert_int_equal(r, 1);
    assert_int_equal(ready.calls, 1);
    assert_true(ready.end.fd >= 0);
}

/* An end as a server, and a client of OpenSSL at its socket. */
static SSL *open_server(void)
{
    int fds[2];
    SSL *peer;

    trust(client_ctx, "acme");
    pair(fds);
    start(fds[0], leaf("acme", "a.example", NULL), true, 5000);
    peer = client("a.example");
    SSL_set_fd(peer, fds[1]);
    shake(peer);
    return peer;
}

static SSL *open_client(SSL *server)
{
    int fds[2];

    trust(client_ctx, "acme");
    pair(fds);
    start(fds[0], client("a.example"), false, 5000);
    SSL_set_fd(server, fds[1]);
    shake(server);
    return server;
}

static void close_peer(SSL *peer)
{
    close(SSL_get_fd(peer));
    SSL_free(peer);
}

static char pattern(size_t at)
{
    return (char)(at * 7 + at / 251);
}

/* Handshakes that came to nothing leave nothing. */
static void wait_over(void)
{
    for (int i = 0; i < TRIES && tlshands_count(hands) > 0; i++)
        turn();
    assert_int_equal(tlshands_count(hands), 0);
}

/* BIG_BYTES from the peer, which is held up while nothing is read. */
static void big_inward(SSL *peer)
{
    static char out[50000], in[TLS_ENDPOINT_READ_BYTES];
    size_t sent = 0, got = 0;

    for (int i = 0; i < 200000 && got < BIG_BYTES; i++) {
        size_t n = MIN(sizeof(out), BIG_BYTES - sent), wrote;
        ssize_t r;

        for (size_t k = 0; k < n; k++)
            out[k] = pattern(sent + k);
        if (n > 0 && SSL_write_ex(peer, out, n, &wrote) == 1)
            sent += wrote;
        r = i < 200 ? -1 : tls_endpoint_read(&ready.end, in, sizeof(in));
        for (ssize_t k = 0; k < r; k++)
            assert_int_equal(in[k], pattern(got + (size_t)k));
        got += r > 0 ? (size_t)r : 0;
        if (i == 199)
            assert_true(sent < BIG_BYTES / 2);
    }
    assert_int_equal(got, BIG_BYTES);
}

static void big_outward(SSL *peer)
{
    static char out[50000], in[70000];
    size_t sent = 0, got = 0;

    for (int i = 0; i < 200000 && got < BIG_BYTES; i++) {
        size_t n = MIN(sizeof(out), BIG_BYTES - sent), have = 0;
        ssize_t r;

        for (size_t k = 0; k < n; k++)
            out[k] = pattern(sent + k);
        r = n > 0 ? tls_endpoint_write(&ready.end, out, n) : 0;
        sent += r > 0 ? (size_t)r : 0;
        if (i >= 200 && SSL_read_ex(peer, in, sizeof(in), &have) == 1)
            for (size_t k = 0; k < have; k++)
                assert_int_equal(in[k], pattern(got + k));
        got += have;
        if (i == 199)
            assert_true(sent < BIG_BYTES / 2);
    }
    assert_int_equal(got, BIG_BYTES);
}

static void close_end(void)
{
    tls_endpoint_close(&ready.end, true);
}

static void test_server_bytes(void **state)
{
    SSL *peer = open_server();
    const unsigned char *alpn;
    unsigned n;

    SSL_get0_alpn_selected(peer, &alpn, &n);
    assert_int_equal(n, 8);
    assert_memory_equal(alpn, "http/1.1", 8);
    big_inward(peer);
    big_outward(peer);
    close_end();
    close_peer(peer);
}

static void test_client_bytes(void **state)
{
    SSL *peer = open_client(leaf("acme", "a.example", NULL));

    assert_string_equal(SSL_get_servername(peer, TLSEXT_NAMETYPE_host_name), "a.example");
    big_outward(peer);
    big_inward(peer);
    close_end();
    close_peer(peer);
}

/* Each side ends on its own: bytes after the end of the other still arrive. */
static void test_half_close(void **state)
{
    SSL *peer = open_server();
    char text[HTTP_LAYER_READ_BYTES];
    int r;

    assert_int_equal(SSL_write(peer, "last", 4), 4);
    SSL_shutdown(peer);
    shutdown(SSL_get_fd(peer), SHUT_WR);
    assert_int_equal(tls_endpoint_read(&ready.end, text, sizeof(text)), 4);
    assert_int_equal(tls_endpoint_read(&ready.end, text, sizeof(text)), 0);
    assert_true(ready.end.clean);
    assert_int_equal(tls_endpoint_write(&ready.end, "answer", 6), 6);
    assert_true(tls_endpoint_shut(&ready.end));
    assert_int_equal(SSL_read(peer, text, sizeof(text)), 6);
    r = SSL_read(peer, text, sizeof(text));
    assert_int_equal(SSL_get_error(peer, r), SSL_ERROR_ZERO_RETURN); /* announced */
    close_end();
    close_peer(peer);
}

/* The bytes that came before are read first. An end that is not announced is told from a loss. */
static void test_peer_vanishes(void **state)
{
    static const ssize_t ends[] = {-ENODATA, -ECONNRESET};
    const struct http_layer_ops *ops = &tls_conn_ops;
    char text[HTTP_LAYER_READ_BYTES];

    for (size_t i = 0; i < ARRAY_SIZE(ends); i++) {
        SSL *peer = open_client(leaf("acme", "a.example", NULL));
        int fd = SSL_get_fd(peer);
        bool end = false;

        assert_int_equal(SSL_write(peer, "part", 4), 4);
        if (i == 1)
            assert_int_equal(write(fd, "no record of TLS", 16), 16);
        close(fd); /* no close_notify */
        SSL_free(peer);
        assert_int_equal(ops->read(ready.end.tls, text, sizeof(text), &end), 4);
        assert_int_equal(ops->read(ready.end.tls, text, sizeof(text), &end), ends[i]);
        assert_false(end);
        close_end();
    }
}

static void test_closed_in_handshake(void **state)
{
    int fds[2];
    struct tlshand *h;

    pair(fds);
    h = start(fds[0], leaf("acme", "a.example", NULL), true, 5000);
    turn();
    tlshand_close(h);
    wait_over();
    assert_int_equal(ready.calls, 0);
    close(fds[1]);
}

/* -- handshakes that fail ---------------------------------------------------------------------- */

static void wait_ready(SSL *peer)
{
    for (int i = 0; i < TRIES && ready.calls == 0; i++) {
        if (peer)
            SSL_do_handshake(peer);
        turn();
    }
    assert_int_equal(ready.calls, 1);
    assert_int_equal(ready.end.fd, -1);
    ERR_clear_error();
    wait_over();
}

/* The client meets a server with this certificate. */
static void meet(SSL *server, const char *name, const char *expected)
{
    int fds[2];

    pair(fds);
    start(fds[0], client(name), false, 5000);
    SSL_set_fd(server, fds[1]);
    wait_ready(server);
    assert_int_equal(ready.code, ERR_UNAVAILABLE);
    if (!strstr(ready.text, expected))
        fail_msg("\"%s\" is not in \"%s\"", expected, ready.text);
    close_peer(server);
}

/* A certificate made by hand: from a key of its own, or by the authority of file acme.key. */
static SSL *odd_server(long from_seconds, long to_seconds, bool self_signed)
{
    EVP_PKEY *key = EVP_EC_gen("P-256"), *ca_key;
    X509 *x = X509_new(), *root;
    X509V3_CTX ctx;
    X509_EXTENSION *san;
    char path[256];
    SSL *ssl = SSL_new(server_ctx);
    FILE *f;

    snprintf(path, sizeof(path), "%s/ca/acme.key", state_dir);
    f = fopen(path, "re");
    assert_non_null(f);
    ca_key = PEM_read_PrivateKey(f, NULL, NULL, NULL);
    root = PEM_read_X509(f, NULL, NULL, NULL);
    fclose(f);
    X509_set_version(x, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 7);
    X509_gmtime_adj(X509_getm_notBefore(x), from_seconds);
    X509_gmtime_adj(X509_getm_notAfter(x), to_seconds);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               (const unsigned char *)"a.example", -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(self_signed ? x : root));
    X509_set_pubkey(x, key);
    X509V3_set_ctx(&ctx, x, x, NULL, NULL, 0);
    san = X509V3_EXT_conf_nid(NULL, &ctx, NID_subject_alt_name, "DNS:a.example");
    X509_add_ext(x, san, -1);
    assert_true(X509_sign(x, self_signed ? key : ca_key, EVP_sha256()) > 0);
    SSL_use_certificate(ssl, x);
    SSL_use_PrivateKey(ssl, key);
    SSL_set_accept_state(ssl);
    X509_EXTENSION_free(san);
    X509_free(x);
    X509_free(root);
    EVP_PKEY_free(key);
    EVP_PKEY_free(ca_key);
    return ssl;
}

static void test_bad_certificates(void **state)
{
    trust(client_ctx, "acme");
    meet(odd_server(-1000, -10, false), "a.example", "its certificate has expired");
    meet(odd_server(1000, 2000, false), "a.example", "its certificate is not valid yet");
    meet(odd_server(-1000, 1000, true), "a.example", "its certificate is self-signed");
    meet(leaf("acme", "b.example", NULL), "a.example", "its certificate is for another name");
    meet(leaf("other", "a.example", NULL), "a.example", "from an authority that is not known");
}

/* The control: made in the same way, and good. */
static void test_good_certificate(void **state)
{
    SSL *peer = open_client(odd_server(-1000, 1000, false));

    close_end();
    close_peer(peer);
}

static void test_only_h2(void **state)
{
    int fds[2];
    SSL *peer;

    trust(client_ctx, "acme");
    pair(fds);
    start(fds[0], leaf("acme", "a.example", NULL), true, 5000);
    peer = client("a.example");
    SSL_set_alpn_protos(peer, (const unsigned char *)"\x02h2", 3);
    SSL_set_fd(peer, fds[1]);
    for (int i = 0; i < TRIES && ready.calls == 0; i++, turn())
        SSL_do_handshake(peer);
    assert_int_equal(ready.end.fd, -1);
    assert_non_null(strstr(ready.text, "application protocol"));
    ERR_clear_error();
    assert_int_not_equal(SSL_do_handshake(peer), 1);
    assert_int_equal(ERR_GET_REASON(ERR_peek_last_error()),
                     SSL_AD_REASON_OFFSET + SSL_AD_NO_APPLICATION_PROTOCOL);
    ERR_clear_error();
    wait_over();
    close_peer(peer);
}

static void test_untrusting_client(void **state)
{
    int fds[2];
    SSL *peer;

    trust(client_ctx, "other");
    pair(fds);
    start(fds[0], leaf("acme", "a.example", NULL), true, 5000);
    peer = client("a.example");
    SSL_set_fd(peer, fds[1]);
    wait_ready(peer);
    assert_non_null(strstr(ready.text, "unknown ca"));
    close_peer(peer);
}

static void test_nonsense(void **state)
{
    int fds[2];

    pair(fds);
    start(fds[0], leaf("acme", "a.example", NULL), true, 5000);
    assert_int_equal(send(fds[1], "GET / HTTP/1.1\r\n\r\n", 18, 0), 18);
    wait_ready(NULL);
    assert_int_equal(ready.code, ERR_UNAVAILABLE);
    close(fds[1]);
    pair(fds);
    start(fds[0], client("a.example"), false, 5000);
    close(fds[1]);
    wait_ready(NULL);
    assert_non_null(strstr(ready.text, "it ended in the handshake"));
}

/* A silent client does not hold its share for ever. */
static void test_late(void **state)
{
    int fds[2];

    pair(fds);
    start(fds[0], leaf("acme", "a.example", NULL), true, 1);
    while (ready.calls == 0)
        uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(ready.code, ERR_TIMEOUT);
    wait_over();
    close(fds[1]);
}

static void start_of(int fd, uint64_t owner)
{
    struct tlshand_options o = {.fd = fd,
                                .ssl = leaf("acme", "a.example", NULL),
                                .server = true,
                                .tenant = "acme",
                                .owner = owner,
                                .timeout_ms = 60000,
                                .on_done = on_done};

    assert_int_equal(tlshand_start(hands, &o, NULL), 0);
}

/* Handshakes that stall: a sandbox that has its share ends its own oldest with one more, and a
 * neighbour's go on. */
static void test_crowd(void **state)
{
    enum { SHARE = TLSHAND_MAX / 3 + 1, MORE = 5 };
    static int far[1 + SHARE + MORE];
    char byte;

    memset(&ready, 0, sizeof(ready));
    for (size_t i = 0; i < ARRAY_SIZE(far); i++) {
        int fds[2];

        pair(fds);
        far[i] = fds[1];
        start_of(fds[0], i == 0 ? 1 : 2); /* the oldest of all is the neighbour's */
    }
    while (ready.calls < MORE)
        uv_run(&loop, UV_RUN_ONCE);
    assert_int_equal(ready.code, ERR_EXHAUSTED);
    for (int i = 1; i <= MORE - 1; i++)
        assert_int_equal(recv(far[i], &byte, 1, MSG_DONTWAIT), 0); /* the oldest of its own */
    assert_int_equal(recv(far[0], &byte, 1, MSG_DONTWAIT), -1);
    assert_int_equal(recv(far[MORE + 3], &byte, 1, MSG_DONTWAIT), -1);
    for (size_t i = 0; i < ARRAY_SIZE(far); i++)
        close(far[i]);
    wait_over();
}

/* -- turns ------------------------------------------------------------------------------------- */

/* Before any owner was alone for long enough. */
static uint64_t stands_still(void)
{
    return 1;
}

#define FLOWS 8

/* Flows whose work never ends: each does what one event brings, or less, and waits for the next. */
struct flows {
    struct turns *turns; /* NULL: none */
    size_t all;
    struct flow {
        struct flows *of;
        struct turn turn;
        size_t bytes;
    } flow[FLOWS];
};

#define PIECES 4 /* of an event */

static void work(void *arg)
{
    struct flow *w = arg;

    for (int i = 0; i < PIECES && turns_may(w->of->turns, &w->turn); i++) {
        w->bytes += TURNS_BESIDE_BYTES / PIECES;
        w->of->all += TURNS_BESIDE_BYTES / PIECES;
        turns_spend(w->of->turns, TURNS_BESIDE_BYTES / PIECES);
    }
    if (w->of->turns)
        turns_wait(w->of->turns, &w->turn);
}

/* The last has an owner of its own. */
static void open_flows(struct flows *f, bool shared)
{
    *f = (struct flows){0};
    if (shared) {
        assert_int_equal(turns_new(&loop, &f->turns), 0);
        turns_set_clock(f->turns, stands_still, stands_still); /* it is bytes that count here */
    }
    for (int i = 0; i < FLOWS; i++) {
        struct flow *w = &f->flow[i];

        w->of = f;
        w->turn = (struct turn){.go = work, .arg = w, .owner = i == FLOWS - 1 ? 2 : 1};
        work(w);
    }
}

static void close_flows(struct flows *f)
{
    for (int i = 0; i < FLOWS; i++)
        turns_leave(f->turns, &f->flow[i].turn);
    turns_free(f->turns);
    turn();
}

/* Flows are worked on a little in each turn of the loop, however many they are, and go on in
 * the next. The control is the same without turns: all of them are at once. */
static void test_turns_are_short(void **state)
{
    struct flows f;

    open_flows(&f, false);
    assert_int_equal(f.all, FLOWS * TURNS_BESIDE_BYTES); /* the control */
    open_flows(&f, true);
    assert_int_equal(f.all, TURNS_BESIDE_BYTES);
    for (size_t i = 0; i < 100; i++) {
        f.all = 0;
        turn();
        assert_int_equal(f.all, TURNS_BESIDE_BYTES);
    }
    close_flows(&f);
}

/* Seven flows of one owner and one of another: each owner has half of what there is. */
static void test_turns_go_by_owner(void **state)
{
    struct flows f;

    open_flows(&f, true);
    for (int i = 0; i < 280; i++)
        turn();
    for (int i = 0; i < FLOWS - 1; i++) /* the control: one of the owner's own has its part of it */
        assert_in_range(f.flow[FLOWS - 1].bytes / MAX(f.flow[i].bytes, (size_t)1), FLOWS - 2,
                        FLOWS);
    close_flows(&f);
}

/* A waiter may be taken out at any place. */
static void count_go(void *arg)
{
    ++*(int *)arg;
}

static void test_turns_are_left(void **state)
{
    int gone[4] = {0};
    struct turn w[4];
    struct turns *turns;

    assert_int_equal(turns_new(&loop, &turns), 0);
    turns_set_clock(turns, stands_still, stands_still); /* it is bytes that count here */
    turns_spend(turns, TURNS_BESIDE_BYTES + 1);
    for (int i = 0; i < 4; i++) {
        w[i] = (struct turn){.go = count_go, .arg = &gone[i], .owner = (uint64_t)i / 3};
        assert_false(turns_may(turns, &w[i]));
        turns_wait(turns, &w[i]);
        turns_wait(turns, &w[i]); /* as good as once */
    }
    turns_leave(turns, &w[2]);
    turns_leave(turns, &w[0]);
    turns_leave(turns, &w[0]);
    turn();
    assert_true(gone[0] == 0 && gone[1] == 1 && gone[2] == 0 && gone[3] == 1);
    assert_true(turns_may(turns, &w[1]));
    turn();
    assert_true(gone[1] == 1 && gone[3] == 1);
    turns_free(turns);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_authority),
        cmocka_unit_test(test_no_such_tenant),
        cmocka_unit_test(test_damaged_authority),
        cmocka_unit_test(test_leafs),
        cmocka_unit_test(test_long_name),
        cmocka_unit_test(test_server_bytes),
        cmocka_unit_test(test_client_bytes),
        cmocka_unit_test(test_half_close),
        cmocka_unit_test(test_peer_vanishes),
        cmocka_unit_test(test_closed_in_handshake),
        cmocka_unit_test(test_bad_certificates),
        cmocka_unit_test(test_good_certificate),
        cmocka_unit_test(test_only_h2),
        cmocka_unit_test(test_untrusting_client),
        cmocka_unit_test(test_nonsense),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_crowd),
        cmocka_unit_test(test_turns_are_short),
        cmocka_unit_test(test_turns_go_by_owner),
        cmocka_unit_test(test_turns_are_left),
        cmocka_unit_test(test_leafs_are_bounded),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
