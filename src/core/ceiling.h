#pragma once
/* The ceilings of tenants, which limit the network policies of their sandboxes, and the list of
 * tenants. */

#include "core/core.h"

struct core_tenant {
    char name[CORE_TENANT_SIZE];
    int64_t made_real_ms;
    unsigned keys;
    json_t *ceiling; /* NULL: only the operator's (config.egress_ceiling) */
};

/* By name; t lives during the call. Stops when fn fails. */
enum err_code core_tenant_each(struct core *c,
                               enum err_code (*fn)(void *arg, const struct core_tenant *t,
                                                   struct err *e),
                               void *arg, struct err *e);

/* The tenant's ceiling, a policy; NULL when it has none of its own. A new reference. ERR_NOT_FOUND
 * for an unknown tenant. */
enum err_code core_tenant_ceiling(struct core *c, const char *tenant, json_t **out, struct err *e);

/* Written through, then put in force for the tenant's sandboxes; connections that are denied now
 * are cut. ceiling NULL removes it. done perhaps from inside the call: ERR_INVALID with the place
 * of the mistake, ERR_NOT_FOUND; ERR_UNAVAILABLE: it is written, and in force as soon as cay-egress
 * answers. */
void core_tenant_set_ceiling(struct core *c, const char *tenant, const json_t *ceiling,
                             core_done_cb done, void *arg);
