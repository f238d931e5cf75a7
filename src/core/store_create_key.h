#pragma once
/* The store's rows of keys of creates (Idempotency-Key). */

#include "core/store.h"

#define CREATE_KEY_LIFE_MS      (24LL * 3600 * 1000)
#define CREATE_KEYS_OF_A_TENANT 10000 /* the oldest is forgotten for one more */

struct store_create_key {
    uint8_t request_hash[STORE_HASH_SIZE];
    char sandbox[IDS_SANDBOX_SIZE];
    bool done; /* it was made; else it is being made */
};

/* ERR_NOT_FOUND: the tenant has not used it within CREATE_KEY_LIFE_MS. */
enum err_code store_create_key_find(struct store *st, const char *tenant, const char *key,
                                    int64_t now_ms, struct store_create_key *out, struct err *e);

/* Not done yet. It goes with the sandbox's row, if that is deleted before store_create_key_done. */
enum err_code store_create_key_insert(struct store *st, const char *tenant, const char *key,
                                      const uint8_t hash[static STORE_HASH_SIZE],
                                      const char *sandbox, int64_t now_ms, struct err *e);
enum err_code store_create_key_done(struct store *st, const char *sandbox, struct err *e);
