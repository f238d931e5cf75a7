#include "http/tls.h"

#include "base/log.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define CIPHERS_1_2  "ECDHE+AESGCM:ECDHE+CHACHA20"
#define ALPN         "\x08http/1.1"
#define CHAIN_MAX    16
#define RECORD_BYTES ((size_t)HTTP_LAYER_READ_BYTES)
#define WARN_SECONDS (14 * 86400)

/* A handshake in progress may make OpenSSL hold about 170 KiB (the first message may announce
 * 128 KiB): so many at a time on a loop, each for so long. */
#define BEGINNING_MAX    256
#define BEGIN_TIMEOUT_MS 10000

struct tls {
    SSL_CTX *ctx;
};

struct tls_conn {
    SSL *ssl;
    bool failed; /* OpenSSL wants not to be asked again */
    bool shut;   /* close_notify is out */
};

/* -- files ------------------------------------------------------------------------------------- */

struct text {
    char *bytes;
    size_t len;
};

static void text_free(struct text *t)
{
    if (t->bytes)
        explicit_bzero(t->bytes, t->len);
    free(t->bytes);
}

static enum err_code read_file(int fd, const char *what, struct text *out, struct err *e)
{
    struct stat st;
    size_t n = 0;
    ssize_t got = 1;

    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_size > (off_t)TLS_FILE_MAX_BYTES)
        return err_set(e, ERR_INVALID, "TLS: the %s file is not a regular file of at most %u KiB",
                       what, TLS_FILE_MAX_BYTES / 1024);
    out->len = (size_t)st.st_size;
    out->bytes = calloc(1, out->len + 1);
    if (!out->bytes)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    while (n < out->len && got > 0) {
        got = pread(fd, out->bytes + n, out->len - n, (off_t)n);
        n += got > 0 ? (size_t)got : 0;
    }
    if (got < 0)
        return err_set_sys(e, ERR_INVALID, errno, "TLS: cannot read the %s file", what);
    return ERR_OK;
}

static void warn_of_readers(int fd)
{
    struct stat st;

    if (fstat(fd, &st) == 0 && st.st_mode & S_IROTH)
        log_warn("TLS: everybody on this machine may read the key file: chmod 600 it");
}

/* -- the certificate --------------------------------------------------------------------------- */

static const char *openssl_reason(void)
{
    unsigned long code = ERR_peek_last_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;

    return text ? text : "no reason given";
}

static enum err_code use_chain(SSL_CTX *ctx, const struct text *text, struct err *e)
{
    BIO *bio = BIO_new_mem_buf(text->bytes, (int)text->len);
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    bool good = cert && SSL_CTX_use_certificate(ctx, cert) == 1;

    X509_free(cert);
    for (int i = 0; good && i < CHAIN_MAX && (cert = PEM_read_bio_X509(bio, NULL, NULL, NULL)); i++)
        if (SSL_CTX_add0_chain_cert(ctx, cert) != 1) {
            X509_free(cert);
            good = false;
        }
    BIO_free(bio);
    if (!good)
        return err_set(e, ERR_INVALID, "TLS: the certificate file holds no PEM certificate (%s)",
                       openssl_reason());
    ERR_clear_error();
    return ERR_OK;
}

/* Nobody is there to be asked for a passphrase. */
static int no_passphrase(char *out, int size, int writing, void *asked)
{
    *(bool *)asked = true;
    return -1;
}

static enum err_code use_key(SSL_CTX *ctx, const struct text *text, struct err *e)
{
    bool asked = false;
    BIO *bio = BIO_new_mem_buf(text->bytes, (int)text->len);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, &asked) : NULL;
    enum err_code code = ERR_OK;

    BIO_free(bio);
    if (asked)
        code = err_set(e, ERR_INVALID,
                       "TLS: the key is encrypted; it is needed without passphrase");
    else if (!key)
        code = err_set(e, ERR_INVALID, "TLS: the key file holds no PEM private key (%s)",
                       openssl_reason());
    else if (X509_check_private_key(SSL_CTX_get0_certificate(ctx), key) != 1)
        code = err_set(e, ERR_INVALID,
                       "TLS: the key does not belong to the certificate, which has "
                       "to be the first one in its file");
    else if (SSL_CTX_use_PrivateKey(ctx, key) != 1)
        code = err_set(e, ERR_INVALID, "TLS: the key cannot be used (%s)", openssl_reason());
    EVP_PKEY_free(key);
    return code;
}

static void print_time(const ASN1_TIME *at, char *out, size_t size)
{
    struct tm tm = {.tm_year = 0};

    if (ASN1_TIME_to_tm(at, &tm) != 1 || strftime(out, size, "%Y-%m-%d %H:%M:%S UTC", &tm) == 0)
        snprintf(out, size, "a time that cannot be read");
}

static enum err_code check_times(const X509 *cert, struct err *e)
{
    const ASN1_TIME *from = X509_get0_notBefore(cert), *to = X509_get0_notAfter(cert);
    time_t soon = time(NULL) + WARN_SECONDS;
    char text[64];

    if (X509_cmp_current_time(to) <= 0) {
        print_time(to, text, sizeof(text));
        return err_set(e, ERR_INVALID, "TLS: the certificate was valid until %s only", text);
    }
    if (X509_cmp_current_time(from) >= 0) {
        print_time(from, text, sizeof(text));
        return err_set(e, ERR_INVALID, "TLS: the certificate is not valid before %s", text);
    }
    print_time(to, text, sizeof(text));
    if (X509_cmp_time(to, &soon) <= 0)
        log_warn("TLS: the certificate is valid until %s only", text);
    return ERR_OK;
}

/* Clients check the names; whoever reads the log should hear of it before they do. */
static void check_names(X509 *cert, const char *domain)
{
    char host[256], inner[300];

    if (!domain || snprintf(host, sizeof(host), "%s", domain) >= (int)sizeof(host))
        return;
    host[strcspn(host, ":")] = '\0';
    snprintf(inner, sizeof(inner), "3000-sandbox.%s", host);
    if (X509_check_host(cert, host, 0, 0, NULL) != 1)
        log_warn("TLS: the certificate does not name %s ([server] domain)", host);
    if (X509_check_host(cert, inner, 0, 0, NULL) != 1)
        log_warn("TLS: the certificate does not name *.%s: ports of sandboxes cannot be reached by "
                 "their host names",
                 host);
}

/* -- the context ------------------------------------------------------------------------------- */

static int choose_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *in, unsigned in_len, void *arg)
{
    unsigned char *chosen;

    if (SSL_select_next_proto(&chosen, out_len, (const unsigned char *)ALPN, sizeof(ALPN) - 1, in,
                              in_len) != OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static SSL_CTX *make_context(void)
{
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

    if (!ctx)
        return NULL;
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_NO_TICKET |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_alpn_select_cb(ctx, choose_protocol, NULL);
    /* Without automatic retry one read handles one record, so that messages that carry nothing (key
     * updates) cannot hold the loop. */
    SSL_CTX_clear_mode(ctx, SSL_MODE_AUTO_RETRY);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1 &&
        SSL_CTX_set_cipher_list(ctx, CIPHERS_1_2) == 1 && SSL_CTX_set_num_tickets(ctx, 0) == 1)
        return ctx;
    SSL_CTX_free(ctx);
    return NULL;
}

static enum err_code fill_context(SSL_CTX *ctx, const struct text *cert, const struct text *key,
                                  const char *domain, struct err *e)
{
    enum err_code code = use_chain(ctx, cert, e);

    if (code == ERR_OK)
        code = use_key(ctx, key, e);
    if (code == ERR_OK)
        code = check_times(SSL_CTX_get0_certificate(ctx), e);
    if (code == ERR_OK)
        check_names(SSL_CTX_get0_certificate(ctx), domain);
    ERR_clear_error();
    return code;
}

enum err_code tls_load(int cert_fd, int key_fd, const char *domain, struct tls **out, struct err *e)
{
    struct text cert = {.len = 0}, key = {.len = 0};
    struct tls *t = calloc(1, sizeof(*t));
    enum err_code code;

    if (t)
        t->ctx = make_context();
    if (!t || !t->ctx)
        code = err_set(e, ERR_EXHAUSTED, "TLS cannot be set up (%s)", openssl_reason());
    else if ((code = read_file(cert_fd, "certificate", &cert, e)) == ERR_OK &&
             (code = read_file(key_fd, "key", &key, e)) == ERR_OK)
        code = fill_context(t->ctx, &cert, &key, domain, e);
    text_free(&cert);
    text_free(&key);
    if (code == ERR_OK) {
        warn_of_readers(key_fd);
        *out = TAKE_PTR(t);
    }
    tls_free(t);
    return code;
}

void tls_free(struct tls *t)
{
    if (t)
        SSL_CTX_free(t->ctx);
    free(t);
}

/* -- a connection ------------------------------------------------------------------------------ */

static void *conn_open(void *ctx, int fd)
{
    struct tls *t = ctx;
    struct tls_conn *c = calloc(1, sizeof(*c));

    if (c)
        c->ssl = SSL_new(t->ctx);
    if (!c || !c->ssl || SSL_set_fd(c->ssl, fd) != 1) {
        if (c)
            SSL_free(c->ssl);
        free(c);
        return NULL;
    }
    SSL_set_accept_state(c->ssl);
    return c;
}

/* What OpenSSL's last call on this connection means. 0: the peer announced its end. */
static int result(struct tls_conn *c, int r)
{
    switch (SSL_get_error(c->ssl, r)) {
    case SSL_ERROR_WANT_READ: return -EAGAIN;
    case SSL_ERROR_WANT_WRITE: return -EINPROGRESS;
    case SSL_ERROR_ZERO_RETURN: return 0;
    default:
        log_debug("TLS: a connection is lost: %s", openssl_reason());
        ERR_clear_error();
        c->failed = true;
        return -ECONNRESET;
    }
}

static int conn_begin(void *layer)
{
    struct tls_conn *c = layer;
    int r;

    ERR_clear_error();
    r = SSL_do_handshake(c->ssl);
    if (r == 1)
        return 0;
    r = result(c, r);
    return r == 0 ? -ECONNRESET : r;
}

/* Record by record: a call gives one at most, and it fits. */
static ssize_t conn_read(void *layer, void *out, size_t n, bool *end)
{
    struct tls_conn *c = layer;
    size_t have = 0, got;
    int r = 1;

    ERR_clear_error();
    while (n - have >= HTTP_LAYER_READ_BYTES && r == 1) {
        r = SSL_read_ex(c->ssl, (char *)out + have, n - have, &got);
        have += r == 1 ? got : 0;
    }
    if (r == 1)
        return (ssize_t)have;
    r = result(c, r);
    if (have == 0 || c->failed)
        return r;
    *end |= r == 0;
    return (ssize_t)have;
}

/* One record. */
static ssize_t write_record(struct tls_conn *c, const void *data, size_t n)
{
    size_t sent = 0;
    int r;

    ERR_clear_error();
    r = SSL_write_ex(c->ssl, data, n, &sent);
    if (r == 1)
        return (ssize_t)sent;
    r = result(c, r);
    return r == 0 ? -EPIPE : r;
}

/* The next record's content, from `skip` bytes into the first piece on: as it is where that fills a
 * record, else small pieces together (a head and the beginning of its body). */
static const void *gather(const struct iovec *iov, int n, size_t skip, char *record, size_t *len)
{
    *len = iov[0].iov_len - skip;
    if (*len >= RECORD_BYTES || n == 1)
        return (const char *)iov[0].iov_base + skip;
    *len = 0;
    for (int i = 0; i < n && *len < RECORD_BYTES; i++, skip = 0) {
        size_t part = MIN(iov[i].iov_len - skip, RECORD_BYTES - *len);

        if (part > 0)
            memcpy(record + *len, (const char *)iov[i].iov_base + skip, part);
        *len += part;
    }
    return record;
}

static ssize_t conn_write(void *layer, const struct iovec *iov, int n)
{
    struct tls_conn *c = layer;
    char record[RECORD_BYTES];
    size_t total = 0, skip = 0, len;

    if (c->failed || c->shut)
        return -EPIPE;
    for (;;) {
        const void *data;
        ssize_t sent;

        while (n > 0 && skip >= iov->iov_len) {
            skip -= iov->iov_len;
            iov++;
            n--;
        }
        if (n == 0)
            return (ssize_t)total;
        data = gather(iov, n, skip, record, &len);
        sent = write_record(c, data, len);
        if (sent < 0)
            return total > 0 ? (ssize_t)total : sent;
        total += (size_t)sent;
        skip += (size_t)sent;
    }
}

static int conn_shut(void *layer)
{
    struct tls_conn *c = layer;
    int r;

    if (c->failed || c->shut || !SSL_is_init_finished(c->ssl))
        return 0;
    ERR_clear_error();
    r = SSL_shutdown(c->ssl);
    if (r < 0 && SSL_get_error(c->ssl, r) == SSL_ERROR_WANT_WRITE)
        return -EINPROGRESS;
    ERR_clear_error();
    c->shut = true;
    return 0;
}

static void conn_close(void *layer)
{
    struct tls_conn *c = layer;

    SSL_free(c->ssl);
    free(c);
}

struct http_layer tls_layer(struct tls *t, bool required)
{
    static const struct http_layer_ops ops = {.open = conn_open,
                                              .begin = conn_begin,
                                              .read = conn_read,
                                              .write = conn_write,
                                              .shut = conn_shut,
                                              .close = conn_close};

    return (struct http_layer){.ops = t ? &ops : NULL,
                               .ctx = t,
                               .required = required,
                               .max_beginning = BEGINNING_MAX,
                               .begin_timeout_ms = BEGIN_TIMEOUT_MS};
}
