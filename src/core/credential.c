/* A value takes this way: core_credentials_seal sends its items to cay-egress one after the
 * other, and answers with sealed records or with the first failure; the API then stores them
 * with a sandbox (create.c, sandbox_network.c), or core_credential_set as the tenant's own, in
 * which case sandboxes that use the name are given it anew. egress.c and exec_command_sandbox.c
 * ask for the records that a policy names whenever they send it. */

#include "core/credential.h"

#include "base/log.h"
#include "core/call.h"
#include "core/core.h"
#include "core/core_internal.h"
#include "core/credential_internal.h"
#include "core/deferred.h"
#include "core/egress.h"
#include "core/egress_query.h"
#include "core/renewal.h"
#include "core/reserve.h"
#include "core/sandbox.h"
#include "core/store_credential.h"
#include "core/tenant.h"
#include "http/json.h"
#include "policy/policy.h"

#include <stdio.h>
#include <string.h>

#define SEALED_MAX      (64u * 1024u) /* of an answer */
#define SEAL_TIMEOUT_MS 5000u
#define ITEMS_MAX       64u

/* -- sealing ----------------------------------------------------------------------------------- */

/* Items are sealed one after the other. */
struct sealing {
    struct core *core;
    struct tenant *tenant; /* NULL: memory is out */
    json_t *items, *out;
    size_t next;
    core_sealed_cb done;
    void *arg;
    struct err why; /* code ERR_OK: good so far */
    struct deferred later;
    struct trace_context trace; /* of the call */
};

static void finish_sealing(void *arg)
{
    struct sealing *s = arg;
    const struct trace_context before = trace_enter(s->core, &s->trace);
    bool good = s->why.code == ERR_OK;

    json_decref(s->items);
    s->items = NULL;
    s->done(s->arg, good ? s->out : NULL, good ? NULL : &s->why);
    (void)trace_enter(s->core, &before);
    json_decref(s->out);
    tenant_unref(s->tenant);
    free(s);
}

/* json_dumps would leave pieces behind in buffers that it has outgrown. */
static char *dump_once(const json_t *o)
{
    size_t n = json_dumpb(o, NULL, 0, JSON_COMPACT);
    char *text = n ? malloc(n + 1) : NULL;

    if (text && json_dumpb(o, text, n, JSON_COMPACT) != n) { /* each of the two takes memory */
        free(text);
        return NULL;
    }
    if (text)
        text[n] = '\0';
    return text;
}

static char *seal_body(const struct sealing *s)
{
    const json_t *item = json_array_get(s->items, s->next);
    json_t *body = json_pack("{s:s, s:O, s:O, s:O}", "tenant", s->tenant->name, "name",
                             json_object_get(item, "name"), "bind", json_object_get(item, "bind"),
                             "value", json_object_get(item, "value"));
    char *text = body ? dump_once(body) : NULL;

    json_decref(body);
    return text;
}

static void on_sealed(struct core *c, const char *id, const struct err *why, int status,
                      const char *body, size_t len, void *arg);

static void seal_next(struct sealing *s)
{
    struct call_agent_request r = {.method = "POST",
                                   .target = "/v1/seal",
                                   .max_response_bytes = SEALED_MAX,
                                   .timeout_ms = SEAL_TIMEOUT_MS};
    const char *path = egress_any_path(s->core);

    if (s->next == json_array_size(s->items)) {
        core_defer(s->core, &s->later, finish_sealing, s);
        return;
    }
    if (!path) {
        err_set(&s->why, ERR_UNAVAILABLE,
                "credentials are kept by cay-egress, which does not answer or is not configured");
        err_hint(&s->why, "see `cay status` and the server's log");
    } else if (!(r.body = seal_body(s))) {
        err_set(&s->why, ERR_EXHAUSTED, "memory is out");
    } else {
        call_unix(s->core, "", path, &r, on_sealed, s);
        return;
    }
    core_defer(s->core, &s->later, finish_sealing, s);
}

static void on_sealed(struct core *c, const char *id, const struct err *why, int status,
                      const char *body, size_t len, void *arg)
{
    struct sealing *s = arg;
    const json_t *item = json_array_get(s->items, s->next);
    const char *name = json_string_value(json_object_get(item, "name"));
    json_t *answer = NULL, *sealed;

    if (why) {
        err_set(&s->why, why->code, "the credential %.64s: cay-egress: %s", name, why->text);
    } else if (status != 200) {
        egress_refusal(&s->why, status, body, len, "the credential %.64s", name);
    } else {
        answer = json_load(body, len);
        sealed = json_object_get(answer, "sealed");
        if (!sealed && !json_memory_was_out())
            err_set(&s->why, ERR_INTERNAL, "the credential %.64s: cay-egress sealed nothing", name);
        else if (!json_is_string(sealed) ||
                 json_array_append_new(s->out, json_pack("{s:s, s:O, s:O}", "name", name, "bind",
                                                         json_object_get(item, "bind"), "sealed",
                                                         sealed)) < 0)
            err_set(&s->why, ERR_EXHAUSTED, "the credential %.64s: memory is out", name);
    }
    json_decref(answer);
    s->next++;
    if (s->why.code == ERR_OK && s->next < json_array_size(s->items))
        seal_next(s);
    else
        finish_sealing(s);
}

static enum err_code check_items(const json_t *items, struct err *e)
{
    json_t *item;
    size_t i;

    if (json_array_size(items) > ITEMS_MAX)
        return err_set(e, ERR_INVALID, "more than %u credentials at once", ITEMS_MAX);
    json_array_foreach (items, i, item)
        if (!json_is_string(json_object_get(item, "name")) ||
            !json_is_object(json_object_get(item, "bind")) || !json_object_get(item, "value"))
            return err_set(e, ERR_INVALID,
                           "a credential has a name, an object \"bind\" and a value");
    return ERR_OK;
}

void core_credentials_seal(struct core *c, const char *tenant, json_t *items, core_sealed_cb done,
                           void *arg)
{
    struct sealing *s = RESERVE_NEW(&c->reserve, struct sealing);

    s->core = c;
    s->tenant = tenant_get(c, tenant);
    s->items = json_incref(items);
    s->done = done;
    s->arg = arg;
    s->trace = c->trace;
    s->out = json_array();
    if (!s->tenant || !s->out)
        err_set(&s->why, ERR_EXHAUSTED, "memory is out");
    else
        (void)check_items(items, &s->why);
    if (s->why.code == ERR_OK)
        seal_next(s);
    else
        core_defer(c, &s->later, finish_sealing, s);
}

/* -- what policies name ------------------------------------------------------------------------ */

bool core_credential_is_injected(const json_t *injections, const char *name)
{
    const json_t *injection;
    size_t i;

    json_array_foreach (injections, i, injection) {
        const char *one = json_string_value(json_object_get(injection, "credential"));

        if (one && strcmp(one, name) == 0)
            return true;
    }
    return false;
}

static json_t *find_in(const json_t *list, const char *name)
{
    json_t *item;
    size_t i;

    json_array_foreach (list, i, item) {
        const char *one = json_string_value(json_object_get(item, "name"));

        if (one && strcmp(one, name) == 0)
            return item;
    }
    return NULL;
}

static enum err_code check_tenant_has(struct core *c, const char *tenant, const char *name,
                                      struct err *e)
{
    struct tenant *t = tenant_get(c, tenant);
    enum err_code code = t ? tenant_credential(t, name, NULL, e)
                           : err_set(e, ERR_EXHAUSTED, "memory is out");

    tenant_unref(t);
    return code;
}

enum err_code credentials_check(struct core *c, const char *tenant, const struct policy *policy,
                                const json_t *own, struct err *e)
{
    const char *name;

    for (size_t i = 0; (name = policy_credential(policy, i)); i++) {
        enum err_code code = find_in(own, name) ? ERR_OK : check_tenant_has(c, tenant, name, e);

        if (code == ERR_NOT_FOUND) {
            err_set(e, ERR_INVALID, "inject[%zu].credential: there is no credential \"%.64s\"", i,
                    name);
            err_hint(e, "store it first: `cay secret set %.64s --domain=HOST < FILE`", name);
            return ERR_INVALID;
        }
        if (code != ERR_OK)
            return code;
    }
    return ERR_OK;
}

/* A list that lacks a credential is none: with it a policy would refuse what it allows. */
static json_t *all_or_none(json_t *list, int rc)
{
    if (rc == 0)
        return list;
    json_decref(list);
    return NULL;
}

json_t *credentials_for(struct tenant *t, const struct sandbox *s)
{
    json_t *out = json_array(), *injection, *item;
    int rc = 0;
    size_t i;

    json_array_foreach (json_object_get(s->policy, "inject"), i, injection) {
        const char *name = json_string_value(json_object_get(injection, "credential"));
        struct err e;

        if (!name || find_in(out, name))
            continue;
        item = find_in(s->credentials, name);
        if (item) {
            rc |= json_array_append(out, item);
        } else if (tenant_credential(t, name, &item, &e) == ERR_OK) {
            rc |= renewals_add(t->core, t->name, item);
            rc |= json_array_append_new(out, item);
        } else if (e.code == ERR_EXHAUSTED) {
            rc = -1;
        } else if (e.code != ERR_NOT_FOUND) { /* removed: requests that need it are refused */
            log_error("sandbox %s: %s", s->id, e.text);
        }
    }
    return all_or_none(out, rc);
}

json_t *credentials_named(struct core *c, const char *tenant, const json_t *policy,
                          const json_t *own)
{
    struct tenant *t = tenant_get(c, tenant);
    json_t *out = t ? json_array() : NULL, *injection, *item;
    int rc = 0;
    size_t i;

    json_array_foreach (json_object_get(out ? policy : NULL, "inject"), i, injection) {
        const char *name = json_string_value(json_object_get(injection, "credential"));
        struct err e;

        if (!name || find_in(out, name))
            continue;
        item = find_in(own, name);
        if (item)
            rc |= json_array_append(out, item);
        else if (tenant_credential(t, name, &item, &e) == ERR_OK)
            rc |= json_array_append_new(out, item);
        else if (e.code == ERR_EXHAUSTED)
            rc = -1;
    }
    tenant_unref(t);
    return all_or_none(out, rc);
}

json_t *credentials_for_command(struct tenant *t, const struct sandbox *s, json_t *policy)
{
    struct sandbox narrowed = *s;
    json_t *all, *out = json_array(), *item;
    int rc = 0;
    size_t i;

    narrowed.policy = policy;
    all = credentials_for(t, &narrowed);
    if (!all)
        rc = -1;
    json_array_foreach (all, i, item)
        if (core_credential_is_injected(json_object_get(s->policy, "inject"),
                                        json_string_value(json_object_get(item, "name"))))
            rc |= json_array_append(out, item);
    json_decref(all);
    return all_or_none(out, rc);
}

void credentials_touch(const struct tenant *t, const char *name)
{
    for (struct sandbox_obj *o = t->sandboxes; o; o = o->tenant_next)
        if (core_credential_is_injected(json_object_get(o->s.policy, "inject"), name) &&
            !find_in(o->s.credentials, name))
            egress_touch(o);
}

/* -- a tenant's -------------------------------------------------------------------------------- */

struct setting {
    struct core *core;
    struct tenant *tenant;
    json_t *metadata; /* ours; NULL: as it was */
    bool only_new;
    core_sandbox_cb done;
    void *arg;
};

static void setting_free(struct setting **s)
{
    json_decref((*s)->metadata);
    tenant_unref((*s)->tenant);
    free(*s);
}

static enum err_code write_sealed(struct setting *s, const json_t *item, struct err *e)
{
    const char *name = json_string_value(json_object_get(item, "name"));
    enum err_code code;

    if (s->only_new && tenant_credential(s->tenant, name, NULL, e) != ERR_NOT_FOUND)
        return err_set(e, ERR_EXISTS, "there is a credential \"%s\" already", name);
    code = tenant_put_credential(s->tenant, name, json_object_get(item, "bind"),
                                 json_string_value(json_object_get(item, "sealed")), s->metadata,
                                 e);
    if (code != ERR_OK)
        return code;
    renewals_forget(s->core, s->tenant->name, name);
    log_info("tenant %s: the credential %s was set", s->tenant->name, name);
    credentials_touch(s->tenant, name);
    return ERR_OK;
}

static void on_set(void *arg, json_t *sealed, const struct err *why)
{
    CLEANUP(setting_free) struct setting *s = arg;
    struct err e;

    if (!why && write_sealed(s, json_array_get(sealed, 0), &e) != ERR_OK)
        why = &e;
    s->done(s->arg, NULL, why);
}

void core_credential_set(struct core *c, const char *tenant, const struct core_credential_value *v,
                         core_sandbox_cb done, void *arg)
{
    const char *own = c->config.names->own_credential;
    struct tenant *t;
    struct setting *s;
    json_t *items;
    struct err e;

    if (strncmp(v->name, own, strlen(own)) == 0) {
        err_set(&e, ERR_INVALID, "names that begin with \"%s\" are a sandbox's own", own);
        core_defer_error(c, done, arg, &e);
        return;
    }
    t = tenant_get(c, tenant);
    items = json_pack("[{s:s, s:O, s:O}]", "name", v->name, "bind", v->bind, "value", v->value);
    if (!t || !items) {
        tenant_unref(t);
        json_decref(items);
        err_set(&e, ERR_EXHAUSTED, "memory is out");
        core_defer_error(c, done, arg, &e);
        return;
    }
    s = RESERVE_NEW(&c->reserve, struct setting);
    *s = (struct setting){.core = c,
                          .tenant = t,
                          .metadata = json_incref(v->metadata),
                          .only_new = v->only_new,
                          .done = done,
                          .arg = arg};
    core_credentials_seal(c, tenant, items, on_set, s);
    json_decref(items);
}

enum err_code core_credential_each(struct core *c, const char *tenant, const char *name,
                                   enum err_code (*fn)(void *arg, const struct core_credential *k,
                                                       struct err *e),
                                   void *arg, struct err *e)
{
    return store_credential_each(c->store, tenant, name, fn, arg, e);
}

enum err_code core_credential_describe(struct core *c, const char *tenant, const char *name,
                                       const json_t *metadata, struct err *e)
{
    return store_credential_describe(c->store, tenant, name, metadata, e);
}

enum err_code core_credential_remove(struct core *c, const char *tenant, const char *name,
                                     struct err *e)
{
    struct tenant *t = tenant_find(c, tenant);
    enum err_code code = tenant_remove_credential(c, t, tenant, name, e);

    if (code == ERR_NOT_FOUND) {
        err_set(e, ERR_NOT_FOUND, "there is no credential \"%.64s\"", name);
        err_hint(e, "`cay secret ls` shows them");
    }
    if (code != ERR_OK)
        return code;
    renewals_forget(c, tenant, name);
    log_info("tenant %s: the credential %s was removed", tenant, name);
    if (t) /* else it has no sandbox */
        credentials_touch(t, name);
    return ERR_OK;
}
