/* The ceiling of a tenant: the limit on the network policies of its sandboxes: see ceiling.h. */
#include "core/ceiling.h"

#include "base/log.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/credential_internal.h"
#include "core/egress.h"
#include "core/logs.h"
#include "core/reserve.h"
#include "core/sandbox.h"
#include "core/store_tenant.h"
#include "core/tenant.h"
#include "policy/policy.h"

/* A ceiling that is being put in force: one wait for each sandbox of the tenant, and our own. */
struct change {
    unsigned pending;
    core_done_cb done;
    void *arg;
    struct err why; /* the first failure; ERR_OK: none */
};

enum err_code core_tenant_each(struct core *c,
                               enum err_code (*fn)(void *arg, const struct core_tenant *t,
                                                   struct err *e),
                               void *arg, struct err *e)
{
    return store_tenant_each(c->store, fn, arg, e);
}

enum err_code core_tenant_ceiling(struct core *c, const char *tenant, json_t **out, struct err *e)
{
    struct tenant *t = tenant_get(c, tenant);
    enum err_code code = t ? tenant_ceiling(t, out, e)
                           : err_set(e, ERR_UNAVAILABLE, "memory is out");

    tenant_unref(t);
    return code;
}

/* Read once here, so that a bad one is refused with its place. */
static enum err_code check(const json_t *ceiling, struct err *e)
{
    struct policy *read = NULL;
    enum err_code code = policy_new(ceiling, &read, e);

    policy_free(read);
    if (code == ERR_OK && json_object_get(ceiling, "inject"))
        return err_set(e, ERR_INVALID,
                       "inject: a ceiling only says what is allowed; credentials "
                       "are put on requests by a sandbox's own policy");
    if (code == ERR_OK && json_object_get(ceiling, "reroute"))
        return err_set(e, ERR_INVALID,
                       "reroute: a ceiling only says what is allowed; where a name's connections "
                       "go is a sandbox's own policy's to say");
    return code;
}

static void release(struct change *ch)
{
    if (--ch->pending > 0)
        return;
    ch->done(ch->arg, ch->why.code == ERR_OK ? NULL : &ch->why);
    free(ch);
}

static void in_force(void *arg, const struct sandbox *s, const struct err *why)
{
    struct change *ch = arg;

    (void)s;
    if (why && why->code != ERR_NOT_FOUND &&
        ch->why.code == ERR_OK) /* an ended sandbox needs none */
        ch->why = *why;
    release(ch);
}

void core_tenant_set_ceiling(struct core *c, const char *tenant, const json_t *ceiling,
                             core_done_cb done, void *arg)
{
    struct tenant *t = tenant_get(c, tenant);
    struct change *ch;
    struct err e;

    if (!t)
        err_set(&e, ERR_UNAVAILABLE, "memory is out");
    if (!t || (ceiling && check(ceiling, &e) != ERR_OK) ||
        tenant_set_ceiling(t, ceiling, &e) != ERR_OK) {
        tenant_unref(t);
        done(arg, &e);
        return;
    }
    log_info("tenant %s: its ceiling was %s", tenant, ceiling ? "set" : "removed");
    ch = RESERVE_NEW(&c->reserve, struct change);
    *ch = (struct change){.pending = 1, .done = done, .arg = arg};
    for (struct sandbox_obj *o = t->sandboxes; o; o = o->tenant_next) {
        if (!core_admits(c)) { /* a wait for each is more than is set aside */
            egress_touch(o);
            err_set(&ch->why, ERR_EXHAUSTED,
                    "the ceiling is set; memory is out, so that it is not known when it is in "
                    "force in each sandbox");
            continue;
        }
        ch->pending++;
        egress_touch_and_notify(o, in_force, ch);
    }
    tenant_unref(t);
    release(ch);
}

/* -- what a sandbox is under ------------------------------------------------------------------- */

/* The operator's and own, which is the tenant's (NULL: none). */
static json_t *both(const struct core *c, json_t *own, struct err *e)
{
    const char *all = c->config.egress_ceiling;
    json_t *list = json_array();

    if ((all && json_array_append_new(list, json_pack("{s:s}", "default", all)) < 0) ||
        (own && json_array_append(list, own) < 0)) {
        json_decref(list);
        list = NULL;
    }
    if (!list)
        err_set(e, ERR_EXHAUSTED, "memory is out");
    return list;
}

json_t *egress_ceilings(struct tenant *t, struct err *e)
{
    json_t *own = NULL, *list;

    if (tenant_ceiling(t, &own, e) != ERR_OK)
        return NULL;
    list = both(t->core, own, e);
    json_decref(own);
    return list;
}

/* A tenant that is not there when its ceiling is read (the store was replaced, or changed by
 * hand) set no bounds, and so gives none away: nothing is let out. Without all of them nothing is
 * sent: NULL. */
json_t *ceilings_of(struct sandbox_obj *o, struct err *e)
{
    json_t *list = egress_ceilings(o->tenant, e), *deny;

    if (list || e->code != ERR_NOT_FOUND)
        return list;
    log_error("sandbox %s: %s; nothing leaves this sandbox", o->s.id, e->text);
    logs_add(o, "error", "%s; nothing leaves this sandbox", e->text);
    deny = json_pack("{s:s}", "default", "deny");
    if (!deny) {
        err_set(e, ERR_EXHAUSTED, "memory is out");
        return NULL;
    }
    list = both(o->core, deny, e);
    json_decref(deny);
    return list;
}
