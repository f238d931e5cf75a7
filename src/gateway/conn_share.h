#pragma once
/* The connections of a connection loop, shared out by tenant (base/share.h): a request takes a
 * share as soon as it is known whose it is (by its key, by the sandbox that it is for, or by a
 * signed address), and has it until it is over, streams and terminals included. So no tenant's
 * commands and streams take the connections that others need. A request whose tenant is not known
 * yet has no share but one in CONN_SHARE_FREE of the connections, and CONN_SHARE_OWNER_MS for its
 * tenant to become known.
 *
 * Belongs to one loop, like the pool. */

#include "base/share.h"
#include "http/server.h"

#define CONN_SHARE_FREE     4u
#define CONN_SHARE_OWNER_MS 30000u

/* NULL: memory is out. share_pool_free when all exchanges have ended. */
struct share_pool *conn_share_pool_new(size_t connections);

/* True: x has a share of the tenant's, now or from before. False: the tenant, or the sandbox, has
 * as many as it may. sandbox NULL: it is for none alone, so that who floods one sandbox's ports
 * leaves its tenant's calls their shares. is_stranger: the request brought no token, and needs
 * none; such ones are an account of their own beside the tenant's, and both are bounded
 * together. */
bool conn_share_take(struct share_pool *pool, struct http_exchange *x, const char *tenant,
                     const char *sandbox, bool is_stranger);

/* Answers that with 429; and the sentence alone, for who answers in a form of its own. */
void conn_share_refuse(struct http_exchange *x);
extern const char conn_share_refusal[];
