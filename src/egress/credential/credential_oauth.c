/* Access tokens of credentials of kind oauth2, on their way between the processes of cay-egress:
 * sealed, in memory alone. */
#include "base/clock.h"
#include "egress/credential/credential_read.h"

#include <string.h>

#define TOKEN_OF      "access_token"
#define AGAIN_401_MS  60000
#define RETRY_MAX_MS  3600000
#define REFUSED_BYTES 256

static enum err_code out_of_memory(struct err *e)
{
    return err_set(e, ERR_EXHAUSTED, "out of memory");
}

enum err_code credential_seal_token(const struct sealer *s, const char *tenant, const json_t *item,
                                    const json_t *token, char **out, struct err *e)
{
    const char *name = json_string_value(json_object_get(item, "name"));
    CLEANUP_FREE char *aad = credential_aad(tenant, name, json_object_get(item, "bind"), TOKEN_OF);

    if (!aad)
        return out_of_memory(e);
    return credential_seal_json(s, aad, token, out, e);
}

enum err_code credential_open_value(const struct sealer *s, const char *tenant, const json_t *item,
                                    json_t **out, struct err *e)
{
    const json_t *name = json_object_get(item, "name");
    json_t *bind = json_object_get(item, "bind"), *value = NULL;
    struct credential c = {.bound = NULL};
    CLEANUP_FREE char *aad = NULL;
    enum err_code code = ERR_OK;

    if (!json_is_string(name) ||
        !credential_is_name(json_string_value(name), json_string_length(name)))
        code = err_set(e, ERR_INVALID, "name: missing, or not a credential's name");
    if (code == ERR_OK)
        code = credential_read_bind(&c, bind, e);
    if (code == ERR_OK && !(aad = credential_aad(tenant, json_string_value(name), bind, NULL)))
        code = out_of_memory(e);
    if (code == ERR_OK)
        code = credential_open_json(s, aad, json_object_get(item, "sealed"), &value, e);
    if (code == ERR_OK)
        code = credential_read_value(&c, value, e);
    credential_clear(&c);
    if (code == ERR_OK)
        *out = value;
    else
        json_decref(value);
    return code;
}

/* -- opened ------------------------------------------------------------------------------------ */

static enum err_code take_token(struct credential *c, const json_t *o, struct err *e)
{
    const char *token = json_string_value(json_object_get(o, "access_token"));
    const char *previous = json_string_value(json_object_get(o, "previous"));

    if (!token)
        return err_set(e, ERR_INTERNAL, "token: the sealed token cannot be read");
    c->value = strdup(token);
    c->oauth.previous = previous ? strdup(previous) : NULL;
    c->oauth.serial = (uint64_t)json_integer_value(json_object_get(o, "serial"));
    c->oauth.at_ms = json_integer_value(json_object_get(o, "at_ms"));
    c->oauth.end_ms = json_integer_value(json_object_get(o, "end_ms"));
    c->oauth.after_401 = json_is_true(json_object_get(o, "after_401"));
    return c->value && (!previous || c->oauth.previous) ? ERR_OK : out_of_memory(e);
}

static enum err_code take_refused(struct credential_oauth *o, const json_t *json, struct err *e)
{
    const char *why = json_string_value(json_object_get(json, "why"));
    json_int_t retry_ms = json_integer_value(json_object_get(json, "retry_ms"));

    if (!why || retry_ms < 0 || retry_ms > RETRY_MAX_MS)
        return err_set(e, ERR_INVALID, "refused: must be {\"why\", \"final\", \"retry_ms\"}");
    o->refused = strndup(why, REFUSED_BYTES);
    o->final = json_is_true(json_object_get(json, "final"));
    o->retry_ms = clock_mono_ms() + (uint64_t)retry_ms;
    return o->refused ? ERR_OK : out_of_memory(e);
}

enum err_code credential_read_token(const struct sealer *s, const char *tenant, const json_t *item,
                                    struct credential *c, struct err *e)
{
    const json_t *sealed = json_object_get(item, "token"),
                 *refused = json_object_get(item, "refused");
    CLEANUP_FREE char *aad = NULL;
    json_t *token = NULL;
    enum err_code code = ERR_OK;

    if (sealed) {
        aad = credential_aad(tenant, c->name, json_object_get(item, "bind"), TOKEN_OF);
        code = aad ? credential_open_json(s, aad, sealed, &token, e) : out_of_memory(e);
        if (code == ERR_OK)
            code = take_token(c, token, e);
        json_decref(token);
    }
    return code == ERR_OK && refused ? take_refused(&c->oauth, refused, e) : code;
}

/* -- used -------------------------------------------------------------------------------------- */

struct credential_use {
    struct credentials *all;
    size_t at;
    uint64_t serial;
};

struct credential_use *credential_use_new(struct credentials *all, const struct credential *c)
{
    struct credential_use *use = malloc(sizeof(*use));

    if (use)
        *use = (struct credential_use){credentials_ref(all), (size_t)(c - all->list),
                                       c->oauth.serial};
    return use;
}

void credential_use_free(struct credential_use *use)
{
    if (use)
        credentials_unref(use->all);
    free(use);
}

void credential_use_rejected(const struct credential_use *use)
{
    struct credential_oauth *o = &use->all->list[use->at].oauth;

    if (o->serial == use->serial && (!o->after_401 || clock_real_ms() - o->at_ms >= AGAIN_401_MS))
        o->rejected = true;
}
