#pragma once
/* The form of an API key in the store. */

#include "core/store.h"

/* Of a well-formed API key, as the store has it. */
void key_hash(const char *key, uint8_t out[static STORE_HASH_SIZE]);
