/* All that decides what leaves a sandbox, put together as cay-egress is sent it: its own policy and
 * its commands', the ceilings above it, the sealed credentials that they name, its proxy. egress.c
 * asks for it each time that it sends it. */

#include "core/egress_policy.h"

#include "base/err.h"
#include "core/credential_internal.h"
#include "core/exec.h"
#include "core/sandbox.h"
#include "http/json.h"

/* The proxy that its owner named, as cay-egress takes it: null where there is none. There is no
 * password: the API refuses one. NULL: memory is out, and nothing is sent, as without it all would
 * leave past the proxy. */
static json_t *proxy_of(const struct network *n)
{
    json_t *o;

    if (!n || !n->f.proxy_address)
        return json_null();
    o = json_pack("{s:s}", "address", n->f.proxy_address);
    if (o && n->f.proxy_user &&
        json_object_set_new(o, "username", json_string(n->f.proxy_user)) < 0) {
        json_decref(o);
        return NULL;
    }
    return o;
}

/* NULL: why. */
char *egress_policy_body(struct sandbox_obj *o, struct err *e)
{
    json_t *ceilings = ceilings_of(o, e), *body;
    char *text;

    if (!ceilings)
        return NULL;
    body = json_pack("{s:s, s:s, s:O?, s:o, s:o, s:o, s:o}", "id", o->s.id, "tenant", o->s.tenant,
                     "policy", o->s.policy, "credentials", credentials_for(o->tenant, &o->s),
                     "ceilings", ceilings, "proxy", proxy_of(o->s.network), "command_sandboxes",
                     exec_command_sandboxes(o));
    text = json_text(body, JSON_COMPACT);
    json_decref(body);
    if (!text)
        err_set(e, ERR_EXHAUSTED, "memory is out");
    return text;
}
