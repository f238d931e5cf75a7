/* The choices that a context of TLS leaves to a peer, against OpenSSL's own ends, in memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include "http/tls_conn.h"

#define ROUNDS 10 /* of a handshake: none takes more than three */

static EVP_PKEY *key;
static X509 *cert;

static int set_up(void **state)
{
    key = EVP_RSA_gen(2048); /* DHE of TLS 1.2 wants RSA */
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

static SSL_CTX *with_key(SSL_CTX *server)
{
    assert_non_null(server);
    assert_int_equal(SSL_CTX_use_certificate(server, cert), 1);
    assert_int_equal(SSL_CTX_use_PrivateKey(server, key), 1);
    return server;
}

/* Takes both contexts over. */
static bool shake_hands(SSL_CTX *server, SSL_CTX *client)
{
    SSL *ends[2] = {SSL_new(server), SSL_new(client)};
    BIO *a, *b;
    bool done = false;

    assert_int_equal(BIO_new_bio_pair(&a, 0, &b, 0), 1);
    SSL_set_bio(ends[0], a, a);
    SSL_set_bio(ends[1], b, b);
    SSL_set_accept_state(ends[0]);
    SSL_set_connect_state(ends[1]);
    for (int i = 0; i < ROUNDS && !done; i++) {
        int client_done = SSL_do_handshake(ends[1]), server_done = SSL_do_handshake(ends[0]);

        done = client_done == 1 && server_done == 1;
    }
    ERR_clear_error();
    SSL_free(ends[0]);
    SSL_free(ends[1]);
    SSL_CTX_free(server);
    SSL_CTX_free(client);
    return done;
}

/* A context of OpenSSL's own that takes these groups alone, and these versions. */
static SSL_CTX *peer(const SSL_METHOD *method, int version, const char *groups)
{
    SSL_CTX *ctx = SSL_CTX_new(method);

    assert_int_equal(SSL_CTX_set_min_proto_version(ctx, version), 1);
    assert_int_equal(SSL_CTX_set_max_proto_version(ctx, version), 1);
    assert_int_equal(SSL_CTX_set1_groups_list(ctx, groups), 1);
    return ctx;
}

static SSL_CTX *server_of_dhe(const char *ciphers)
{
    SSL_CTX *ctx = with_key(peer(TLS_server_method(), TLS1_2_VERSION, "P-256"));

    assert_int_equal(SSL_CTX_set_cipher_list(ctx, ciphers), 1);
    assert_int_equal(SSL_CTX_set_dh_auto(ctx, 1), 1);
    return ctx;
}

static const char *const costly[] = {"ffdhe2048", "ffdhe8192", "X448"};
static const char *const usual[] = {"X25519", "P-256", "P-384", "P-521"};

static void test_groups_of_clients(void **state)
{
    for (size_t i = 0; i < sizeof(costly) / sizeof(costly[0]); i++)
        assert_false(shake_hands(with_key(tls_conn_context(false)),
                                 peer(TLS_client_method(), TLS1_3_VERSION, costly[i])));
    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
        assert_true(shake_hands(with_key(tls_conn_context(false)),
                                peer(TLS_client_method(), TLS1_3_VERSION, usual[i])));
    assert_true(shake_hands(with_key(SSL_CTX_new(TLS_server_method())), /* the control */
                            peer(TLS_client_method(), TLS1_3_VERSION, "ffdhe2048")));
}

static void test_groups_of_servers(void **state)
{
    for (size_t i = 0; i < sizeof(costly) / sizeof(costly[0]); i++)
        assert_false(shake_hands(with_key(peer(TLS_server_method(), TLS1_3_VERSION, costly[i])),
                                 tls_conn_context(true)));
    for (size_t i = 0; i < sizeof(usual) / sizeof(usual[0]); i++)
        assert_true(shake_hands(with_key(peer(TLS_server_method(), TLS1_3_VERSION, usual[i])),
                                tls_conn_context(true)));
    assert_true(shake_hands(with_key(peer(TLS_server_method(), TLS1_3_VERSION, "ffdhe2048")),
                            SSL_CTX_new(TLS_client_method()))); /* the control */
}

static void test_fields_of_old_servers(void **state)
{
    assert_false(shake_hands(server_of_dhe("DHE+AESGCM"), tls_conn_context(true)));
    assert_true(shake_hands(server_of_dhe("ECDHE+AESGCM"), tls_conn_context(true)));
    assert_true(shake_hands(server_of_dhe("DHE+AESGCM"), /* the control */
                            SSL_CTX_new(TLS_client_method())));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_groups_of_clients),
        cmocka_unit_test(test_groups_of_servers),
        cmocka_unit_test(test_fields_of_old_servers),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
