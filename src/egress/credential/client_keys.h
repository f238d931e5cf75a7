#pragma once
/* The client's own credentials in a request: where servers take a key from, besides the one that is
 * put there. For requests that have to carry their owner's key and no other (bind.require). Pure.
 *
 * By name: what a server takes under a name of its own, in the path or in a body, is not known here
 * (docs/credentials.md). */

#include <stdbool.h>
#include <stddef.h>

/* A header that is left out unless the owner's key is put there: those of credential_is_key_header,
 * cookies, and keys that are said as a WebSocket's protocol. */
bool client_keys_header(const char *name, const char *value);

/* A parameter of a query, `name=value` or `name` of n bytes, still encoded, that holds a key or a
 * signature. */
bool client_keys_parameter(const char *text, size_t n);

/* Is the placeholder, which is in the value of that header, all that is said there: behind a
 * scheme, or as its `token="..."`; in each pair of a cookie? Servers that split the value take the
 * part that they like. */
bool client_keys_alone(const char *name, const char *value);
