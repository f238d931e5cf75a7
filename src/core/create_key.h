#pragma once
/* Keys of creates (Idempotency-Key). Nothing blocks. */

#include "core/core.h"

#define CORE_CREATE_KEY_MAX 255u

/* Finds the sandbox of an earlier create of the tenant with this key. hash: SHA-256 of the request
 * without the key. ERR_OK with *out NULL: none has used it, so create one. ERR_CONFLICT: it was
 * used for another request, or that sandbox has ended. ERR_UNAVAILABLE: that one is still being
 * made. ERR_INVALID: no key. */
enum err_code core_sandbox_of_create_key(struct core *c, const char *tenant, const char *key,
                                         const uint8_t hash[static CORE_HASH_SIZE],
                                         const struct sandbox **out, struct err *e);

/* For create.c: writes r's key for a row that was just inserted. */
enum err_code create_key_insert(struct core *c, const struct sandbox *s,
                                const struct sandbox_request *r, struct err *e);
