/* E2B's secrets: credentials of kind placeholder (core/credential.h), which network.rules put on
 * requests as ${e2b.secrets.NAME}. As upstream's have no hosts of their own, they are for those
 * that the tenant's rules name. The value is sealed and no answer has it. An id is "sec_" and the
 * name. Source: spec/openapi.yml of e2b-dev/E2B. */
#include "api/e2b.h"

#include "core/credential.h"
#include "http/json.h"

#include <string.h>
#include <strings.h>

#define ID_PREFIX  "sec_"
#define PAGE_MAX   100
#define NAME_CHARS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-"

/* -- what is answered -------------------------------------------------------------------------- */

static json_t *secret_json(const struct core_credential *k)
{
    json_t *out = json_object();

    json_object_set_new(out, "secretID", json_sprintf(ID_PREFIX "%s", k->name));
    json_object_set_new(out, "name", json_string(k->name));
    json_object_set_new(out, "currentVersion", json_integer(k->version));
    json_object_set_new(out, "metadata", k->metadata ? json_incref(k->metadata) : json_object());
    json_object_set_new(out, "createdAt", api_json_time(k->first_real_ms));
    json_object_set_new(out, "updatedAt", api_json_time(k->made_real_ms));
    return out;
}

/* Credentials of other kinds were set by /cay/v1; E2B's API cannot describe them. */
static bool is_secret(const struct core_credential *k)
{
    const char *kind = json_string_value(json_object_get(k->bind, "kind"));

    return kind && strcmp(kind, "placeholder") == 0;
}

struct found {
    const char *name;    /* the name that is looked for */
    json_t *json, *bind; /* ours; NULL: there is none */
};

static enum err_code take_one(void *arg, const struct core_credential *k, struct err *e)
{
    struct found *f = arg;

    if (is_secret(k)) {
        f->json = secret_json(k);
        f->bind = json_incref(k->bind);
    }
    return ERR_OK;
}

/* Upstream lowers names when it stores them; here they stay as given, because rules name them
 * so. */
static enum err_code take_like(void *arg, const struct core_credential *k, struct err *e)
{
    const struct found *f = arg;

    return strcasecmp(k->name, f->name) == 0 && !f->json ? take_one(arg, k, e) : ERR_OK;
}

static void found_free(struct found *f)
{
    json_decref(f->json);
    json_decref(f->bind);
}

/* False: the call was answered. */
static bool find(struct api_call *call, const char *id, struct found *f)
{
    size_t prefix = strncmp(id, ID_PREFIX, strlen(ID_PREFIX)) == 0 ? strlen(ID_PREFIX) : 0;
    struct err e = {.code = ERR_OK};

    f->name = id + prefix;
    if (core_credential_each(call->core, call->who.tenant, f->name, take_one, f, &e) != ERR_OK ||
        (!f->json &&
         core_credential_each(call->core, call->who.tenant, NULL, take_like, f, &e) != ERR_OK)) {
        api_fail_err(call, &e);
        return false;
    }
    if (!f->json)
        api_fail(call, 404, "Secret '%s' not found", id);
    return f->json != NULL;
}

/* -- set --------------------------------------------------------------------------------------- */

/* Keeps what core_credential_set borrows; the call's state. */
struct setting {
    char name[CORE_CREDENTIAL_NAME_MAX + 1];
    json_t *bind, *metadata;
    bool only_new;
};

static void setting_free(void *state)
{
    struct setting *s = state;

    json_decref(s->bind);
    free(s);
}

static void is_set(void *arg, const struct sandbox *none, const struct err *why)
{
    struct api_call *call = arg;
    const struct setting *s = call->state;
    CLEANUP(found_free) struct found f = {0};

    if (why && why->code == ERR_EXISTS)
        api_fail(call, 409, "Secret with name '%s' already exists", s->name);
    else if (why)
        api_fail_err(call, why);
    else if (find(call, s->name, &f))
        api_reply_json(call, s->only_new ? 201 : 200, json_incref(f.json));
}

/* Takes bind. Answers the call in any case. */
static void set(struct api_call *call, const char *name, json_t *bind, bool only_new)
{
    struct setting *s = calloc(1, sizeof(*s));
    struct core_credential_value v = {.only_new = only_new};
    struct err e;

    if (!s || !bind) {
        free(s);
        json_decref(bind);
        api_fail(call, 503, "memory is out");
        return;
    }
    call->state = s;
    call->state_free = setting_free;
    snprintf(s->name, sizeof(s->name), "%s", name);
    s->bind = bind;
    s->only_new = only_new;
    if (json_get_obj(call->body, "metadata", NULL, JSON_OPTIONAL, &s->metadata, &e) != ERR_OK ||
        (s->metadata && json_check_str_map(s->metadata, "metadata", API_MAP_MAX_COUNT,
                                           API_METADATA_MAX_BYTES, &e) != ERR_OK)) {
        api_fail_err(call, &e);
        return;
    }
    v.name = s->name;
    v.bind = s->bind;
    v.metadata = s->metadata;
    v.value = json_object_get(call->body, "value");
    if (json_is_string(v.value))
        core_credential_set(call->core, call->who.tenant, &v, is_set, call);
    else
        api_fail(call, 400, "\"value\" must be a text");
}

/* A key that is not known is refused: "hosts" would bound where the secret may go, and one that is
 * stored without it goes to every host that a rule of its tenant names. False: the call was
 * answered. */
static bool knows_fields(struct api_call *call)
{
    struct err e;

    if (api_check_keys(call->body, "name value metadata", "", &e) == ERR_OK)
        return true;
    err_hint(&e, "`cay secret set` binds a secret to hosts, paths and methods");
    api_fail_err(call, &e);
    return false;
}

/* Whether there is one whose name differs in case alone, or not at all. */
static bool is_taken(struct api_call *call, const char *name)
{
    CLEANUP(found_free) struct found f = {.name = name};
    struct err e;

    return core_credential_each(call->core, call->who.tenant, NULL, take_like, &f, &e) != ERR_OK ||
           f.json;
}

static void create(struct api_call *call)
{
    const char *name = NULL;
    struct err e;

    if (!api_call_body(call) || !knows_fields(call))
        return;
    if (json_get_str(call->body, "name", NULL, JSON_REQUIRED, CORE_CREDENTIAL_NAME_MAX, &name,
                     &e) != ERR_OK)
        api_fail_err(call, &e);
    else if (strncasecmp(name, ID_PREFIX, strlen(ID_PREFIX)) == 0)
        api_fail(call, 400, "\"name\" must not begin with " ID_PREFIX ": ids do");
    else if (!name[0] || strspn(name, NAME_CHARS) != strlen(name))
        api_fail(call, 400, "\"name\" must be 1 to %u letters, digits, _ and -",
                 CORE_CREDENTIAL_NAME_MAX);
    else if (is_taken(call, name))
        api_fail(call, 409, "Secret with name '%s' already exists", name);
    else
        set(call, name,
            json_pack("{s:s, s:b, s:[s]}", "kind", "placeholder", "any_domain", 1, "headers", "*"),
            true);
}

static void update(struct api_call *call)
{
    CLEANUP(found_free) struct found f = {0};

    if (!api_call_body(call) || !knows_fields(call) || !find(call, call->params[0], &f))
        return;
    set(call, json_string_value(json_object_get(f.json, "name")), json_incref(f.bind), false);
}

/* -- read and remove --------------------------------------------------------------------------- */

static void get(struct api_call *call)
{
    CLEANUP(found_free) struct found f = {0};

    if (find(call, call->params[0], &f))
        api_reply_json(call, 200, json_incref(f.json));
}

static void destroy(struct api_call *call)
{
    CLEANUP(found_free) struct found f = {0};
    struct err e;

    if (!find(call, call->params[0], &f))
        return;
    if (core_credential_remove(call->core, call->who.tenant,
                               json_string_value(json_object_get(f.json, "name")), &e) == ERR_OK)
        api_reply_empty(call, 204);
    else
        api_fail_err(call, &e);
}

struct page {
    char after[CORE_CREDENTIAL_NAME_MAX + 1]; /* "": from the start; also the next page's token */
    char last[CORE_CREDENTIAL_NAME_MAX + 1];
    size_t limit;
    bool more;
    json_t *out;
};

static enum err_code take_listed(void *arg, const struct core_credential *k, struct err *e)
{
    struct page *p = arg;

    if (!is_secret(k) || strcmp(k->name, p->after) <= 0)
        return ERR_OK;
    p->more = json_array_size(p->out) == p->limit;
    if (p->more)
        return ERR_OK;
    snprintf(p->last, sizeof(p->last), "%s", k->name);
    json_array_append_new(p->out, secret_json(k));
    return ERR_OK;
}

static void list(struct api_call *call)
{
    struct page p = {.limit = PAGE_MAX};
    int64_t limit = PAGE_MAX;
    struct err e;

    if (!api_call_query_int(call, "limit", 1, PAGE_MAX, &limit) ||
        !api_call_query(call, "nextToken", p.after, sizeof(p.after)))
        return;
    p.limit = (size_t)limit;
    p.out = json_array();
    if (core_credential_each(call->core, call->who.tenant, NULL, take_listed, &p, &e) != ERR_OK) {
        json_decref(p.out);
        api_fail_err(call, &e);
        return;
    }
    if (p.more)
        api_header_add(call, "X-Next-Token", p.last);
    api_reply_json(call, 200, p.out);
}

const struct api_route e2b_secret_routes[] = {
    {API_READ, "GET", "/secrets", list},
    {API_WRITE, "POST", "/secrets", create},
    {API_READ, "GET", "/secrets/{id}", get},
    {API_WRITE, "POST", "/secrets/{id}", update},
    {API_WRITE, "DELETE", "/secrets/{id}", destroy},
    {0},
};
