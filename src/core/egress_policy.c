/* All that decides what leaves a sandbox, put together as cay-egress is sent it: its own policy and
 * its commands', the ceilings above it, the sealed credentials that they name, its proxy. egress.c
 * asks for it each time that it sends it. */

#include "core/egress_policy.h"

#include "base/err.h"
#include "core/credential_internal.h"
#include "core/exec.h"
#include "core/sandbox.h"

/* The proxy that its owner named, as cay-egress takes it. There is no password: the API refuses
 * one. NULL: none. */
static json_t *proxy_of(const struct network *n)
{
    if (!n || !n->f.proxy_address)
        return NULL;
    return json_pack("{s:s, s:s*}", "address", n->f.proxy_address, "username", n->f.proxy_user);
}

/* NULL: why. */
char *egress_policy_body(struct sandbox_obj *o, struct err *e)
{
    json_t *ceilings = ceilings_of(o, e), *body;
    char *text;

    if (!ceilings)
        return NULL;
    body = json_pack("{s:s, s:s, s:O?, s:o, s:o, s:o?, s:o?}", "id", o->s.id, "tenant", o->s.tenant,
                     "policy", o->s.policy, "credentials", credentials_for(o->tenant, &o->s),
                     "ceilings", ceilings, "proxy", proxy_of(o->s.network), "rooms",
                     exec_command_sandboxes(o));
    text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    if (!text)
        err_set(e, ERR_EXHAUSTED, "memory is out");
    return text;
}
