#pragma once
/* What a sandbox's network setting (network.h; may be NULL) says about traffic from outside to its
 * ports. Pure; used by the API (which shows the token) and the gateway (which asks for it). */

#include "core/core.h"

/* false: every request to a port other than the agent's must carry the traffic token. */
bool ingress_is_public(const struct network *network);

/* The Host that requests to port shall carry inside, with ${PORT} filled in. Length, or 0 for
 * none. */
size_t ingress_masked_host(const struct network *network, uint16_t port, char *out, size_t size);

/* Hex of SHA-256 over the agent's token: one way, so that who was given this cannot make that. */
void ingress_traffic_token(const char *agent_token, char out[static CORE_TOKEN_SIZE + 1]);
