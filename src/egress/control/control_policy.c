/* A policy of cayd's, from JSON to what is in force: rules, ceilings, credentials, the upstream
 * proxy, and those of command sandboxes. All of it is read (on a helper thread where it is long:
 * document.h) and the log prepared before registry.c puts it in force, so that a mistake leaves
 * what was. It is answered when what is open has been asked about (policy_sweep.h). */
#include "egress/control/control_policy.h"

#include "base/util.h"
#include "egress/control/allows.h"
#include "egress/credential/credential.h"
#include "egress/flow/audit.h"
#include "egress/flow/egress.h"
#include "egress/flow/intercept.h"
#include "egress/flow/policy_sweep.h"
#include "egress/flow/registry.h"
#include "egress/flow/upstream.h"
#include "http/server.h"
#include "policy/policy.h"

#include <stdlib.h>
#include <string.h>

static enum err_code take_text(const json_t *o, const char *key, char *out, size_t size,
                               struct err *e)
{
    const char *text = json_string_value(json_object_get(o, key));

    if (!text || !*text || strlen(text) >= size)
        return err_set(e, ERR_INVALID, "%s: missing, or not a text of 1 to %zu bytes", key,
                       size - 1);
    memcpy(out, text, strlen(text) + 1);
    return ERR_OK;
}

/* Needed, though it may be empty: a caller that forgets it must not open what it would have
 * closed. */
static enum err_code take_ceilings(const json_t *o, struct sandbox_rules *r, struct err *e)
{
    const json_t *list = json_object_get(o, "ceilings"), *item;
    struct err inner = {0};
    size_t i;

    if (!json_is_array(list) || json_array_size(list) > EGRESS_CEILINGS_MAX)
        return err_set(e, ERR_INVALID, "ceilings: not a list of at most %u policies",
                       EGRESS_CEILINGS_MAX);
    json_array_foreach (list, i, item)
        if (policy_new(item, &r->ceilings[i], &inner) != ERR_OK)
            return err_set(e, inner.code, "ceilings[%zu]: %s", i, inner.text);
    return ERR_OK;
}

static enum err_code take_policies(const json_t *o, struct sandbox_rules *r, struct err *e)
{
    struct err inner = {0};

    if (policy_new(json_object_get(o, "policy"), &r->policy, &inner) != ERR_OK)
        return err_set(e, inner.code, "policy: %s", inner.text);
    r->allows = allows_list(r->policy);
    if (!r->allows)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    return take_ceilings(o, r, e);
}

static enum err_code take_rest(struct egress *eg, const json_t *o, struct sandbox_rules *r,
                               struct err *e)
{
    const json_t *proxy = json_object_get(o, "proxy");
    const json_t *credentials = json_object_get(o, "credentials");

    if (json_is_object(proxy) && upstream_from_json(proxy, &r->upstream, e) != ERR_OK)
        return e->code;
    if (json_array_size(credentials) == 0)
        return ERR_OK;
    if (!eg->intercept)
        return err_set(e, ERR_UNIMPLEMENTED, "credentials: this server holds none");
    return intercept_credentials_new(eg, r->tenant, credentials, &r->credentials, e);
}

/* Of a command: what it says goes for it alone, and within what the sandbox's says. */
static enum err_code take_command_sandbox(struct egress *eg, const json_t *o, const char *tenant,
                                          struct command_sandbox_rules *r, struct err *e)
{
    const json_t *credentials = json_object_get(o, "credentials");
    json_int_t number = json_integer_value(json_object_get(o, "number"));
    struct err inner = {0};

    if (number < 1 || number > UINT32_MAX)
        return err_set(e, ERR_INVALID, "number: not one from 1 to %u", UINT32_MAX);
    r->number = (uint32_t)number;
    if (policy_new(json_object_get(o, "policy"), &r->policy, &inner) != ERR_OK)
        return err_set(e, inner.code, "policy: %s", inner.text);
    if (policy_reroute(r->policy, NULL))
        return err_set(e, ERR_INVALID, "policy: reroute: only a sandbox's own policy has it");
    r->allows = allows_list(r->policy);
    if (!r->allows)
        return err_set(e, ERR_EXHAUSTED, "out of memory");
    if (json_array_size(credentials) == 0 || !eg->intercept)
        return ERR_OK;
    return intercept_credentials_new(eg, tenant, credentials, &r->credentials, e);
}

static enum err_code take_command_sandboxes(struct egress *eg, const json_t *o,
                                            struct sandbox_rules *r, struct err *e)
{
    const json_t *list = json_object_get(o, "command_sandboxes"), *command;
    struct err inner = {0};
    size_t i;

    if (json_array_size(list) > REGISTRY_COMMAND_SANDBOXES_MAX)
        return err_set(e, ERR_INVALID, "command_sandboxes: more than %u",
                       REGISTRY_COMMAND_SANDBOXES_MAX);
    json_array_foreach (list, i, command)
        if (take_command_sandbox(eg, command, r->tenant,
                                 &r->command_sandboxes[r->n_command_sandboxes++], &inner) != ERR_OK)
            return err_set(e, inner.code, "command_sandboxes[%zu]: %s", i, inner.text);
    return ERR_OK;
}

void control_policy_drop(struct sandbox_rules *r)
{
    if (!r)
        return;
    for (size_t i = 0; i < r->n_command_sandboxes; i++) {
        policy_free(r->command_sandboxes[i].policy);
        free(r->command_sandboxes[i].allows);
        credentials_unref(r->command_sandboxes[i].credentials);
    }
    policy_free(r->policy);
    for (size_t i = 0; i < EGRESS_CEILINGS_MAX; i++)
        policy_free(r->ceilings[i]);
    upstream_free(r->upstream);
    free(r->allows);
    credentials_unref(r->credentials);
    free(r);
}

enum err_code control_policy_read(struct egress *eg, const json_t *o, struct sandbox_rules **out,
                                  struct err *e)
{
    struct sandbox_rules *r = calloc(1, sizeof(*r));

    if (!r)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if (take_text(o, "id", r->id, sizeof(r->id), e) != ERR_OK ||
        take_text(o, "tenant", r->tenant, sizeof(r->tenant), e) != ERR_OK ||
        take_policies(o, r, e) != ERR_OK || take_rest(eg, o, r, e) != ERR_OK ||
        take_command_sandboxes(eg, o, r, e) != ERR_OK) {
        control_policy_drop(r);
        return e->code;
    }
    *out = r;
    return ERR_OK;
}

/* No policy is in force of which a decision could not be recorded. */
static enum err_code prepare_log(struct egress *eg, const char *tenant, struct err *e)
{
    if (!eg->audit || audit_prepare(eg->audit, tenant))
        return ERR_OK;
    return err_set(e, ERR_UNAVAILABLE, "memory is out");
}

enum err_code control_policy_put(struct egress *eg, uint32_t slot, uint32_t gen,
                                 struct sandbox_rules *r, struct err *e)
{
    if (prepare_log(eg, r->tenant, e) != ERR_OK || registry_policy(eg, slot, gen, r, e) != ERR_OK) {
        control_policy_drop(r);
        return e->code;
    }
    free(r); /* its parts were taken over */
    return ERR_OK;
}

/* -- the answer -------------------------------------------------------------------------------- */

/* A caller of PUT, while connections are asked about. */
struct put {
    struct policy_waiter waiter;
    struct egress *egress;
    uint32_t slot, gen;
    struct http_exchange *x;
};

static void on_gone(struct http_exchange *x, void *data)
{
    struct put *p = data;
    struct sandbox *s = registry_find(p->egress, p->slot, p->gen, 0);

    if (s)
        policy_sweep_leave(s, &p->waiter);
    free(p);
}

static void respond(struct http_exchange *x, bool ended)
{
    if (ended)
        http_respond_error(x, 409, "the sandbox has ended");
    else
        http_respond(x, 204, NULL, 0, NULL, 0);
}

static void on_swept(struct policy_waiter *w, bool ended)
{
    struct put *p = CONTAINER_OF(w, struct put, waiter);
    struct http_exchange *x = p->x;

    http_exchange_set(x, NULL, NULL);
    free(p);
    respond(x, ended);
}

static void answer(struct put *p)
{
    struct sandbox *s = registry_find(p->egress, p->slot, p->gen, 0);
    struct http_exchange *x = p->x;

    if (s && policy_sweep_await(s, &p->waiter)) {
        http_exchange_set(x, p, on_gone);
        return;
    }
    free(p);
    respond(x, !s);
}

enum err_code control_policy_take(struct egress *eg, uint32_t slot, uint32_t gen,
                                  struct sandbox_rules *r, struct http_exchange *x, struct err *e)
{
    struct put *p = calloc(1, sizeof(*p));

    if (!p) {
        control_policy_drop(r);
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    }
    if (control_policy_put(eg, slot, gen, r, e) != ERR_OK) {
        free(p);
        return e->code;
    }
    *p = (struct put){.waiter.done = on_swept, .egress = eg, .slot = slot, .gen = gen, .x = x};
    answer(p);
    return ERR_OK;
}
