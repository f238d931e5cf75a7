#pragma once
/* Reads from a sandbox's network setting (network.h; may be NULL) the rules for traffic from
 * outside to its ports. Pure; used by the API (which shows the token) and the gateway (which asks
 * for it). */

#include "core/core.h"

/* false: every request to a port other than the agent's must carry the traffic token. */
bool ingress_is_public(const struct network *network);

/* The Host that requests to port shall carry inside, with ${PORT} filled in. Length, or 0 for
 * none. */
size_t ingress_masked_host(const struct network *network, uint16_t port, char *out, size_t size);

/* A signed address of a port, Daytona's: PORT-ID, and behind the id until when it holds (seconds of
 * the epoch in base 36) and a keyed hash over port and time, both of which fit into one label of a
 * host name. Nothing of it is stored: it holds until its time, as long as the sandbox is there,
 * unless it was ended (core/signed_end.h). */
#define INGRESS_UNTIL_LEN  7
#define INGRESS_MAC_LEN    26 /* 130 bits in base 32 */
#define INGRESS_SIGNED_LEN (INGRESS_UNTIL_LEN + INGRESS_MAC_LEN)

/* Not the agent's, behind which is all of a sandbox. */
bool ingress_may_sign(uint16_t port);

/* until_s: 0 to 36^7 - 1. */
void ingress_sign_port(const char *agent_token, uint16_t port, int64_t until_s,
                       char out[static INGRESS_SIGNED_LEN + 1]);

/* 0, -EPERM: this token has not made it for this port; -ETIMEDOUT: its time is over. Constant time
 * in the hash. */
int ingress_check_signed(const char *agent_token, uint16_t port, const char *given, int64_t now_s);

/* Until when one that ingress_check_signed takes holds. */
int64_t ingress_signed_until(const char *given);

/* Hex of SHA-256 over the agent's token: one way, so that who was given this cannot make that. */
void ingress_traffic_token(const char *agent_token, char out[static CORE_TOKEN_SIZE + 1]);
