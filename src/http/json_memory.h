#pragma once
/* Reading by jansson, for json.c. */

#include <jansson.h>

/* json_loadb, but NULL where memory was out (json_memory_was_out); why may be NULL. */
json_t *json_memory_load(const char *text, size_t len, size_t flags, json_error_t *why);
