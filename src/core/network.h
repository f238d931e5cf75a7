#pragma once
/* The settings of a sandbox's network beside the policy: the way in, and a proxy on the way out.
 * The API translates each dialect's own words into it (api/e2b_network.c); core and gateway read
 * nothing but this.
 *
 * Immutable and reference-counted: sandboxes, requests and callers share one. Control loop only;
 * nothing blocks. NULL is a sandbox for which nothing was set: its ports are public, no Host is
 * replaced, and there is no proxy. */

#include <jansson.h>
#include <stdbool.h>

#define NETWORK_TEXT_MAX 255u /* bytes of each text below */

/* The fields that are stored and given out. Texts may be NULL: not set. */
struct network_fields {
    bool private_ports; /* requests to a port other than the agent's must carry the traffic token */
    const char *masked_host;   /* Host of requests to a port; "${PORT}" in it stands for the port */
    const char *proxy_address; /* "203.0.113.7:1080", in digits and public: the SOCKS proxy that
                                  cay-egress goes through */
    const char *proxy_user;    /* its user name */
    json_t *shown; /* the dialect's own object, never read here: it is stored and given back */
};

struct network {
    unsigned refs;
    struct network_fields f; /* texts and shown belong to it */
};

/* Copies the texts and takes a reference to shown, which stays unchanged from now on. NULL: memory
 * is out, or a text is longer than NETWORK_TEXT_MAX. */
struct network *network_new(const struct network_fields *f);

/* NULL stays NULL. */
struct network *network_ref(struct network *n);
void network_unref(struct network *n);

/* The dialect's own object, borrowed; NULL: none. n may be NULL. */
json_t *network_shown(const struct network *n);
