#pragma once
/* The certificates of the tenants' CAs, which cay-egress signs with where it reads TLS: every
 * sandbox gets its tenant's at its start, so that a policy may begin to need it later. A
 * certificate is asked for with a tenant's first create and kept from then on, until cay-egress was
 * restarted. */

#include <stdbool.h>

struct core;
struct tenant;
struct timer;

/* True: it is being asked for now; on_tenant_ca of each sandbox that has one is called when that
 * is over. False: tenant_ca_pem has it, or there is none to be had. */
bool tenant_ca_wanted(struct tenant *t);

/* PEM, or NULL. */
const char *tenant_ca_pem(const struct tenant *t);

/* Running sandboxes that are not known to have it (they were made while cay-egress was away, or
 * cayd died before their agent had taken it) get theirs now, or as soon as it can be had; those
 * whose agent does not take it, again later. The progress is in the store: a restart of cayd goes
 * on where it was. */
void tenant_ca_install(struct core *c);
void tenant_ca_on_timer(struct timer *t);

/* cay-egress has begun a life: they are asked for anew, and looked after as above. */
void tenant_ca_renew(struct core *c);
void tenant_ca_free(struct core *c);
