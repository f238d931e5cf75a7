#pragma once
/* A policy in memory; no file outside src/policy includes it. Functions that the files of this
 * folder use of each other are in headers of the files' names.
 *
 * address.c  addresses: text, ranges, those never reached and public ones
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
    bool asks;   /* the owner decides about requests that nothing allows */
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
