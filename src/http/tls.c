#include "http/tls.h"

#include "base/log.h"
#include "http/tls_conn.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define CHAIN_MAX    16
#define WARN_SECONDS (14 * 86400)

/* A handshake in progress may make OpenSSL hold about 170 KiB (the first message may announce
 * 128 KiB): so many at a time on a loop, each for so long. */
#define BEGINNING_MAX    256
#define BEGIN_TIMEOUT_MS 10000

struct tls {
    SSL_CTX *ctx;
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
        log_warn("TLS: all users of this machine may read the key file: chmod 600 it");
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

/* There is no terminal to ask for a passphrase. */
static int no_passphrase(char *out, int size, int writing, void *requested)
{
    *(bool *)requested = true;
    return -1;
}

static enum err_code use_key(SSL_CTX *ctx, const struct text *text, struct err *e)
{
    bool requested = false;
    BIO *bio = BIO_new_mem_buf(text->bytes, (int)text->len);
    EVP_PKEY *key = bio ? PEM_read_bio_PrivateKey(bio, NULL, no_passphrase, &requested) : NULL;
    enum err_code code = ERR_OK;

    BIO_free(bio);
    if (requested)
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

/* Clients check the names; the reader of the log should hear of it before they do. */
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
        t->ctx = tls_conn_context(false);
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

struct http_layer tls_layer(struct tls *t, bool required)
{
    return (struct http_layer){.ops = t ? &tls_conn_ops : NULL,
                               .ctx = t ? t->ctx : NULL,
                               .required = required,
                               .max_beginning = BEGINNING_MAX,
                               .begin_timeout_ms = BEGIN_TIMEOUT_MS};
}
