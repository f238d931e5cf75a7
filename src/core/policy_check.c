#include "core/policy_check.h"

#include "core/ceiling.h"
#include "core/core_internal.h"
#include "core/credential_internal.h"
#include "policy/lint.h"

/* The tenant's ceiling; NULL: it has none of its own. */
static enum err_code read_ceiling(struct core *c, const char *tenant, struct policy **out,
                                  struct err *e)
{
    json_t *ceiling = NULL;
    enum err_code code = core_tenant_ceiling(c, tenant, &ceiling, e);

    if (code == ERR_OK && ceiling)
        code = policy_new(ceiling, out, e);
    json_decref(ceiling);
    return code;
}

enum err_code core_policy_check(struct core *c, const char *tenant, const json_t *policy,
                                const json_t *own, json_t **out, struct err *e)
{
    json_t *credentials = NULL;
    struct policy *read = NULL, *ceiling = NULL;
    enum err_code code = policy_new(policy, &read, e);

    if (code == ERR_OK)
        code = credentials_check(c, tenant, read, own, e);
    if (code == ERR_OK)
        code = read_ceiling(c, tenant, &ceiling, e);
    if (code == ERR_OK) {
        const char *all = c->config.egress_ceiling;
        struct policy_lint l = {.own = read, .all = all ? policy_preset(all) : NULL};

        l.tenant = ceiling;
        l.credentials = credentials = credentials_named(c, tenant, policy, own);
        *out = credentials ? policy_lint(&l) : NULL;
        if (!*out)
            code = err_set(e, ERR_EXHAUSTED, "memory is out");
    }
    json_decref(credentials);
    policy_free(read);
    policy_free(ceiling);
    return code;
}
