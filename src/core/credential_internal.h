#pragma once
/* The functions of credential.c and ceiling.c for the rest of core: the settings that a sandbox has
 * from its tenant. */

#include "core/core.h"

struct policy;
struct sandbox_obj;
struct tenant;

/* Does own (may be NULL) or the tenant have every credential that the policy names? */
enum err_code credentials_check(struct core *c, const char *tenant, const struct policy *policy,
                                const json_t *own, struct err *e);

/* The policies above s's own: the operator's for all and the tenant's. NULL: not known, with the
 * reason; then nothing may be let out. */
json_t *ceilings_of(struct sandbox_obj *o, struct err *e);

/* The sealed records that s's policy names, of its own and of t, its tenant: a new array, as
 * cay-egress takes it. */
json_t *credentials_for(struct tenant *t, const struct sandbox *s);

/* Those that policy names, of own (may be NULL) and the tenant's, with their sealed values and
 * without tokens: a new array, NULL: memory is out. */
json_t *credentials_named(struct core *c, const char *tenant, const json_t *policy,
                          const json_t *own);

/* Sandboxes of the tenant that use it are given it anew. */
void credentials_touch(const struct tenant *t, const char *name);

/* Those that a command's own policy names, and s's too. */
json_t *credentials_for_command(struct tenant *t, const struct sandbox *s, json_t *policy);
