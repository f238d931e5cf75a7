#pragma once
/* The operator's file with the key that exported snapshots are signed with ([snapshots]
 * exchange_key): for root alone to read, with 32 random bytes or 64 hex digits. */

#include <stdint.h>

#define EXCHANGE_KEY_BYTES 32

/* NULL, or its fault. */
const char *exchange_key_read(const char *path, uint8_t key[static EXCHANGE_KEY_BYTES]);
