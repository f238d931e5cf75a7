#pragma once
/* Certificates of the local CA (server_ca.h): what OpenSSL is asked for. Keys are P-256.
 * Pure but for the clock and random numbers. Functions that return bool leave the reason in
 * x509_reason. */

#include <openssl/x509v3.h>
#include <stdbool.h>
#include <stdint.h>

#define X509_NAMES_MAX 768

/* As values of OpenSSL's extensions (x509v3_config(5)). */
struct x509_names {
    char host[256];                 /* the domain without its port */
    char address[64];               /* that is listened on beside loopback, or "" */
    char subjects[X509_NAMES_MAX];  /* subjectAltName */
    char permitted[X509_NAMES_MAX]; /* nameConstraints */
};

struct x509_pair {
    X509 *cert;
    EVP_PKEY *key;
};

/* domain with or without a port; address as in [listen] address. False when domain is no host
 * name. */
bool x509_names_of(const char *domain, const char *address, struct x509_names *out);

bool x509_make_ca(const struct x509_names *names, int days, struct x509_pair *out);
bool x509_issue(const struct x509_pair *ca, const struct x509_names *names, int days,
                struct x509_pair *out);

/* Does a client that trusts ca alone take cert for each of the names, now? */
bool x509_fits(X509 *ca, X509 *cert, const struct x509_names *names);

/* Seconds since 1970; 0 when it cannot be read. */
int64_t x509_end(const X509 *cert);

/* From and to PEM; NULL on failure. */
X509 *x509_read(const char *pem);
char *x509_pem(const X509 *cert);
char *x509_key_pem(EVP_PKEY *key);
void x509_key_pem_free(char *pem); /* wiped; may be NULL */

/* They have to belong together. */
bool x509_pair_read(const char *cert_pem, const char *key_pem, struct x509_pair *out);
void x509_pair_free(struct x509_pair *pair);

const char *x509_reason(void);

#define CLEANUP_X509_PAIR __attribute__((cleanup(x509_pair_free)))
