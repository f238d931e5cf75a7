/* A tenant's CA is read from its file when it is first needed, made where there is none,
 * and kept; a leaf is made for a name when a handshake asks for it, and kept within a maximum,
 * least recently used out first. Losing either from memory costs time alone. A file that cannot
 * be read or does not belong to the tenant is an error, never replaced. */

#include "egress/tls/ca.h"

#include "base/ids.h"
#include "base/io.h"
#include "base/log.h"
#include "base/util.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#define DAY_SECONDS    86400L
#define CA_DAYS        3650
#define BACKDATED_DAYS 1 /* for clocks inside that are behind */
#define RENEW_SECONDS  DAY_SECONDS
#define FILE_MAX_BYTES 16384
#define TENANT_MAX     64
#define SERIAL_BYTES   16
#define LEAF_NAME_SIZE (POLICY_NAME_MAX + 1)

struct tenant_ca {
    char tenant[TENANT_MAX + 1];
    X509 *cert;
    EVP_PKEY *key;      /* of the CA */
    EVP_PKEY *leaf_key; /* of all its leafs */
    uint64_t used;
};

struct leaf {
    char tenant[TENANT_MAX + 1], name[LEAF_NAME_SIZE];
    X509 *cert;
    time_t renew_at;
    uint64_t used;
};

struct ca {
    int dir_fd;
    uint64_t clock; /* counts uses */
    struct tenant_ca cas[CA_TENANTS_MAX];
    struct leaf leafs[CA_LEAFS_MAX];
};

static enum err_code openssl_err(struct err *e, const char *what)
{
    const char *why = ERR_reason_error_string(ERR_peek_last_error());

    err_set(e, ERR_INTERNAL, "%s: %s", what, why ? why : "no reason given");
    ERR_clear_error();
    return ERR_INTERNAL;
}

/* -- certificates ------------------------------------------------------------------------------ */

static bool add_extension(X509 *x, X509 *issuer, int nid, const char *value)
{
    X509V3_CTX ctx;
    X509_EXTENSION *extension;
    bool good;

    X509V3_set_ctx(&ctx, issuer, x, NULL, NULL, 0);
    extension = X509V3_EXT_conf_nid(NULL, &ctx, nid, value);
    good = extension && X509_add_ext(x, extension, -1) == 1;
    X509_EXTENSION_free(extension);
    return good;
}

static bool set_serial(X509 *x)
{
    unsigned char bytes[SERIAL_BYTES];
    BIGNUM *n;
    bool good;

    ids_random_bytes(bytes, sizeof(bytes));
    bytes[0] &= 0x7f; /* positive, RFC 5280 4.1.2.2 */
    bytes[0] |= 0x40;
    n = BN_bin2bn(bytes, sizeof(bytes), NULL);
    good = n && BN_to_ASN1_INTEGER(n, X509_get_serialNumber(x));
    BN_free(n);
    return good;
}

static bool set_subject(X509 *x, const char *common_name)
{
    X509_NAME *name = X509_get_subject_name(x);

    return X509_NAME_add_entry_by_txt(name, "O", MBSTRING_ASC, (const unsigned char *)"cay", -1, -1,
                                      0) == 1 &&
           X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const unsigned char *)common_name,
                                      -1, -1, 0) == 1;
}

/* All but extensions and signature. */
static X509 *begin_cert(EVP_PKEY *key, const char *common_name, long days)
{
    X509 *x = X509_new();

    if (x && X509_set_version(x, X509_VERSION_3) == 1 && set_serial(x) &&
        X509_gmtime_adj(X509_getm_notBefore(x), -BACKDATED_DAYS * DAY_SECONDS) &&
        X509_gmtime_adj(X509_getm_notAfter(x), days * DAY_SECONDS) && set_subject(x, common_name) &&
        X509_set_pubkey(x, key) == 1)
        return x;
    X509_free(x);
    return NULL;
}

static X509 *make_ca_cert(EVP_PKEY *key, const char *tenant)
{
    char common_name[64];
    X509 *x;

    snprintf(common_name, sizeof(common_name), "cay sandboxes of %.40s", tenant);
    x = begin_cert(key, common_name, CA_DAYS);
    if (x && X509_set_issuer_name(x, X509_get_subject_name(x)) == 1 &&
        add_extension(x, x, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
        add_extension(x, x, NID_key_usage, "critical,keyCertSign,cRLSign") &&
        add_extension(x, x, NID_subject_key_identifier, "hash") &&
        X509_sign(x, key, EVP_sha256()) > 0)
        return x;
    X509_free(x);
    return NULL;
}

/* name is a normalized host name or an address in digits: neither has anything that the extension's
 * syntax would take for more. */
static X509 *make_leaf_cert(const struct tenant_ca *a, const char *name, bool is_address)
{
    char san[LEAF_NAME_SIZE + 8];
    X509 *x;

    /* A subject has 64 characters at most; what counts is the extension. */
    x = begin_cert(a->leaf_key, strlen(name) <= 64 ? name : "a host", CA_LEAF_DAYS);
    snprintf(san, sizeof(san), "%s:%s", is_address ? "IP" : "DNS", name);
    if (x && X509_set_issuer_name(x, X509_get_subject_name(a->cert)) == 1 &&
        add_extension(x, a->cert, NID_basic_constraints, "critical,CA:FALSE") &&
        add_extension(x, a->cert, NID_key_usage, "critical,digitalSignature") &&
        add_extension(x, a->cert, NID_ext_key_usage, "serverAuth") &&
        add_extension(x, a->cert, NID_authority_key_identifier, "keyid:always") &&
        add_extension(x, a->cert, NID_subject_alt_name, san) &&
        X509_sign(x, a->key, EVP_sha256()) > 0)
        return x;
    X509_free(x);
    return NULL;
}

/* -- files ------------------------------------------------------------------------------------- */

/* It becomes a file's name. */
static bool is_tenant(const char *tenant)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_";
    size_t n = strnlen(tenant, TENANT_MAX + 1);

    return n > 0 && n <= TENANT_MAX && strspn(tenant, plain) == n;
}

static void free_secret(BIO *bio)
{
    char *data;
    long n = bio ? BIO_get_mem_data(bio, &data) : 0;

    if (n > 0)
        explicit_bzero(data, (size_t)n);
    BIO_free(bio);
}

static int save(struct ca *ca, const char *file, X509 *cert, EVP_PKEY *key)
{
    BIO *bio = BIO_new(BIO_s_mem());
    char *data;
    long n;
    int rc = -ENOMEM;

    if (bio && PEM_write_bio_PrivateKey(bio, key, NULL, NULL, 0, NULL, NULL) == 1 &&
        PEM_write_bio_X509(bio, cert) == 1) {
        n = BIO_get_mem_data(bio, &data);
        rc = io_create_file_at(ca->dir_fd, file, data, (size_t)n, 0600);
    }
    free_secret(bio);
    return rc;
}

static enum err_code create(struct ca *ca, const char *file, const char *tenant, struct err *e)
{
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = key ? make_ca_cert(key, tenant) : NULL;
    int rc = cert ? save(ca, file, cert, key) : 0;

    if (rc == 0 && cert)
        log_info("tenant %s: a certificate authority was made", tenant);
    EVP_PKEY_free(key);
    X509_free(cert);
    if (!cert)
        return openssl_err(e, "a certificate authority cannot be made");
    if (rc < 0 && rc != -EEXIST) /* another of these processes was first */
        return err_set_sys(e, ERR_INTERNAL, rc, "a certificate authority cannot be written");
    return ERR_OK;
}

/* -ENOENT where there is none. */
static int read_file(int dir_fd, const char *file, char out[static FILE_MAX_BYTES], size_t *n)
{
    CLEANUP_CLOSE int fd = openat(dir_fd, file, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t got;

    if (fd < 0)
        return -errno;
    got = read(fd, out, FILE_MAX_BYTES);
    if (got < 0)
        return -errno;
    *n = (size_t)got;
    return 0;
}

static enum err_code parse(struct tenant_ca *a, const char *file, const char *data, size_t n,
                           struct err *e)
{
    BIO *bio = BIO_new_mem_buf(data, (int)n);

    a->key = bio ? PEM_read_bio_PrivateKey(bio, NULL, NULL, (void *)"") : NULL;
    a->cert = a->key ? PEM_read_bio_X509(bio, NULL, NULL, NULL) : NULL;
    BIO_free(bio);
    if (!a->cert || X509_check_private_key(a->cert, a->key) != 1)
        return err_set(e, ERR_INTERNAL,
                       "the file ca/%s is damaged: it holds no key and certificate; move it away "
                       "and a new authority is made, which running sandboxes do not know",
                       file);
    a->leaf_key = EVP_EC_gen("P-256");
    return a->leaf_key ? ERR_OK : openssl_err(e, "a key cannot be made");
}

static enum err_code load(struct ca *ca, const char *tenant, struct tenant_ca *a, struct err *e)
{
    char file[TENANT_MAX + 8], data[FILE_MAX_BYTES];
    enum err_code code = ERR_OK;
    size_t n = 0;
    int rc;

    snprintf(file, sizeof(file), "%s.key", tenant);
    rc = read_file(ca->dir_fd, file, data, &n);
    if (rc == -ENOENT && (code = create(ca, file, tenant, e)) == ERR_OK)
        rc = read_file(ca->dir_fd, file, data, &n);
    if (code == ERR_OK && rc < 0)
        code = err_set_sys(e, ERR_INTERNAL, rc, "the file ca/%s cannot be read", file);
    if (code == ERR_OK)
        code = parse(a, file, data, n, e);
    explicit_bzero(data, sizeof(data));
    return code;
}

/* -- what is kept ------------------------------------------------------------------------------ */

static void drop_leaf(struct leaf *l)
{
    X509_free(l->cert);
    *l = (struct leaf){.cert = NULL};
}

/* With its leafs, which have its key. */
static void drop_tenant_ca(struct ca *ca, struct tenant_ca *a)
{
    for (size_t i = 0; i < CA_LEAFS_MAX; i++)
        if (ca->leafs[i].cert && strcmp(ca->leafs[i].tenant, a->tenant) == 0)
            drop_leaf(&ca->leafs[i]);
    X509_free(a->cert);
    EVP_PKEY_free(a->key);
    EVP_PKEY_free(a->leaf_key);
    *a = (struct tenant_ca){.cert = NULL};
}

static enum err_code tenant_ca_of(struct ca *ca, const char *tenant, struct tenant_ca **out,
                                  struct err *e)
{
    struct tenant_ca *oldest = &ca->cas[0];
    enum err_code code;

    if (!is_tenant(tenant))
        return err_set(e, ERR_INVALID, "there is no such tenant");
    for (size_t i = 0; i < CA_TENANTS_MAX; i++) {
        struct tenant_ca *a = &ca->cas[i];

        if (a->cert && strcmp(a->tenant, tenant) == 0) {
            a->used = ++ca->clock;
            *out = a;
            return ERR_OK;
        }
        if (a->used < oldest->used)
            oldest = a;
    }
    drop_tenant_ca(ca, oldest);
    code = load(ca, tenant, oldest, e);
    if (code != ERR_OK) {
        drop_tenant_ca(ca, oldest);
        return code;
    }
    snprintf(oldest->tenant, sizeof(oldest->tenant), "%s", tenant);
    oldest->used = ++ca->clock;
    *out = oldest;
    return ERR_OK;
}

/* The place for that leaf: its own, or the one that was not used for longest. */
static struct leaf *leaf_entry(struct ca *ca, const char *tenant, const char *name)
{
    struct leaf *oldest = &ca->leafs[0];

    for (size_t i = 0; i < CA_LEAFS_MAX; i++) {
        struct leaf *l = &ca->leafs[i];

        if (l->cert && strcmp(l->name, name) == 0 && strcmp(l->tenant, tenant) == 0)
            return l;
        if (l->used < oldest->used)
            oldest = l;
    }
    return oldest;
}

static enum err_code leaf_of(struct ca *ca, const struct tenant_ca *a, const char *name,
                             bool is_address, struct leaf **out, struct err *e)
{
    struct leaf *l = leaf_entry(ca, a->tenant, name);
    bool own = l->cert && strcmp(l->name, name) == 0 && strcmp(l->tenant, a->tenant) == 0;

    if (!own || l->renew_at <= time(NULL)) {
        X509 *cert = make_leaf_cert(a, name, is_address);

        if (!cert)
            return openssl_err(e, "a certificate cannot be made");
        drop_leaf(l);
        l->cert = cert;
        l->renew_at = time(NULL) + CA_LEAF_DAYS * DAY_SECONDS - RENEW_SECONDS;
        snprintf(l->tenant, sizeof(l->tenant), "%s", a->tenant);
        snprintf(l->name, sizeof(l->name), "%s", name);
    }
    l->used = ++ca->clock;
    *out = l;
    return ERR_OK;
}

/* -- for others -------------------------------------------------------------------------------- */

enum err_code ca_new(const char *state_dir, struct ca **out, struct err *e)
{
    char path[PATH_MAX];
    struct ca *ca;

    snprintf(path, sizeof(path), "%s/ca", state_dir);
    if (mkdir(path, 0700) < 0 && errno != EEXIST)
        return err_set_sys(e, ERR_INTERNAL, errno,
                           errno == EACCES ? "%s cannot be made: a directory above is closed to "
                                             "the user of cay-egress; chmod o+x it, or take "
                                             "another [state] dir"
                                           : "%s cannot be made",
                           path);
    ca = calloc(1, sizeof(*ca));
    if (!ca)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    ca->dir_fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (ca->dir_fd < 0) {
        free(ca);
        return err_set_sys(e, ERR_INTERNAL, errno, "%s cannot be opened", path);
    }
    *out = ca;
    return ERR_OK;
}

void ca_free(struct ca *ca)
{
    if (!ca)
        return;
    for (size_t i = 0; i < CA_TENANTS_MAX; i++)
        drop_tenant_ca(ca, &ca->cas[i]);
    close(ca->dir_fd);
    free(ca);
}

size_t ca_leafs(const struct ca *ca)
{
    size_t n = 0;

    for (size_t i = 0; i < CA_LEAFS_MAX; i++)
        n += ca->leafs[i].cert != NULL;
    return n;
}

enum err_code ca_pem(struct ca *ca, const char *tenant, char **out, struct err *e)
{
    struct tenant_ca *a;
    enum err_code code = tenant_ca_of(ca, tenant, &a, e);
    BIO *bio;
    char *data;
    long n;

    if (code != ERR_OK)
        return code;
    bio = BIO_new(BIO_s_mem());
    if (bio && PEM_write_bio_X509(bio, a->cert) == 1) {
        n = BIO_get_mem_data(bio, &data);
        *out = strndup(data, (size_t)n);
    } else {
        *out = NULL;
    }
    BIO_free(bio);
    return *out ? ERR_OK : err_set(e, ERR_EXHAUSTED, "out of memory");
}

enum err_code ca_use(struct ca *ca, const char *tenant, const char *name,
                     const struct policy_address *address, SSL *ssl, struct err *e)
{
    char digits[INET6_ADDRSTRLEN];
    struct tenant_ca *a;
    struct leaf *l;
    enum err_code code = tenant_ca_of(ca, tenant, &a, e);

    if (!name)
        policy_address_format(address, digits);
    if (code == ERR_OK)
        code = leaf_of(ca, a, name ? name : digits, !name, &l, e);
    if (code == ERR_OK &&
        (SSL_use_certificate(ssl, l->cert) != 1 || SSL_use_PrivateKey(ssl, a->leaf_key) != 1))
        code = openssl_err(e, "a certificate cannot be used");
    return code;
}
