#include "egress/tls/clienthello.h"

#include "base/util.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <string.h>

#define RECORD_HEAD    5u
#define RECORD_MAX     16384u /* RFC 8446 5.1 */
#define HANDSHAKE_HEAD 4u
#define HANDSHAKE      0x16
#define CLIENT_HELLO   1
#define EXT_ECH        0xfe0d /* encrypted_client_hello, RFC 9849 */
#define EXT_ESNI       0xffce /* its drafts before */

/* Are these records with a ClientHello, cut anywhere, and nothing else: no empty record, no other
 * type before or between, nothing behind it in the last? Servers differ in what they skip (OpenSSL
 * empty records, Go warnings, others what follows), so that what was read here would not be what is
 * read there; no client sends such. *wire: the bytes of its records. 0, -EAGAIN, -EPROTO. */
static int check_records(const unsigned char *p, size_t n, size_t *wire)
{
    unsigned char head[HANDSHAKE_HEAD] = {0};
    size_t have = 0, want = HANDSHAKE_HEAD, at = 0;

    while (have < want) {
        size_t len, left = n - at;

        if ((left > 0 && p[at] != HANDSHAKE) || (left > 1 && p[at + 1] != 3))
            return -EPROTO;
        if (left < RECORD_HEAD)
            return -EAGAIN;
        len = (size_t)p[at + 3] << 8 | p[at + 4];
        if (len == 0 || len > RECORD_MAX)
            return -EPROTO;
        at += RECORD_HEAD;
        for (size_t i = 0; have + i < HANDSHAKE_HEAD && i < len && at + i < n; i++)
            head[have + i] = p[at + i];
        if (at < n && head[0] != CLIENT_HELLO)
            return -EPROTO;
        if (len > n - at)
            return -EAGAIN;
        at += len;
        have += len;
        if (have >= HANDSHAKE_HEAD)
            want = HANDSHAKE_HEAD + ((size_t)head[1] << 16 | (size_t)head[2] << 8 | head[3]);
    }
    *wire = at;
    return have == want ? 0 : -EPROTO;
}

/* The bytes that are left behind a list of 1 or 2 bytes of length; NULL: there is none. */
static const unsigned char *skip(const unsigned char *p, const unsigned char *end, size_t width)
{
    size_t len;

    if (!p || (size_t)(end - p) < width)
        return NULL;
    len = width == 1 ? p[0] : (size_t)p[0] << 8 | p[1];
    return len > (size_t)(end - p) - width ? NULL : p + width + len;
}

/* Of a whole ClientHello (RFC 8446 4.1.2). OpenSSL shows only the extensions that it knows
 * itself. */
static bool has_ech(const unsigned char *p, size_t n)
{
    const unsigned char *end = p + n, *at = p + HANDSHAKE_HEAD + 2 + 32;

    at = n > HANDSHAKE_HEAD + 2 + 32 ? skip(at, end, 1) : NULL; /* session id */
    at = skip(skip(at, end, 2), end, 1);                        /* cipher suites, compression */
    if (!at || end - at < 2)
        return false;
    for (at += 2; end - at >= 4;) {
        unsigned type = (unsigned)at[0] << 8 | at[1];

        if (type == EXT_ECH || type == EXT_ESNI)
            return true;
        at = skip(at + 2, end, 2);
        if (!at)
            return false;
    }
    return false;
}

/* The records' contents, one after the other: no more than they are. */
static size_t join_records(const unsigned char *p, size_t n, unsigned char *out)
{
    size_t len = 0;

    for (size_t at = 0, part; at < n; at += RECORD_HEAD + part) {
        part = (size_t)p[at + 3] << 8 | p[at + 4];
        memcpy(out + len, p + at + RECORD_HEAD, part);
        len += part;
    }
    return len;
}

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

/* Ends the handshake in every case: the ClientHello has been seen. */
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

static int parse_by_openssl(const void *data, size_t n, struct clienthello *out)
{
    SSL_CTX *ctx = context();
    SSL *ssl = ctx ? SSL_new(ctx) : NULL;
    BIO *in = BIO_new_mem_buf(data, (int)n), *sink = BIO_new(BIO_s_mem());
    struct reading r = {out, -EAGAIN};

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
    (void)SSL_do_handshake(ssl);
    SSL_free(ssl);
    ERR_clear_error();
    return r.result == -EAGAIN ? -EPROTO : r.result; /* its records are whole */
}

int clienthello_read(const void *data, size_t n, struct clienthello *out)
{
    size_t wire = 0;
    int rc;

    memset(out, 0, sizeof(*out));
    rc = check_records(data, n, &wire);
    if (rc == 0)
        rc = parse_by_openssl(data, wire, out);
    if (rc == 0) {
        CLEANUP_FREE unsigned char *whole = malloc(wire);

        if (!whole)
            return -ENOMEM;
        out->ech = has_ech(whole, join_records(data, wire, whole));
        out->wire_bytes = wire;
    }
    return rc;
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
