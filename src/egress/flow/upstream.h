#pragma once
/* An upstream proxy: SOCKS5 (RFC 1928, 1929) or HTTP CONNECT, through which a connection goes on.
 *
 *   socks5://[USER:PASSWORD@]ADDRESS:PORT    cay resolves and checks, the proxy is told the address
 *   socks5h://...                            the proxy is told the name and resolves it itself
 *   http://...                               HTTP CONNECT, with the name likewise
 *
 * With the last two, which address a name has is the proxy's word, and rules about addresses hold
 * only for what is dialled by address. ADDRESS is in digits. */

#include "base/err.h"
#include "policy/policy.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

struct egress;
struct target;
struct upstream;

enum err_code upstream_parse(const char *text, struct upstream **out, struct err *e);

/* A sandbox's own: {"address": "ADDRESS:PORT", "username": .., "password": ..}, SOCKS5. */
enum err_code upstream_from_json(const json_t *json, struct upstream **out, struct err *e);
void upstream_free(struct upstream *u);

const struct policy_address *upstream_address(const struct upstream *u);
uint16_t upstream_port(const struct upstream *u);
bool upstream_resolves(const struct upstream *u);

/* Asks the proxy at the other end of fd, which is connected and taken over, to connect to t (name,
 * or address where it is NULL). cb comes once, never from inside this call, unless upstream_cancel
 * comes first; the caller has the timer. Its id, or 0. */
uint64_t upstream_handshake(struct egress *eg, const struct upstream *u, int fd,
                            const struct target *t, uint64_t owner,
                            void (*cb)(struct egress *eg, uint64_t owner, int fd,
                                       const struct err *why));
void upstream_cancel(struct egress *eg, uint64_t id);
