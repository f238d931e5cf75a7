#pragma once
/* The certificates of the tenants' authorities, which cay-egress signs with where it reads TLS: every
 * sandbox gets its tenant's at its start, so that a policy may begin to need it later. One is asked for
 * with a tenant's first create and kept from then on, until cay-egress was restarted. */

#include "core/internal.h"

/* True: it is being asked for now; create_go_on is called for each sandbox whose init_waits is set when
 * that is over. False: authority_pem has it, or there is none to be had. */
bool authority_wanted(struct core *c, const char *tenant);

/* PEM, or NULL. */
const char *authority_pem(struct core *c, const char *tenant);

/* cay-egress has begun a life: they are asked for anew. Running sandboxes that were made without one,
 * while it was away, get theirs now. */
void authority_renew(struct core *c);
void authority_free(struct core *c);
