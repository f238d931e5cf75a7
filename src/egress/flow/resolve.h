#pragma once
/* Asks DNS outside, by c-ares, and only for names that were allowed: called by dial.c alone.
 *
 * Answers are kept for their TTL, at most RESOLVE_TTL_MAX_S, so that a name's owner cannot make
 * many questions of one, and one question serves all who wait for it. No search domains, no hosts
 * file: a name means the same for every sandbox. Bounded: names kept, questions under way, waiters,
 * ports and connections over TCP that names have of their own. */

#include "policy/policy.h"

#include <stddef.h>
#include <stdint.h>

struct egress;
struct sandbox;

#define RESOLVE_ADDRESSES_MAX 16u
#define RESOLVE_CACHE_MAX     4096u
#define RESOLVE_WAITERS_MAX   8192u
#define RESOLVE_STREAMS_MAX   64u
#define RESOLVE_PORTS_MAX     512u
#define RESOLVE_TTL_MAX_S     60
#define RESOLVE_NEGATIVE_MS   2000u

struct resolver;

/* 0 with n > 0 addresses (both families, in the order to try them), -ENOENT there are none,
 * -ETIMEDOUT, -EPROTO (no sensible answer), -EAGAIN (too much under way). */
typedef void (*resolve_cb)(struct egress *eg, uint64_t id, int status,
                           const struct policy_address *a, size_t n);

/* Before the program is confined: reads the host's resolv.conf where no servers are given. */
int resolver_new(struct egress *eg, const char *servers, struct resolver **out);

/* For s, whose share of names and waits it takes (-EAGAIN when it has none left). cb is called
 * exactly once, perhaps from inside this call; id is handed to it. */
void resolver_query(struct resolver *r, const struct sandbox *s, const char *name, uint64_t id,
                    resolve_cb cb);
