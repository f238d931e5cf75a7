#include "api/daytona_mount.h"

#include "core/credential.h"
#include "http/json.h"

#include <string.h>

bool daytona_is_secret(const json_t *bind)
{
    const char *kind = json_string_value(json_object_get(bind, "kind"));

    return kind && strcmp(kind, "placeholder") == 0;
}

/* -- bodies ------------------------------------------------------------------------------------ */

static enum err_code add_one(const char *variable, json_t *name, json_t *out, struct err *e)
{
    if (!json_is_string(name))
        return err_set(e, ERR_INVALID, "secrets: %.64s: must be the name of a secret", variable);
    if (json_object_get(out, variable))
        return err_set(e, ERR_INVALID, "secrets: %.64s: comes twice", variable);
    if (json_object_size(out) == DAYTONA_SECRETS_MAX)
        return err_set(e, ERR_INVALID, "secrets: at most %u of a sandbox", DAYTONA_SECRETS_MAX);
    return json_object_set(out, variable, name) < 0 ? err_set(e, ERR_UNAVAILABLE, "memory is out")
                                                    : ERR_OK;
}

enum err_code daytona_mounted_read(const json_t *body, json_t **out, struct err *e)
{
    json_t *list = NULL, *entry, *name;
    enum err_code rc = json_get_arr(body, "secrets", NULL, JSON_OPTIONAL, &list, e);
    const char *variable;
    size_t i;

    if (rc != ERR_OK || json_array_size(list) == 0)
        return rc;
    *out = json_object();
    json_array_foreach (list, i, entry) {
        if (!json_is_object(entry))
            return err_set(e, ERR_INVALID,
                           "secrets[%zu]: must be an object of a variable and a secret's name", i);
        json_object_foreach (entry, variable, name)
            if ((rc = add_one(variable, name, *out, e)) != ERR_OK)
                return rc;
    }
    return json_check_env(*out, "secrets", DAYTONA_SECRETS_MAX, API_ENV_MAX_BYTES, e);
}

enum err_code daytona_mounted_env(const json_t *env, const json_t *mounted, json_t **out,
                                  struct err *e)
{
    const char *variable;
    json_t *name;

    *out = env ? json_copy((json_t *)(uintptr_t)env) : json_object();
    json_object_foreach ((json_t *)(uintptr_t)mounted, variable, name) {
        if (json_object_get(*out, variable))
            return err_set(e, ERR_INVALID, "secrets: %.64s: env has that variable too", variable);
        if (json_object_set_new(*out, variable,
                                json_sprintf(DAYTONA_PLACEHOLDER "%s", json_string_value(name))) <
            0)
            return err_set(e, ERR_UNAVAILABLE, "memory is out");
    }
    return json_check_env(*out, "env", API_MAP_MAX_COUNT, API_ENV_MAX_BYTES, e);
}

/* -- injections -------------------------------------------------------------------------------- */

/* The credential that a secret's name leads to. */
struct bound {
    bool is_secret; /* of kind placeholder */
    json_t *hosts;  /* ours; NULL: none */
};

static enum err_code take_bound(void *arg, const struct core_credential *k, struct err *e)
{
    struct bound *b = arg;

    b->is_secret = daytona_is_secret(k->bind);
    b->hosts = json_incref(json_object_get(k->bind, "domains"));
    return ERR_OK;
}

/* The secret's hosts: a new reference. */
static enum err_code hosts_of(struct api_call *call, const char *name, json_t **out, struct err *e)
{
    struct bound b = {.is_secret = false};
    enum err_code rc = core_credential_each(call->core, call->who.tenant, name, take_bound, &b, e);

    if (rc == ERR_OK && !b.is_secret)
        rc = err_set(e, ERR_INVALID, "secrets: Secret with name %.64s not found", name);
    else if (rc == ERR_OK && json_array_size(b.hosts) == 0)
        rc = err_set(e, ERR_INVALID,
                     "secrets: %.64s has no hosts: it was set by another API for those of its own "
                     "rules; give it hosts and its value anew",
                     name);
    if (rc == ERR_OK)
        *out = json_incref(b.hosts);
    json_decref(b.hosts);
    return rc;
}

static enum err_code inject_one(struct api_call *call, const char *name, json_t *injections,
                                struct err *e)
{
    json_t *hosts = NULL;
    enum err_code rc = hosts_of(call, name, &hosts, e);

    if (rc != ERR_OK)
        return rc;
    return json_array_append_new(injections,
                                 json_pack("{s:s, s:o}", "credential", name, "domains", hosts)) < 0
               ? err_set(e, ERR_UNAVAILABLE, "memory is out")
               : ERR_OK;
}

enum err_code daytona_mounted_inject(struct api_call *call, const json_t *mounted, bool lenient,
                                     json_t *policy, struct err *e)
{
    json_t *injections = json_array(), *value;
    enum err_code rc = ERR_OK;
    const char *variable;

    json_object_foreach ((json_t *)(uintptr_t)mounted, variable, value) {
        const char *name = json_string_value(value);

        if (rc == ERR_OK && !core_credential_is_injected(injections, name))
            rc = inject_one(call, name, injections, e);
        if (lenient && rc == ERR_INVALID)
            rc = ERR_OK;
    }
    if (rc == ERR_OK && json_array_size(injections) > 0 &&
        json_object_set(policy, "inject", injections) < 0)
        rc = err_set(e, ERR_UNAVAILABLE, "memory is out");
    json_decref(injections);
    return rc;
}
