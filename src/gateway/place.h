#pragma once
/* Places of one connection loop's connections, shared out by tenant (base/share.h): a request takes
 * one as soon as it is known whose it is (by its key, by the sandbox that it is for, or by a signed
 * address), and has it until it is over, streams and terminals included. So no tenant's commands
 * and streams take the connections that others need. A request whose tenant is not known yet has no
 * place but one of PLACE_FREE connections, and PLACE_OWNER_MS for its tenant to become known.
 *
 * Belongs to one loop, like the pool. */

#include "base/share.h"
#include "http/server.h"

#define PLACE_FREE     4u
#define PLACE_OWNER_MS 30000u

/* NULL: memory is out. share_pool_free when all exchanges have ended. */
struct share_pool *place_pool_new(size_t connections);

/* True: x has a place of the tenant's, now or from before. False: the tenant, or the sandbox, has
 * its share. sandbox NULL: it is for none alone, so that who floods one sandbox's ports leaves its
 * tenant's calls their places. is_stranger: the request brought no token, and needs none; such ones
 * are an account of their own beside the tenant's, and both are bounded together. */
bool place_take(struct share_pool *pool, struct http_exchange *x, const char *tenant,
                const char *sandbox, bool is_stranger);

/* Answers that with 429; and the sentence alone, for who answers in a form of its own. */
void place_refuse(struct http_exchange *x);
extern const char place_refusal[];
