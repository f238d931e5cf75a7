#pragma once
/* An owner's answers that are kept for a sandbox's life (asks.h has what they answer). They belong
 * to the sandbox. */

#include <stdbool.h>

struct policy_verdict;
struct sandbox;
struct target;

#define ASKS_ANSWERS_MAX 64u /* of a sandbox's, that are kept for its life */

/* Of the connections to t, from now on. 0; -ENOMEM; -ENOSPC: ASKS_ANSWERS_MAX are kept. */
int answers_keep(struct sandbox *s, const struct target *t, bool yes);

/* v, which a policy of `whose` (s, or the sandbox of the command sandbox s) said of t: with the
 * owner's answer, if there is one. */
void answers_apply(const struct sandbox *whose, const struct sandbox *s, const struct target *t,
                   struct policy_verdict *v);
