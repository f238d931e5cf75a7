/* What stands for an API key where the key itself must not: its SHA-256 in the store, and the first
 * bytes of that as a name. */

#include "core/key_id.h"

#include "core/core.h"
#include "core/store.h"

#include <openssl/sha.h>
#include <string.h>

void key_hash(const char *key, uint8_t out[static STORE_HASH_SIZE])
{
    SHA256((const unsigned char *)key, strlen(key), out);
}

void core_key_id(const char *key, char out[static CORE_KEY_ID_SIZE])
{
    uint8_t hash[STORE_HASH_SIZE];

    key_hash(key, hash);
    ids_hex(hash, CORE_KEY_ID_BYTES, out);
}
