/* A peer's records over TLS that are no content: messages that are passed over, a handshake in
 * pieces, session tickets, key updates, requests to begin anew. Against OpenSSL's own ends over
 * a pair of sockets, and against bytes made here where OpenSSL does not send such. */
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <errno.h>

#include "http/tls_conn.h"

#define TURNS      200 /* of a handshake, or until something has come: a few are enough */
#define RECORD_MAX 16384

static EVP_PKEY *key;
static X509 *cert;

/* Ours, and a peer of OpenSSL's own. */
static struct {
    void *layer;
    SSL *peer;
    int fds[2];
} w;

static int set_up(void **state)
{
    key = EVP_EC_gen("P-256");
    cert = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -60);
    X509_gmtime_adj(X509_getm_notAfter(cert), 3600);
    X509_set_pubkey(cert, key);
    return X509_sign(cert, key, EVP_sha256()) > 0 ? 0 : -1;
}

static int tear_down(void **state)
{
    X509_free(cert);
    EVP_PKEY_free(key);
    return 0;
}

/* ctx is taken over. */
static SSL *end_of(SSL_CTX *ctx, bool server, int fd)
{
    SSL *ssl;

    assert_non_null(ctx);
    if (server) {
        assert_int_equal(SSL_CTX_use_certificate(ctx, cert), 1);
        assert_int_equal(SSL_CTX_use_PrivateKey(ctx, key), 1);
    }
    ssl = SSL_new(ctx);
    SSL_CTX_free(ctx);
    assert_int_equal(SSL_set_fd(ssl, fd), 1);
    if (server)
        SSL_set_accept_state(ssl);
    else
        SSL_set_connect_state(ssl);
    return ssl;
}

static void open_pair(void)
{
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, w.fds), 0);
}

/* Shaken hands; ours is the server or the client. */
static void open_line(bool server, int version)
{
    const SSL_METHOD *theirs = server ? TLS_client_method() : TLS_server_method();
    SSL_CTX *ctx = SSL_CTX_new(theirs);
    int ours = -EAGAIN, peer = 0;

    open_pair();
    assert_int_equal(SSL_CTX_set_max_proto_version(ctx, version), 1);
    SSL_CTX_set_num_tickets(ctx, 0);
    w.peer = end_of(ctx, !server, w.fds[1]);
    w.layer = tls_conn_new(end_of(tls_conn_context(!server), server, w.fds[0]));
    assert_non_null(w.layer);
    for (int i = 0; i < TURNS && (ours != 0 || peer != 1); i++) {
        peer = SSL_do_handshake(w.peer);
        ours = tls_conn_ops.begin(w.layer);
    }
    assert_int_equal(ours, 0);
    assert_int_equal(peer, 1);
}

static void close_line(void)
{
    tls_conn_ops.close(w.layer);
    SSL_free(w.peer);
    close(w.fds[0]);
    close(w.fds[1]);
    ERR_clear_error();
}

/* Reads until something comes: how much, or why not. */
static ssize_t read_some(void)
{
    static char in[RECORD_MAX];
    bool end = false;
    ssize_t n = -EAGAIN;

    for (int i = 0; i < TURNS && (n == -EAGAIN || n == -EINPROGRESS); i++)
        n = tls_conn_ops.read(w.layer, in, sizeof(in), &end);
    return n;
}

static void say(const char *text)
{
    assert_int_equal(SSL_write(w.peer, text, (int)strlen(text)), (int)strlen(text));
}

/* The peer's answers are not read by OpenSSL, which would end at some of them. */
static void forget_answers(void)
{
    char in[4096];

    while (recv(w.fds[1], in, sizeof(in), 0) > 0)
        ;
}

/* -- after the handshake ----------------------------------------------------------------------- */

static void update_keys(void)
{
    assert_int_equal(SSL_key_update(w.peer, SSL_KEY_UPDATE_REQUESTED), 1);
    assert_int_equal(SSL_do_handshake(w.peer), 1);
}

static void send_ticket(void)
{
    assert_int_equal(SSL_new_session_ticket(w.peer), 1);
    assert_int_equal(SSL_do_handshake(w.peer), 1);
}

static void ask_for_another(void)
{
    assert_int_equal(SSL_renegotiate(w.peer), 1);
    assert_int_equal(SSL_do_handshake(w.peer), 1);
}

/* So many of them bring the content behind them, and one more none. The first are the control. The
 * content in between begins the count anew. */
static void assert_bounded(bool server, int version, void (*message)(void))
{
    open_line(server, version);
    say("a"); /* of the handshake's own messages none counts any more */
    assert_int_equal(read_some(), 1);
    for (int round = 0; round < 3; round++) {
        for (unsigned i = 0; i < TLS_CONN_MESSAGES_MAX; i++) {
            message();
            forget_answers();
        }
        say("b");
        assert_int_equal(read_some(), 1);
        forget_answers();
    }
    for (unsigned i = 0; i < TLS_CONN_MESSAGES_MAX + 1; i++)
        message();
    say("c");
    assert_int_equal(read_some(), -ECONNRESET);
    assert_string_equal(tls_conn_reason(w.layer), "too many handshake messages");
    assert_int_equal(read_some(), -ECONNRESET);
    close_line();
}

static void test_key_updates(void **state)
{
    assert_bounded(true, TLS1_3_VERSION, update_keys);
    assert_bounded(false, TLS1_3_VERSION, update_keys);
}

static void test_tickets(void **state)
{
    assert_bounded(false, TLS1_3_VERSION, send_ticket);
}

static void test_hello_requests(void **state)
{
    assert_bounded(false, TLS1_2_VERSION, ask_for_another);
}

/* A client that begins anew is told that this is not done, and its connection goes on. */
static void test_renegotiation(void **state)
{
    char in[8] = "b";

    open_line(true, TLS1_2_VERSION);
    assert_int_equal(SSL_renegotiate(w.peer), 1);
    assert_int_equal(SSL_do_handshake(w.peer), -1); /* waits for a ServerHello */
    assert_int_equal(read_some(), -EAGAIN);
    assert_int_equal(SSL_do_handshake(w.peer), -1);
    assert_int_equal(ERR_GET_REASON(ERR_peek_last_error()), SSL_R_NO_RENEGOTIATION);
    close_line();
    open_line(true, TLS1_2_VERSION); /* the control */
    say("a");
    assert_int_equal(read_some(), 1);
    assert_int_equal(tls_conn_ops.write(w.layer, &(struct iovec){in, 1}, 1), 1);
    assert_int_equal(SSL_read(w.peer, in, sizeof(in)), 1);
    close_line();
}

/* -- in the handshake -------------------------------------------------------------------------- */

/* A client's end of ours, or of OpenSSL's own (the control), whose server is bytes made here. */
static void begin_client(bool ours)
{
    char in[RECORD_MAX];

    open_pair();
    w.layer = NULL;
    w.peer = NULL;
    if (ours) {
        w.layer = tls_conn_new(end_of(tls_conn_context(true), false, w.fds[0]));
        assert_int_equal(tls_conn_ops.begin(w.layer), -EAGAIN);
    } else {
        w.peer = end_of(SSL_CTX_new(TLS_client_method()), false, w.fds[0]);
        assert_int_equal(SSL_do_handshake(w.peer), -1);
    }
    assert_true(recv(w.fds[1], in, sizeof(in), 0) > 0); /* its ClientHello */
}

static void end_client(void)
{
    if (w.layer)
        tls_conn_ops.close(w.layer);
    SSL_free(w.peer);
    close(w.fds[0]);
    close(w.fds[1]);
    ERR_clear_error();
}

static size_t left(void)
{
    int n = 0;

    assert_int_equal(ioctl(w.fds[0], FIONREAD, &n), 0);
    return (size_t)n;
}

/* A record of HelloRequests: four bytes each, which a client passes over in its handshake. */
static void send_hello_requests(void)
{
    static char record[5 + RECORD_MAX] = "\x16\x03\x03\x40"; /* the rest is zero */

    assert_int_equal(send(w.fds[1], record, sizeof(record), MSG_NOSIGNAL), sizeof(record));
}

static void test_hello_requests_in_the_handshake(void **state)
{
    int rc = -EAGAIN;

    begin_client(true);
    send_hello_requests();
    send_hello_requests();
    for (int i = 0; i < TURNS && rc == -EAGAIN; i++)
        rc = tls_conn_ops.begin(w.layer);
    assert_int_equal(rc, -ECONNRESET);
    assert_string_equal(tls_conn_reason(w.layer), "too many handshake messages");
    assert_int_equal(left(), 5 + RECORD_MAX); /* the second was not read */
    end_client();
    begin_client(false); /* the control: OpenSSL alone waits for more, whatever came */
    for (int i = 0; i < 3; i++) {
        send_hello_requests();
        send_hello_requests();
        assert_int_equal(SSL_get_error(w.peer, SSL_do_handshake(w.peer)), SSL_ERROR_WANT_READ);
        assert_int_equal(left(), 0);
    }
    end_client();
}

#define PIECES 5000

/* The beginning of a long ServerHello, in records of a byte. */
static void send_pieces(void)
{
    static const char head[] = {2, 0, (char)0xff, 0};
    static char records[PIECES][6];

    for (size_t i = 0; i < PIECES; i++) {
        memcpy(records[i], "\x16\x03\x03\0\x01", 5);
        records[i][5] = i < sizeof(head) ? head[i] : 0;
    }
    assert_int_equal(send(w.fds[1], records, sizeof(records), MSG_NOSIGNAL), sizeof(records));
}

/* They are read a few at a time: other events of the loop go on in between. */
static void test_a_handshake_in_pieces(void **state)
{
    size_t before, calls = 0;

    begin_client(true);
    send_pieces();
    for (before = left(); before > 0 && calls < PIECES; before = left(), calls++) {
        assert_int_equal(tls_conn_ops.begin(w.layer), -EAGAIN);
        assert_in_range(before - left(), 1, (size_t)TLS_CONN_READS_MAX / 2 * 6);
    }
    assert_int_equal(left(), 0);
    assert_true(calls >= PIECES / TLS_CONN_READS_MAX);
    end_client();
    begin_client(false); /* the control: OpenSSL alone takes all of them in one call */
    send_pieces();
    assert_int_equal(SSL_get_error(w.peer, SSL_do_handshake(w.peer)), SSL_ERROR_WANT_READ);
    assert_int_equal(left(), 0);
    end_client();
}

/* Contents in records of a byte, into a large buffer: likewise. */
static void test_contents_in_pieces(void **state)
{
    static char in[4 * RECORD_MAX];
    size_t got = 0, calls = 0;
    bool end = false;

    open_line(true, TLS1_3_VERSION);
    for (int i = 0; i < 200; i++)
        say("x");
    for (; got < 200 && calls < TURNS; calls++) {
        ssize_t n = tls_conn_ops.read(w.layer, in, sizeof(in), &end);

        assert_in_range(n, 1, TLS_CONN_READS_MAX / 2);
        got += (size_t)n;
    }
    assert_int_equal(got, 200);
    assert_true(calls > 200 / TLS_CONN_READS_MAX);
    close_line();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_key_updates),
        cmocka_unit_test(test_tickets),
        cmocka_unit_test(test_hello_requests),
        cmocka_unit_test(test_renegotiation),
        cmocka_unit_test(test_hello_requests_in_the_handshake),
        cmocka_unit_test(test_a_handshake_in_pieces),
        cmocka_unit_test(test_contents_in_pieces),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
