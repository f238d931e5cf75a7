#include "egress/clienthello.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>

/* RFC 6066 3: list length, type 0, name length, name. Exactly one name. */
static int take_name(const unsigned char *p, size_t n, char *out)
{
    size_t list, len;

    if (n < 5)
        return -EPROTO;
    list = (size_t)p[0] << 8 | p[1];
    len = (size_t)p[3] << 8 | p[4];
    if (list != n - 2 || p[2] != TLSEXT_NAMETYPE_host_name || len != n - 5 || len == 0 ||
        len >= CLIENTHELLO_NAME_SIZE || memchr(p + 5, 0, len))
        return -EPROTO;
    memcpy(out, p + 5, len);
    out[len] = '\0';
    return 0;
}

/* RFC 7301 3.1: list length, then length-prefixed names. */
static int take_alpn(const unsigned char *p, size_t n, struct clienthello *out)
{
    if (n < 2 || ((size_t)p[0] << 8 | p[1]) != n - 2 || n - 2 > sizeof(out->alpn))
        return -EPROTO;
    memcpy(out->alpn, p + 2, n - 2);
    out->alpn_len = n - 2;
    return 0;
}

struct reading {
    struct clienthello *out;
    int result; /* -EAGAIN until the callback ran */
};

/* Ends the handshake in every case: what is wanted has been seen. */
static int on_client_hello(SSL *ssl, int *alert, void *arg)
{
    struct reading *r = SSL_get_app_data(ssl);
    const unsigned char *p;
    size_t n;

    r->result = 0;
    if (SSL_client_hello_get0_ext(ssl, TLSEXT_TYPE_server_name, &p, &n) == 1)
        r->result = take_name(p, n, r->out->name);
    if (r->result == 0 && SSL_client_hello_get0_ext(
                              ssl, TLSEXT_TYPE_application_layer_protocol_negotiation, &p, &n) == 1)
        r->result = take_alpn(p, n, r->out);
    *alert = SSL_AD_ACCESS_DENIED;
    return SSL_CLIENT_HELLO_ERROR;
}

static SSL_CTX *context(void)
{
    static SSL_CTX *ctx;

    if (ctx)
        return ctx;
    ctx = SSL_CTX_new(TLS_server_method());
    if (!ctx)
        return NULL;
    SSL_CTX_set_client_hello_cb(ctx, on_client_hello, NULL);
    SSL_CTX_set_mode(ctx, SSL_MODE_RELEASE_BUFFERS);
    SSL_CTX_set_min_proto_version(ctx, 0); /* whatever it offers is between it and its server */
    return ctx;
}

int clienthello_read(const void *data, size_t n, struct clienthello *out)
{
    SSL_CTX *ctx = context();
    SSL *ssl = ctx ? SSL_new(ctx) : NULL;
    BIO *in = BIO_new_mem_buf(data, (int)n), *sink = BIO_new(BIO_s_mem());
    struct reading r = {out, -EAGAIN};

    memset(out, 0, sizeof(*out));
    if (!ssl || !in || !sink) {
        SSL_free(ssl);
        BIO_free(in);
        BIO_free(sink);
        return -ENOMEM;
    }
    BIO_set_mem_eof_return(in, -1);
    SSL_set_bio(ssl, in, sink);
    SSL_set_app_data(ssl, &r);
    SSL_set_accept_state(ssl);
    if (SSL_do_handshake(ssl) <= 0 && r.result == -EAGAIN &&
        SSL_get_error(ssl, -1) != SSL_ERROR_WANT_READ)
        r.result = -EPROTO;
    SSL_free(ssl);
    ERR_clear_error();
    return r.result;
}

bool clienthello_offers(const struct clienthello *hello, const char *protocol)
{
    const unsigned char *p = hello->alpn, *end = p + hello->alpn_len;
    size_t want = strlen(protocol);

    while (p < end && (size_t)(end - p) > p[0]) {
        if (p[0] == want && memcmp(p + 1, protocol, want) == 0)
            return true;
        p += 1 + p[0];
    }
    return false;
}
