#pragma once
/* Names and the addresses of cay's own that stand for them inside one sandbox: the dialled address
 * tells the name, for any protocol. 198.18.0.0/15 (set aside for benchmarks, so that no host has
 * them) from 198.18.0.16 on, and fdca:79ee:18::/96 with the same number in its last 32 bits.
 *
 * A name keeps its address for the sandbox's life, since programs keep what they resolved: a name's
 * number follows from the name, its tenant, and a key that outlives this process. So a sandbox that
 * comes again (after a pause, as a copy) finds the same ones, and an address that was not given out
 * yet stands for no name. Where two names have the same number the later one has the next:
 * names_kept.h keeps those of a sandbox over a restart. Whether a name may be connected to is asked
 * when it is dialled, not here. Bounded: NAMES_MAX names; further ones get none. Pure memory. */

#include "policy/policy.h"

#define NAMES_MAX       4096u
#define NAMES_SERVER    1u /* 198.18.0.1: the resolver that /etc/resolv.conf names */
#define NAMES_INTERNAL  2u /* cay.internal, which cay-egress answers itself */
#define NAMES_FIRST     16u
#define NAMES_LAST      131070u /* behind it is the range's broadcast address */
#define NAMES_KEY_BYTES 32u

#define NAMES_INTERNAL_NAME "cay.internal"

struct names;

struct names *names_new(const unsigned char key[static NAMES_KEY_BYTES]);
void names_free(struct names *n);

/* Numbers follow from the tenant, too; unless there are names already, which keep theirs. An
 * attacker who asks for very many names finds out which have one number, and so which of his own
 * would have a program's kept address where it is asked for first: in his own sandboxes alone. */
void names_set_tenant(struct names *n, const char *tenant);

/* The number of a normalized name, made when it is new. 0 when there is no room. */
uint32_t names_number(struct names *n, const char *name);

/* cb is told of each name that is new from now on, before its number is used. */
void names_watch(struct names *n, void (*cb)(void *arg, uint32_t number, const char *name),
                 void *arg);

/* A name had this number before. False: it is none, or taken, or there is no room. */
bool names_restore(struct names *n, uint32_t number, const char *name);
void names_each(const struct names *n, void (*cb)(void *arg, uint32_t number, const char *name),
                void *arg);

/* The name of an address of cay's own; NULL when it is none, or none was given out with it. */
const char *names_of(const struct names *n, const struct policy_address *a);

/* Is it in one of the two ranges at all? */
bool names_is_own(const struct policy_address *a);

/* The IPv4 form (as v4-mapped) or the IPv6 form of a number. */
void names_address(uint32_t number, bool v6, struct policy_address *out);

size_t names_count(const struct names *n);
