#pragma once
/* An https address that this server calls for a tenant (an OAuth token endpoint, a webhook): a name
 * (no address in digits: the address dialled is checked against the rules of names), no user, no
 * fragment. Pure. */

#include "policy/policy.h"

#define HTTPS_URL_TARGET_MAX 1024u

struct https_url {
    char host[POLICY_NAME_MAX + 1];      /* normalized */
    char authority[POLICY_NAME_MAX + 8]; /* the same, with the port where that is not 443 */
    uint16_t port;
    char target[HTTPS_URL_TARGET_MAX]; /* path and query */
};

/* False: it is none. */
bool https_url_parse(const char *text, struct https_url *out);

/* Its path, without a query. */
void https_url_path(const struct https_url *url, char out[static HTTPS_URL_TARGET_MAX]);

/* Is it the authority of one? */
bool https_url_is_host(const char *text);
