#pragma once
/* HTTP/2 that was decrypted: a flow whose streams are requests, each asked about, recorded and
 * counted as one of HTTP/1.1 is (forward.c, request.c). */

#include "base/err.h"
#include "egress/h2/h2.h"

#include <stdbool.h>

struct flow;
struct sandbox;

/* Why there is no server; all zero: there is one. */
struct h2_flow_lost {
    int status;  /* that requests are answered with which the policy allows */
    bool denied; /* it was the policy, for its addresses */
    struct err why;
};

/* A place among the sandbox's, for a connection that may come to be one. False: it has as many as
 * it may have. */
bool h2_flow_reserve(struct sandbox *s);
void h2_flow_release(struct sandbox *s);

/* Both ends are taken over on success, and a place; the flow ends with them. server->fd -1: lost
 * says why. 0 or -errno. */
int h2_flow_start(struct flow *f, const struct tls_endpoint *client,
                  const struct tls_endpoint *server, const struct h2_flow_lost *lost);

/* The policy changed, and still allows the name: requests that it does not allow any more are
 * refused or cut. Of all that there are, from now on; one of them in each call of the second. True:
 * there may be another. */
void h2_flow_recheck_all(struct flow *f);
bool h2_flow_recheck(struct flow *f);

/* The next of its requests that wait for a credential is looked at again: h2_again. */
bool h2_flow_again(struct flow *f, uint64_t sweep_number);
