#pragma once
/* Finds the secrets that a host may have been told in its answers. */

#include "egress/credential/credential.h"
#include "egress/credential/redact.h"
#include "http/message.h"

/* Those of all credentials that host:port may be given at any time, in every form that they leave
 * in; host NULL: all of them, for it may be any. *out stays NULL where there are none. 0, -EMSGSIZE
 * or -ENOMEM. */
int response_secrets_for(const struct credentials *all, const char *host, uint16_t port,
                         struct redact **out);

/* The searches that were made for hosts of those credentials, for the next connections: to find
 * secrets anew for each would cost milliseconds of the loop. Hosts that know the same ones share
 * it. Those that were not used for longest go. Every struct credentials has one. */
#define RESPONSE_SECRETS_SETS_MAX    16u
#define RESPONSE_SECRETS_CACHE_BYTES ((size_t)1024 * 1024) /* secrets; as a rule 16 MiB of memory */
struct response_secrets_cache *response_secrets_cache_new(void);
void response_secrets_cache_free(struct response_secrets_cache *cache);

/* How many sets had to be made so far, and how many bytes of secrets those that are there have. */
size_t response_secrets_cache_made(const struct response_secrets_cache *cache);
size_t response_secrets_cache_bytes(const struct response_secrets_cache *cache);

/* Request headers that ask for an answer which could not be looked through (compressed, a few bytes
 * of the whole, a difference to another); NULL-terminated. */
extern const char *const response_secrets_leaves_out[];

/* A header that is of the compressed body, and does not hold when it is decompressed? */
bool response_secrets_is_of_coded(const char *name);

#define RESPONSE_SECRETS_EXTENSION_REASON                                                 \
    "the server has chosen a WebSocket extension, though none was offered: its messages " \
    "could not be searched for the credential"
