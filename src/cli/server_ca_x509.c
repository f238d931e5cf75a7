/* Each function does one step and keeps nothing: names are read and checked; the CA is
 * made, or read from its files; a certificate for the names is issued; a pair that is there is
 * looked at for whether it still fits. server_ca.c decides which of them, and owns the files. */

#include "cli/server_ca_x509.h"

#include <arpa/inet.h>
#include <openssl/err.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define SERIAL_BYTES 16
#define BACK_DATED_S 3600L /* for clients whose clock is behind */
#define PERMITTED_BASE                        \
    "critical,permitted;DNS:localhost,"       \
    "permitted;IP:127.0.0.1/255.255.255.255," \
    "permitted;IP:::1/ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"

const char *x509_reason(void)
{
    unsigned long code = ERR_peek_last_error();
    const char *text = code ? ERR_reason_error_string(code) : NULL;

    return text ? text : "no reason given";
}

/* -- names ------------------------------------------------------------------------------------- */

/* Characters with a meaning in OpenSSL's values do not get into them. */
static bool is_host_name(const char *host)
{
    size_t len = strlen(host);

    return len > 0 && len <= 200 && host[0] != '.' && host[len - 1] != '.' && !strstr(host, "..") &&
           strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-") == len;
}

static bool is_below_localhost(const char *host)
{
    static const char end[] = ".localhost";
    size_t len = strlen(host);

    return strcmp(host, "localhost") == 0 ||
           (len > sizeof(end) - 1 && strcmp(host + len - (sizeof(end) - 1), end) == 0);
}

/* The address that is listened on, where clients elsewhere may use it: not loopback, not all of
 * them. */
static bool is_of_its_own(const char *address, bool *v6)
{
    unsigned char bytes[16];

    *v6 = inet_pton(AF_INET6, address, bytes) == 1;
    if (!*v6 && inet_pton(AF_INET, address, bytes) != 1)
        return false;
    return strcmp(address, "::1") != 0 && strcmp(address, "::") != 0 &&
           strcmp(address, "0.0.0.0") != 0 && strncmp(address, "127.", 4) != 0;
}

static void append(char *to, const char *before, const char *value)
{
    size_t used = strlen(to);

    snprintf(to + used, X509_NAMES_MAX - used, "%s%s", before, value);
}

bool x509_names_of(const char *domain, const char *address, struct x509_names *out)
{
    bool v6;

    memset(out, 0, sizeof(*out));
    snprintf(out->host, sizeof(out->host), "%.*s", (int)strcspn(domain, ":"), domain);
    if (!is_host_name(out->host))
        return false;
    append(out->subjects, "DNS:", out->host);
    append(out->subjects, ",DNS:*.", out->host);
    append(out->subjects, ",", "DNS:localhost,IP:127.0.0.1,IP:::1");
    append(out->permitted, "", PERMITTED_BASE);
    if (!is_below_localhost(out->host))
        append(out->permitted, ",permitted;DNS:", out->host);
    if (is_of_its_own(address, &v6)) {
        snprintf(out->address, sizeof(out->address), "%s", address);
        append(out->subjects, ",IP:", address);
        append(out->permitted, ",permitted;IP:", address);
        append(out->permitted, "/",
               v6 ? "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff" : "255.255.255.255");
    }
    return true;
}

/* -- making ------------------------------------------------------------------------------------ */

static bool set_serial(X509 *cert)
{
    unsigned char bytes[SERIAL_BYTES];
    BIGNUM *number = NULL;
    bool good = RAND_bytes(bytes, sizeof(bytes)) == 1;

    bytes[0] &= 0x7f;
    number = good ? BN_bin2bn(bytes, sizeof(bytes), NULL) : NULL;
    good = number && BN_to_ASN1_INTEGER(number, X509_get_serialNumber(cert));
    BN_free(number);
    return good;
}

static bool set_name(X509_NAME *name, const char *common)
{
    return X509_NAME_add_entry_by_txt(name, "O", MBSTRING_UTF8, (const unsigned char *)"cay", -1,
                                      -1, 0) == 1 &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, (const unsigned char *)common, -1,
                                      -1, 0) == 1;
}

static bool add_extension(X509 *cert, X509 *issuer, int nid, const char *value)
{
    X509_EXTENSION *extension;
    X509V3_CTX ctx;
    bool good;

    X509V3_set_ctx_nodb(&ctx);
    X509V3_set_ctx(&ctx, issuer, cert, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    good = extension && X509_add_ext(cert, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return good;
}

/* A certificate without extensions and signature, with a key of its own. */
static bool begin(const char *common, int days, struct x509_pair *out)
{
    struct x509_pair p = {.cert = X509_new(), .key = EVP_EC_gen("P-256")};

    if (p.cert && p.key && X509_set_version(p.cert, X509_VERSION_3) == 1 && set_serial(p.cert) &&
        X509_gmtime_adj(X509_getm_notBefore(p.cert), -BACK_DATED_S) &&
        X509_time_adj_ex(X509_getm_notAfter(p.cert), days, 0, NULL) &&
        X509_set_pubkey(p.cert, p.key) == 1 && set_name(X509_get_subject_name(p.cert), common)) {
        *out = p;
        return true;
    }
    x509_pair_free(&p);
    return false;
}

static bool finish(struct x509_pair *p, X509 *issuer, EVP_PKEY *key)
{
    return X509_set_issuer_name(p->cert, X509_get_subject_name(issuer)) == 1 &&
           add_extension(p->cert, issuer, NID_subject_key_identifier, "hash") &&
           add_extension(p->cert, issuer, NID_authority_key_identifier, "keyid:always") &&
           X509_sign(p->cert, key, EVP_sha256()) > 0;
}

bool x509_make_ca(const struct x509_names *names, int days, struct x509_pair *out)
{
    char host[65] = "", common[96];
    struct x509_pair p;

    (void)gethostname(host, sizeof(host) - 1);
    snprintf(common, sizeof(common), "cay on %.50s", host[0] ? host : "this machine");
    if (!begin(common, days, &p))
        return false;
    if (add_extension(p.cert, p.cert, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
        add_extension(p.cert, p.cert, NID_key_usage, "critical,keyCertSign") &&
        add_extension(p.cert, p.cert, NID_name_constraints, names->permitted) &&
        finish(&p, p.cert, p.key)) {
        *out = p;
        return true;
    }
    x509_pair_free(&p);
    return false;
}

bool x509_issue(const struct x509_pair *ca, const struct x509_names *names, int days,
                struct x509_pair *out)
{
    struct x509_pair p;

    if (!begin("cay", days, &p))
        return false;
    if (add_extension(p.cert, ca->cert, NID_basic_constraints, "critical,CA:FALSE") &&
        add_extension(p.cert, ca->cert, NID_key_usage, "critical,digitalSignature") &&
        add_extension(p.cert, ca->cert, NID_ext_key_usage, "serverAuth") &&
        add_extension(p.cert, ca->cert, NID_subject_alt_name, names->subjects) &&
        finish(&p, ca->cert, ca->key)) {
        *out = p;
        return true;
    }
    x509_pair_free(&p);
    return false;
}

/* -- looking ----------------------------------------------------------------------------------- */

static bool is_trusted(X509 *ca, X509 *cert)
{
    X509_STORE *store = X509_STORE_new();
    X509_STORE_CTX *ctx = X509_STORE_CTX_new();
    bool good = store && ctx && X509_STORE_add_cert(store, ca) == 1 &&
                X509_STORE_CTX_init(ctx, store, cert, NULL) == 1 &&
                X509_STORE_CTX_set_purpose(ctx, X509_PURPOSE_SSL_SERVER) == 1 &&
                X509_verify_cert(ctx) == 1;

    X509_STORE_CTX_free(ctx);
    X509_STORE_free(store);
    ERR_clear_error();
    return good;
}

bool x509_fits(X509 *ca, X509 *cert, const struct x509_names *names)
{
    char inner[300], wildcard[300];

    snprintf(inner, sizeof(inner), "3000-sandbox.%s", names->host);
    snprintf(wildcard, sizeof(wildcard), "*.%s", names->host);
    /* OpenSSL's clients take no wildcard directly below a single label (localhost): that one is
     * compared as text, and its sandboxes' names are for other clients. */
    return is_trusted(ca, cert) && X509_check_host(cert, names->host, 0, 0, NULL) == 1 &&
           (X509_check_host(cert, inner, 0, 0, NULL) == 1 || !strchr(names->host, '.')) &&
           X509_check_host(cert, "localhost", 0, 0, NULL) == 1 &&
           X509_check_ip_asc(cert, "127.0.0.1", 0) == 1 && X509_check_ip_asc(cert, "::1", 0) == 1 &&
           (!names->address[0] || X509_check_ip_asc(cert, names->address, 0) == 1);
}

int64_t x509_end(const X509 *cert)
{
    struct tm tm = {.tm_year = 0};

    return ASN1_TIME_to_tm(X509_get0_notAfter(cert), &tm) == 1 ? (int64_t)timegm(&tm) : 0;
}

/* -- PEM --------------------------------------------------------------------------------------- */

X509 *x509_read(const char *pem)
{
    BIO *bio = BIO_new_mem_buf(pem, -1);
    X509 *cert = bio ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;

    BIO_free(bio);
    ERR_clear_error();
    return cert;
}

static char *take_text(BIO *bio)
{
    char *data, *out;
    long n = BIO_get_mem_data(bio, &data);

    out = n > 0 ? strndup(data, (size_t)n) : NULL;
    if (n > 0)
        OPENSSL_cleanse(data, (size_t)n);
    return out;
}

char *x509_pem(const X509 *cert)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *out = bio && PEM_write_bio_X509(bio, (X509 *)(uintptr_t)cert) == 1 ? take_text(bio)
                                                                             : NULL;

    BIO_free(bio);
    return out;
}

char *x509_key_pem(EVP_PKEY *key)
{
    BIO *bio = BIO_new(BIO_s_secmem());
    char *out = bio && PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1
                    ? take_text(bio)
                    : NULL;

    BIO_free(bio);
    return out;
}

void x509_key_pem_free(char *pem)
{
    if (pem)
        explicit_bzero(pem, strlen(pem));
    free(pem);
}

bool x509_pair_read(const char *cert_pem, const char *key_pem, struct x509_pair *out)
{
    BIO *bio = BIO_new_mem_buf(key_pem, -1);
    struct x509_pair p = {.cert = x509_read(cert_pem)};
    bool good;

    p.key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, (char[]){""}) : NULL;
    BIO_free(bio);
    good = p.cert && p.key && X509_check_private_key(p.cert, p.key) == 1;
    ERR_clear_error();
    if (good)
        *out = p;
    else
        x509_pair_free(&p);
    return good;
}

void x509_pair_free(struct x509_pair *pair)
{
    X509_free(pair->cert);
    EVP_PKEY_free(pair->key);
    *pair = (struct x509_pair){.cert = NULL};
}
