/* Daytona's vault of secrets: credentials of kind placeholder (core/credential.h) with the hosts
 * that they may be sent to, which its clients name at a create. A sandbox holds the placeholder,
 * `cay-secret:NAME`; daytona_mount.c gives it to sandboxes. An id is the name. The value is sealed
 * with the hosts, so that other hosts need the value again, and no answer has it. Secrets that
 * other dialects have set are shown too; those of E2B's API have no hosts.
 *
 *   POST /api/secret {"name", "value", "description", "hosts"}       201
 *   GET /api/secret                                                  all of them, by name
 *   GET /api/secret/paginated?cursor&limit&name&sort&order         {"items", "total", "nextCursor"}
 *   GET, PATCH {"value", "description", "hosts"}, DELETE (204) /api/secret/{id}
 *
 * Sources: models and SecretApi of PyPI daytona 0.226.1 and npm @daytonaio/sdk 0.218.0;
 * daytona.io/docs "Secrets", as of August 2026. */
#include "api/daytona_secret.h"
#include "api/daytona.h"
#include "api/daytona_fields.h"
#include "api/daytona_mount.h"

#include "core/credential.h"
#include "http/json.h"
#include "policy/policy.h"

#include <string.h>

#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"
#define NAME_FIRST 52 /* of them may begin a name */

/* -- one of them ------------------------------------------------------------------------------- */

/* A secret that was found; the references are the caller's. */
struct found {
    json_t *json, *bind, *metadata; /* NULL: there is none */
};

static void found_free(struct found *f)
{
    json_decref(f->json);
    json_decref(f->bind);
    json_decref(f->metadata);
}

static enum err_code take_one(void *arg, const struct core_credential *k, struct err *e)
{
    struct found *f = arg;

    if (daytona_is_secret(k->bind)) {
        f->json = daytona_secret_json(k);
        f->bind = json_incref(k->bind);
        f->metadata = json_incref(k->metadata);
    }
    return ERR_OK;
}

static void no_secret(struct api_call *call, const char *id)
{
    api_fail(call, 404, "Secret with ID %s not found", id);
}

/* False: the call was answered. */
static bool find(struct api_call *call, const char *id, struct found *f)
{
    struct err e;

    if (core_credential_each(call->core, call->who.tenant, id, take_one, f, &e) != ERR_OK)
        api_fail_err(call, &e);
    else if (!f->json)
        no_secret(call, id);
    return f->json != NULL;
}

static void reply_with(struct api_call *call, int status, const char *id)
{
    CLEANUP(found_free) struct found f = {0};

    if (find(call, id, &f))
        api_reply_json(call, status, json_incref(f.json));
}

/* -- fields ------------------------------------------------------------------------------------ */

static enum err_code check_name(const char *name, struct err *e)
{
    if (!name[0] || strspn(name, NAME_CHARS) != strlen(name) ||
        !memchr(NAME_CHARS, name[0], NAME_FIRST))
        return err_set(e, ERR_INVALID,
                       "name: must be 1 to %u letters, digits, _ and -, the first a letter",
                       CORE_CREDENTIAL_NAME_MAX);
    return ERR_OK;
}

static enum err_code check_hosts(const json_t *hosts, struct err *e)
{
    const json_t *item;
    size_t i;

    if (json_array_size(hosts) > DAYTONA_SECRET_HOSTS_MAX)
        return err_set(e, ERR_INVALID, "hosts: at most %u", DAYTONA_SECRET_HOSTS_MAX);
    json_array_foreach (hosts, i, item) {
        const char *host = json_string_value(item);
        char plain[POLICY_NAME_MAX + 1];

        if (!host || policy_name_normalize(host + (strncmp(host, "*.", 2) == 0 ? 2 : 0), plain) < 0)
            return err_set(e, ERR_INVALID,
                           "hosts[%zu]: must be a name such as api.example.com or *.example.com, "
                           "without scheme, port and path",
                           i);
    }
    return ERR_OK;
}

static enum err_code need_hosts(const json_t *hosts, struct err *e)
{
    if (json_array_size(hosts) > 0)
        return ERR_OK;
    return err_set(e, ERR_INVALID,
                   "hosts: a secret without hosts could be sent to every server, which is not "
                   "supported by this one: name those that it is for, as [\"api.example.com\"]");
}

/* -- set --------------------------------------------------------------------------------------- */

/* Keeps what core_credential_set borrows; the call's state. */
struct setting {
    char name[CORE_CREDENTIAL_NAME_MAX + 1];
    json_t *bind, *metadata; /* ours; metadata NULL: as it was */
    bool only_new;
};

static void setting_free(void *state)
{
    struct setting *s = state;

    json_decref(s->bind);
    json_decref(s->metadata);
    free(s);
}

static void is_set(void *arg, const struct sandbox *none, const struct err *why)
{
    struct api_call *call = arg;
    const struct setting *s = call->state;

    if (why && why->code == ERR_EXISTS)
        api_fail(call, 409, "Secret with name %s already exists", s->name);
    else if (why)
        api_fail_err(call, why);
    else
        reply_with(call, s->only_new ? 201 : 200, s->name);
}

/* Takes s's members to the call and has them set. Answers the call in any case. */
static void set(struct api_call *call, struct setting *s, json_t *value)
{
    const struct core_credential_value v = {.name = s->name,
                                            .bind = s->bind,
                                            .value = value,
                                            .metadata = s->metadata,
                                            .only_new = s->only_new};

    if (!s->bind)
        api_fail(call, 503, "memory is out");
    else if (!json_is_string(value))
        api_fail(call, 400, "value must be a string");
    else
        core_credential_set(call->core, call->who.tenant, &v, is_set, call);
}

/* The metadata of before with the description of body. NULL: body has none. */
static enum err_code read_description(const json_t *body, const json_t *before, json_t **out,
                                      struct err *e)
{
    const char *text = NULL;
    enum err_code rc = json_get_str(body, DAYTONA_DESCRIPTION_KEY, NULL, JSON_OPTIONAL,
                                    DAYTONA_DESCRIPTION_MAX, &text, e);

    if (rc != ERR_OK || !text)
        return rc;
    *out = before ? json_deep_copy(before) : json_object();
    (void)json_object_del(*out, DAYTONA_DESCRIPTION_KEY);
    if (!*out ||
        (*text && json_object_set_new(*out, DAYTONA_DESCRIPTION_KEY, json_string(text)) < 0))
        return err_set(e, ERR_UNAVAILABLE, "memory is out");
    return ERR_OK;
}

static enum err_code read_create(const json_t *body, struct setting *s, struct err *e)
{
    static const struct daytona_field known[] = {
        {"name", NULL}, {"value", NULL}, {DAYTONA_DESCRIPTION_KEY, NULL}, {"hosts", NULL}};
    const char *name = NULL;
    json_t *hosts = NULL;
    enum err_code rc;

    if ((rc = daytona_fields_check(body, known, ARRAY_SIZE(known), e)) ||
        (rc = json_get_str(body, "name", NULL, JSON_REQUIRED, CORE_CREDENTIAL_NAME_MAX, &name,
                           e)) ||
        (rc = check_name(name, e)) || (rc = read_description(body, NULL, &s->metadata, e)) ||
        (rc = json_get_arr(body, "hosts", NULL, JSON_OPTIONAL, &hosts, e)) ||
        (rc = need_hosts(hosts, e)) || (rc = check_hosts(hosts, e)))
        return rc;
    snprintf(s->name, sizeof(s->name), "%s", name);
    s->only_new = true;
    s->bind = json_pack("{s:s, s:O}", "kind", "placeholder", "domains", hosts);
    return ERR_OK;
}

static void create(struct api_call *call)
{
    struct setting *s = api_call_state(call, sizeof(*s), setting_free);
    struct err e;

    if (!s)
        return;
    if (read_create(call->body, s, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        set(call, s, json_object_get(call->body, "value"));
}

/* -- update ------------------------------------------------------------------------------------ */

/* The binding of before with these hosts, where there are any. */
static json_t *rebound(const json_t *before, json_t *hosts)
{
    json_t *bind = json_deep_copy(before);

    if (bind && hosts) {
        json_object_del(bind, "any_domain");
        if (json_object_set(bind, "domains", hosts) < 0) {
            json_decref(bind);
            bind = NULL;
        }
    }
    return bind;
}

static bool has_value(const json_t *body)
{
    const json_t *value = json_object_get(body, "value");

    return value && !json_is_null(value);
}

static enum err_code read_update(const json_t *body, const struct found *f, struct setting *s,
                                 struct err *e)
{
    static const struct daytona_field known[] = {
        {"value", NULL}, {DAYTONA_DESCRIPTION_KEY, NULL}, {"hosts", NULL}};
    json_t *hosts = NULL;
    enum err_code rc;

    if ((rc = daytona_fields_check(body, known, ARRAY_SIZE(known), e)) ||
        (rc = read_description(body, f->metadata, &s->metadata, e)) ||
        (rc = json_get_arr(body, "hosts", NULL, JSON_OPTIONAL, &hosts, e)) ||
        (hosts && ((rc = need_hosts(hosts, e)) || (rc = check_hosts(hosts, e)))))
        return rc;
    if (hosts && json_equal(hosts, json_object_get(f->bind, "domains")))
        hosts = NULL;
    if (hosts && !has_value(body))
        return err_set(e, ERR_INVALID,
                       "hosts: the value is sealed with its hosts on this server, which cannot "
                       "seal it anew without it: give the value too");
    s->bind = rebound(f->bind, hosts);
    return ERR_OK;
}

/* Changes the metadata, without a new value. */
static void describe(struct api_call *call, const struct setting *s)
{
    struct err e;

    if (s->metadata &&
        core_credential_describe(call->core, call->who.tenant, s->name, s->metadata, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        reply_with(call, 200, s->name);
}

static void update(struct api_call *call)
{
    struct setting *s = api_call_state(call, sizeof(*s), setting_free);
    CLEANUP(found_free) struct found f = {0};
    struct err e;

    if (!s || !find(call, call->params[0], &f))
        return;
    snprintf(s->name, sizeof(s->name), "%s", json_string_value(json_object_get(f.json, "name")));
    if (read_update(call->body, &f, s, &e) != ERR_OK)
        api_fail_err(call, &e);
    else if (has_value(call->body))
        set(call, s, json_object_get(call->body, "value"));
    else
        describe(call, s);
}

/* -- read and remove --------------------------------------------------------------------------- */

static void get(struct api_call *call)
{
    reply_with(call, 200, call->params[0]);
}

static void destroy(struct api_call *call)
{
    CLEANUP(found_free) struct found f = {0};
    struct err e;

    if (!find(call, call->params[0], &f))
        return;
    if (core_credential_remove(call->core, call->who.tenant, call->params[0], &e) == ERR_OK)
        api_reply_empty(call, 204);
    else
        api_fail_err(call, &e);
}

const struct api_route daytona_secret_routes[] = {
    {API_READ, "GET", "/api/secret", daytona_secret_list},
    {API_WRITE, "POST", "/api/secret", create},
    {API_READ, "GET", "/api/secret/paginated", daytona_secret_paginated},
    {API_READ, "GET", "/api/secret/{id}", get},
    {API_WRITE, "PATCH", "/api/secret/{id}", update},
    {API_WRITE, "DELETE", "/api/secret/{id}", destroy},
    {0},
};
