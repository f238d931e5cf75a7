#pragma once
/* The store's rows of API keys. */

#include "core/key.h"
#include "core/store.h"

/* Makes the tenant when absent and adds the key's hash, both or neither. ERR_EXHAUSTED when the
 * tenant has CORE_KEYS_MAX keys. */
enum err_code store_key_insert(struct store *st, const struct core_identity *whose,
                               const char *label, const uint8_t hash[static STORE_HASH_SIZE],
                               int64_t made_ms, struct err *e);

/* Whose a key's hash is, or ERR_NOT_FOUND. A row with a role that does not exist is
 * ERR_INTERNAL. */
enum err_code store_key_find(struct store *st, const uint8_t hash[static STORE_HASH_SIZE],
                             struct core_identity *out, struct err *e);

/* Calls fn for each key of a tenant (NULL: of all), oldest first. Stops when fn fails. */
enum err_code store_key_each(struct store *st, const char *tenant,
                             enum err_code (*fn)(void *arg, const struct core_key *k,
                                                 struct err *e),
                             void *arg, struct err *e);

/* Removes the key whose hash begins with these bytes; tenant NULL: of any tenant and role, else of
 * that tenant, where it is not the operator's. ERR_NOT_FOUND. */
enum err_code store_key_delete(struct store *st, const char *tenant,
                               const uint8_t prefix[static CORE_KEY_ID_BYTES], struct err *e);
