#pragma once
/* Shared by the files of the policy; no file outside src/policy includes it.
 *
 * address.c  addresses: text, ranges, what is never reached and what is public
 * pattern.c  names and paths against their patterns
 * parse.c    JSON to struct policy
 * condition.c the conditions of a rule, as one table
 * rule.c     a rule against what is asked
 * preset.c   the named ones
 * decide.c   the three questions
 * offer.c    what is allowed, in words
 * stack.c    all policies above a sandbox together: stack.h
 * binding.c  what a credential may be put on: stack.h
 * near.c     the rule that almost allowed it
 * explain.c  a verdict as a sentence
 * explanation.c what will happen, before it is tried: explanation.h
 * lint.c     what can never have an effect: lint.h */

#include "policy/condition.h"

enum fallback { FALLBACK_DENY, FALLBACK_PUBLIC, FALLBACK_ALLOW };

#define PRESETS_MAX 8

struct policy {
    bool shared; /* a named preset: constant */
    enum fallback fallback;
    bool warns;  /* denies nothing: says what it would */
    bool asks;   /* what nothing allows is the owner's to say */
    bool closes; /* TLS that it refuses ends in the handshake */
    struct rule *rules;
    size_t n_rules;
    struct rule *injections;
    size_t n_injections;
    const struct rule *presets[PRESETS_MAX];
    size_t n_presets;
    struct policy_reroute *reroutes;
    size_t n_reroutes;
    struct policy_limits limits;
};

/* -- pattern.c --------------------------------------------------------------------------------- */

/* name is normalized; pattern is "name" or "*.suffix". */
bool pattern_domain(const char *pattern, const char *name);

/* Could one name meet both patterns? */
bool pattern_domains_overlap(const char *a, const char *b);

/* '*' stands for anything within one segment, at the end for all that follows. */
bool pattern_path(const char *pattern, const char *path);

/* The same for what is denied: without case, and one '/' more at the path's end, since there are
 * servers to which that is the same. */
bool pattern_path_denied(const char *pattern, const char *path);

/* Could two programs read this path differently? */
bool pattern_path_is_ambiguous(const char *path);

/* "*.example.org" or a name, normalized into out. 0 or -EINVAL. */
int pattern_domain_normalize(const char *in, char out[static POLICY_NAME_MAX + 3]);

/* -- condition.c ------------------------------------------------------------------------------- */

/* Reads the digits of a port and goes behind them. */
bool condition_port_from_text(const char **text, uint16_t *out);

/* -- address.c --------------------------------------------------------------------------------- */

/* "192.0.2.0/24", "2001:db8::/32", or one address; bits after the prefix must be 0. 0 or
 * -EINVAL. */
int address_range_parse(const char *text, struct range *out);
void address_range_format(const struct range *r, char *out, size_t size);
bool address_in(const struct range *r, const struct policy_address *a);

bool address_ranges_overlap(const struct range *a, const struct range *b);

/* Is each address of the range one that no policy opens, without the host's own? One that is not
 * public? False where it is so only of several ranges together. */
bool address_range_is_never(const struct range *r);
bool address_range_is_private(const struct range *r);

/* Or an IPv4 address that it carries for a gateway or a tunnel: for what is denied. */
bool address_reaches(const struct range *r, const struct policy_address *a);

/* -- near.c ------------------------------------------------------------------------------------ */

/* For what no rule decides: "; rule 2 "web" has this host; not port 22, only 443". False and "":
 * none has it. */
bool near_miss(const struct policy *p, const struct subject *s, char *out, size_t size);

/* -- preset.c ---------------------------------------------------------------------------------- */

/* A rule that allows, with the preset's name. */
const struct rule *preset_find(const char *name);
/* "deny", "public", "allow": false for another. */
bool preset_fallback(const char *name, enum fallback *out);
const char *preset_fallback_name(enum fallback f);
/* Names of all presets, "a, b", for error texts. */
const char *preset_names(void);
