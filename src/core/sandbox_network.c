/* A change of a sandbox's policy by its owner: checked, written, then given to cay-egress, whose
 * answer is the caller's: until then what the old policy allows goes on. */

#include "core/sandbox_network.h"

#include "core/core.h"
#include "core/core_internal.h"
#include "core/credential_internal.h"
#include "core/deferred.h"
#include "core/egress.h"
#include "core/events.h"
#include "core/sandbox.h"
#include "core/store_sandbox.h"
#include "policy/policy.h"

/* Read once here, so that a bad one is refused with its place before anything is made of it. */
enum err_code sandbox_check_policy(struct core *c, const char *tenant, const json_t *policy,
                                   const json_t *own, struct err *e)
{
    struct policy *read = NULL;
    enum err_code code = policy_new(policy, &read, e);

    if (code == ERR_OK)
        code = credentials_check(c, tenant, read, own, e);
    policy_free(read);
    return code;
}

static void replace(json_t **at, json_t *value)
{
    json_incref(value);
    json_decref(*at);
    *at = value;
}

static enum err_code set_network(struct core *c, struct sandbox_obj *o,
                                 const struct core_network *n, struct err *e)
{
    struct sandbox changed = o->s;
    enum err_code code = sandbox_check_policy(c, o->s.tenant, n->policy, n->credentials, e);

    if (code != ERR_OK)
        return code;
    changed.network = n->network;
    changed.policy = n->policy;
    changed.credentials = n->credentials;
    changed.allow_internet = n->allow_internet;
    code = store_sandbox_set_network(c->store, &changed, e);
    if (code != ERR_OK)
        return code;
    network_unref(o->s.network);
    o->s.network = network_ref(n->network);
    replace(&o->s.policy, n->policy);
    replace(&o->s.credentials, n->credentials);
    o->s.allow_internet = n->allow_internet;
    return ERR_OK;
}

void core_sandbox_set_network(struct core *c, const char *tenant, const char *id,
                              const struct core_network *n, core_sandbox_cb done, void *arg)
{
    struct sandbox_obj *o = NULL;
    struct err e;

    if (sandbox_visible(c, tenant, id, &o, &e) != ERR_OK || set_network(c, o, n, &e) != ERR_OK) {
        core_defer_error(c, done, arg, &e);
        return;
    }
    events_add(o->tenant, EVENT_SANDBOX_POLICY, id, NULL);
    egress_touch_and_notify(o, done, arg);
}
