#pragma once
/* Names whose connections go to an address that their policy names. The policy's rules decide on the name, as ever;
 * the address is asked about of every ceiling, and POLICY_NEVER; a rule of its sandbox's need not have it. What is said
 * there (TLS server name, Host, certificate) is the name's. */

#include "egress/egress.h"

/* The way of that name in s, whose commands go it too; NULL: none. */
const struct policy_reroute *reroute_of(const struct sandbox *s, const char *name);

/* May t, which is t->via's connection, go there: is it still the policy's way, and within the ceilings? */
struct policy_verdict reroute_verdict(const struct sandbox *s, const struct target *t);

/* t was dialled, and not where its policy sends it now. */
bool reroute_is_missed(const struct sandbox *s, const struct target *t);
extern const struct policy_verdict reroute_missed;
