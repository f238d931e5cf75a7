#pragma once
/* A refusal as JSON. Pure. */

#include "policy/policy.h"

#include <jansson.h>
#include <stdint.h>

#define DENIALS_MAX 64u

struct denial {
    int64_t at_ms;    /* the last time */
    uint32_t count;   /* that it was refused alike */
    uint32_t command; /* of the command that was refused; 0: none's */
    uint16_t port;
    char name[POLICY_NAME_MAX + 1]; /* or the address in digits */
    char method[16], path[128];     /* of a request; printable ASCII, cut */
    char rule[POLICY_RULE_NAME_MAX + 1];
    char reason[POLICY_REASON_SIZE];
};

/* Free with json_decref; NULL when memory is out. */
json_t *denial_json(const struct denial *d);
