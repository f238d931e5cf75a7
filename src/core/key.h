#pragma once
/* Tenants' API keys: their roles, whom they belong to, and their list. */

#include "core/core.h"

#define CORE_OPERATOR_TENANT "default" /* its keys alone may have the role of the operator */
#define CORE_KEY_FILE        "api-key" /* of the operator's, which the first start makes */

/* The rights of a key: docs/tenants.md. The store holds these numbers. 0 is no role, and permits
 * nothing. */
enum core_role {
    CORE_ROLE_NONE,
    CORE_ROLE_OPERATOR,  /* everything, of its own tenant's sandboxes; and the server's settings */
    CORE_ROLE_OWNER,     /* everything of its tenant's */
    CORE_ROLE_READ_ONLY, /* sees what is its tenant's, but no token that opens a sandbox */
    CORE_ROLE_COUNT
};

/* "operator", "owner", "read-only"; CORE_ROLE_NONE for another name. "" for no role. */
const char *core_role_name(enum core_role role);
enum core_role core_role_from(const char *name);

/* Whom a key belongs to, and what it may do. */
struct core_identity {
    char tenant[CORE_TENANT_SIZE];
    enum core_role role;
};

/* Of an API key (core_names.key_prefix and hex digits), into
 * out. Keys are stored as SHA-256. ERR_UNAUTHENTICATED with a
 * text that says whether it was missing, malformed or unknown. */
enum err_code core_authenticate(struct core *c, const char *key, struct core_identity *out,
                                struct err *e);

/* Makes the tenant when absent, and a new key into out (its prefix and 40 hex digits). ERR_INVALID
 * for no role, and for the operator's where the tenant is not CORE_OPERATOR_TENANT. ERR_EXHAUSTED
 * when the tenant has CORE_KEYS_MAX. */
enum err_code core_key_create(struct core *c, const struct core_identity *whose, const char *label,
                              char out[static CORE_TOKEN_SIZE], struct err *e);

#define CORE_KEYS_MAX      256u /* of one tenant */
#define CORE_KEY_ID_BYTES  8    /* of the hash: names a key and says nothing about it */
#define CORE_KEY_ID_SIZE   (2 * CORE_KEY_ID_BYTES + 1)
#define CORE_KEY_LABEL_MAX 127

struct core_key {
    char id[CORE_KEY_ID_SIZE];
    char tenant[CORE_TENANT_SIZE];
    enum core_role role;
    char label[CORE_KEY_LABEL_MAX + 1];
    int64_t made_real_ms;
};

/* The id of a well-formed key, known or not. */
void core_key_id(const char *key, char out[static CORE_KEY_ID_SIZE]);

/* Calls fn for each key of a tenant (NULL: of all), oldest first. Stops when fn fails. */
enum err_code core_key_each(struct core *c, const char *tenant,
                            enum err_code (*fn)(void *arg, const struct core_key *k, struct err *e),
                            void *arg, struct err *e);

/* From now on the key opens nothing. Sandboxes that were made with it stay: they belong to the
 * tenant. An operator revokes any tenant's; for others there are only keys of their own tenant that
 * are not the operator's. ERR_INVALID for what is no id, ERR_NOT_FOUND. */
enum err_code core_key_revoke(struct core *c, const struct core_identity *by, const char *id,
                              struct err *e);

/* fn whenever a key was revoked, from inside the control loop, before core_key_revoke returns: its
 * clients' open calls end. */
void core_on_key_revoked(struct core *c, void (*fn)(void *arg, const char *key_id), void *arg);
