#pragma once
/* What the store has of an API key. */

#include "core/store.h"

/* Of a well-formed API key, as the store has it. */
void key_hash(const char *key, uint8_t out[static STORE_HASH_SIZE]);
