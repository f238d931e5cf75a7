#pragma once
/* The address of an OAuth token endpoint: https, a name (no address in digits: what is dialled is
 * checked against the rules of names), no user, no fragment. Pure. */

#include "policy/policy.h"

#define OAUTH_URL_TARGET_MAX 1024u

struct oauth_url {
    char host[POLICY_NAME_MAX + 1];      /* normalized */
    char authority[POLICY_NAME_MAX + 8]; /* the same, with the port where that is not 443 */
    uint16_t port;
    char target[OAUTH_URL_TARGET_MAX]; /* path and query */
};

/* False: it is none. */
bool oauth_url_parse(const char *text, struct oauth_url *out);

/* Is it the authority of one? */
bool oauth_url_is_host(const char *text);
