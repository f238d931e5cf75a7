#pragma once
/* The CA of each tenant, and the certificates that it makes for the names which
 * its sandboxes dial where a rule has to read what is said.
 *
 * Key and certificate are STATE/ca/TENANT.key (0600), made at first use: ECDSA P-256, ten years, no
 * CA below it. A leaf is for one name or address, seven days, from a day ago; all leafs of a
 * tenant have one key, which never leaves this process's memory. Kept in memory: the last
 * CA_TENANTS_MAX CAs and CA_LEAFS_MAX leafs that were used.
 *
 * Making a CA writes a file and waits for the disk once in a tenant's life; nothing else
 * blocks. */

#include "base/err.h"
#include "policy/policy.h"

#include <openssl/ssl.h>

#define CA_LEAFS_MAX   512u
#define CA_TENANTS_MAX 64u
#define CA_LEAF_DAYS   7

struct ca;

/* state_dir is of this user alone; "ca" is made in it. */
enum err_code ca_new(const char *state_dir, struct ca **out, struct err *e);
void ca_free(struct ca *ca);

/* The CA's certificate in PEM, malloc'd; made if there is none. ERR_INVALID: no such tenant
 * is possible. */
enum err_code ca_pem(struct ca *ca, const char *tenant, char **out, struct err *e);

/* Gives ssl, a server's, the certificate and key for name (normalized), or for *a where it is
 * NULL. */
enum err_code ca_use(struct ca *ca, const char *tenant, const char *name,
                     const struct policy_address *a, SSL *ssl, struct err *e);

/* How many leafs are in memory: for tests. */
size_t ca_leafs(const struct ca *ca);
