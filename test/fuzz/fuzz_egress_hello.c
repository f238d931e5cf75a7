/* The start of a TLS connection: what its ClientHello says does not depend on what follows it, and a
 * cut one is never read as something. The judge is OpenSSL as a server has it, with all that it skips: where
 * it sees a ClientHello, the same name is seen here or the bytes are refused, and they are never taken for
 * anything but TLS, however they are cut. */
#include "egress/flow/retry.h"
#include "egress/flow/sandbox.h"
#include "egress/flow/sniff.h"
#include "egress/tls/clienthello.h"
#include "fuzz.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

struct seen {
    bool hello;
    size_t len;
    unsigned char name[65536]; /* the whole extension */
};

static int on_hello(SSL *ssl, int *alert, void *arg)
{
    struct seen *s = SSL_get_app_data(ssl);
    const unsigned char *p;

    s->hello = true;
    s->len = 0;
    if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &p, &s->len) == 1 &&
        s->len <= sizeof(s->name))
        memcpy(s->name, p, s->len);
    *alert = SSL_AD_ACCESS_DENIED;
    return SSL_CLIENT_HELLO_ERROR;
}

static void parse_by_openssl(const uint8_t *data, size_t size, struct seen *s)
{
    static SSL_CTX *ctx;
    BIO *in = BIO_new_mem_buf(data, (int)size), *out = BIO_new(BIO_s_mem());
    SSL *ssl;

    if (!ctx) {
        ctx = SSL_CTX_new(TLS_server_method());
        SSL_CTX_set_client_hello_cb(ctx, on_hello, NULL);
        SSL_CTX_set_min_proto_version(ctx, 0);
    }
    ssl = SSL_new(ctx);
    FUZZ_CHECK(in && out && ssl);
    BIO_set_mem_eof_return(in, -1);
    SSL_set_bio(ssl, in, out);
    SSL_set_app_data(ssl, s);
    SSL_set_accept_state(ssl);
    (void)SSL_do_handshake(ssl);
    SSL_free(ssl);
    ERR_clear_error();
}

static void evaluate(const uint8_t *data, size_t size, int rc, const struct clienthello *h)
{
    static struct seen s;

    s.hello = false;
    parse_by_openssl(data, size, &s);
    FUZZ_CHECK(rc != 0 || s.hello);
    if (!s.hello)
        return;
    if (rc == 0)
        FUZZ_CHECK(h->name[0]
                       ? s.len == strlen(h->name) + 5 && memcmp(s.name + 5, h->name, s.len - 5) == 0
                       : s.len == 0);
    for (size_t n = 1; n <= size && n < 64; n++) {
        enum sniff now = sniff_bytes(data, n, false, false);

        FUZZ_CHECK(now == SNIFF_TLS || now == SNIFF_MORE);
    }
    if (size >= 6)
        FUZZ_CHECK(sniff_bytes(data, size, true, false) == SNIFF_TLS);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct clienthello h, more;
    uint8_t *longer;
    int rc;

    if (size > 32768)
        return 0;
    rc = clienthello_read(data, size, &h);
    FUZZ_CHECK(rc == 0 || rc == -EAGAIN || rc == -EPROTO);
    evaluate(data, size, rc, &h);
    FUZZ_CHECK(retry_hello_at(data, size) <= (ssize_t)size && retry_is_requested(data, size) <= 1);
    if (rc == -EAGAIN)
        return 0;
    if (rc == 0)
        FUZZ_CHECK(strlen(h.name) < sizeof(h.name) && h.alpn_len <= sizeof(h.alpn));
    longer = malloc(size + 64);
    FUZZ_CHECK(longer);
    memcpy(longer, data, size);
    memset(longer + size, 'x', 64);
    FUZZ_CHECK(clienthello_read(longer, size + 64, &more) == rc);
    if (rc == 0)
        FUZZ_CHECK(strcmp(h.name, more.name) == 0);
    free(longer);
    return 0;
}
