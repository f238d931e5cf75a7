/* Stands for an API key where the key itself must not be: its SHA-256 in the store, and the first
 * bytes of that as a name. */

#include "core/key_id.h"

#include "core/core.h"
#include "core/key.h"
#include "core/store.h"
#include "http/digest.h"

#include <string.h>

_Static_assert(STORE_HASH_SIZE == DIGEST_SHA256_SIZE, "a key is known by its SHA-256");

/* It cannot fail: a hash that is not written would be whatever stood there, as another key's. */
void key_hash(const char *key, uint8_t out[static STORE_HASH_SIZE])
{
    digest_sha256(key, strlen(key), out);
}

void core_key_id(const char *key, char out[static CORE_KEY_ID_SIZE])
{
    uint8_t hash[STORE_HASH_SIZE];

    key_hash(key, hash);
    ids_hex(hash, CORE_KEY_ID_BYTES, out);
}
