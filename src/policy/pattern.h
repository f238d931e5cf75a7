#pragma once
/* Names and paths against the patterns of rules. Private to src/policy. */

#include "policy/policy.h"

/* name is normalized; pattern is "name" or "*.suffix". */
bool pattern_domain(const char *pattern, const char *name);

/* Could one name meet both patterns? */
bool pattern_domains_overlap(const char *a, const char *b);

/* '*' stands for anything within one segment, at the end for all that follows. */
bool pattern_path(const char *pattern, const char *path);

/* The same for what is denied: without case, without escapes, and one '/' more at the path's end,
 * since there are servers to which that is the same. */
bool pattern_path_denied(const char *pattern, const char *path);

/* Has it a star that something follows? Such a pattern costs as much as the path is long. */
bool pattern_path_has_inner_star(const char *pattern);

/* Could two programs read this path differently? */
bool pattern_path_is_ambiguous(const char *path);

/* "*.example.org" or a name, normalized into out. 0 or -EINVAL. */
int pattern_domain_normalize(const char *in, char out[static POLICY_NAME_MAX + 3]);
