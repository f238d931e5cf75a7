/* PUT /sandboxes/{id}/network: read and split (e2b_network.c), what its rules have of headers
 * sealed, then set. A failure at any step leaves the sandbox with what it had. */
#include "api/e2b.h"
#include "core/credential.h"
#include "http/json.h"

#include <stdlib.h>

struct update {
    struct core_network n;
};

static void update_free(void *state)
{
    struct update *u = state;

    network_unref(u->n.network);
    json_decref(u->n.policy);
    json_decref(u->n.credentials);
    free(u);
}

static void update_sealed(void *arg, json_t *sealed, const struct err *why)
{
    struct api_call *call = arg;
    struct update *u = call->state;

    if (why) {
        api_fail_err(call, why);
        return;
    }
    u->n.credentials = json_incref(sealed);
    core_sandbox_set_network(call->core, call->who.tenant, call->params[0], &u->n, e2b_sandbox_done,
                             call);
}

/* E2B's update replaces everything: an absent field is cleared. Traffic from outside is not part of
 * it. */
void e2b_sandbox_network(struct api_call *call)
{
    const struct sandbox *s = core_sandbox_find(call->core, call->who.tenant, call->params[0]);
    json_t *secrets = NULL, *network = NULL;
    struct update *u;
    struct err e;

    if (!s) {
        e2b_no_sandbox(call, call->params[0]);
        return;
    }
    u = api_call_state(call, sizeof(*u), update_free);
    if (!u)
        return;
    u->n.allow_internet = true;
    if (json_get_bool(call->body, E2B_INTERNET_KEY, NULL, JSON_OPTIONAL, &u->n.allow_internet,
                      &e) ||
        e2b_network_update(network_shown(s->network), call->body, &network, &e) ||
        e2b_network_split(network, u->n.allow_internet, &u->n.network, &u->n.policy, &secrets, &e))
        api_fail_err(call, &e);
    else if (json_array_size(secrets) > 0)
        core_credentials_seal(call->core, call->who.tenant, secrets, update_sealed, call);
    else
        core_sandbox_set_network(call->core, call->who.tenant, call->params[0], &u->n,
                                 e2b_sandbox_done, call);
    json_decref(network);
    json_decref(secrets);
}
