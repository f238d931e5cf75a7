#include "core/tenant_settings.h"

#include "base/clock.h"
#include "core/core_internal.h"
#include "core/store_credential.h"
#include "core/store_tenant.h"
#include "core/tenant.h"

/* -- the ceiling ------------------------------------------------------------------------------- */

static void forget_ceiling(struct tenant_settings *s)
{
    json_decref(s->ceiling);
    s->ceiling = NULL;
    s->ceiling_known = false;
}

enum err_code tenant_ceiling(struct tenant *t, json_t **out, struct err *e)
{
    struct tenant_settings *s = &t->settings;
    enum err_code code = ERR_OK;

    if (!s->ceiling_known)
        code = store_tenant_ceiling(t->core->store, t->name, &s->ceiling, e);
    if (code != ERR_OK)
        return code;
    s->ceiling_known = true;
    *out = json_incref(s->ceiling);
    return ERR_OK;
}

enum err_code tenant_set_ceiling(struct tenant *t, const json_t *ceiling, struct err *e)
{
    enum err_code code = store_tenant_set_ceiling(t->core->store, t->name, ceiling, e);

    forget_ceiling(&t->settings); /* it is read again as it was written */
    return code;
}

/* -- credentials ------------------------------------------------------------------------------- */

/* Where there is no memory for it, it is read again the next time. */
static void remember(struct tenant_settings *s, const char *name, json_t *item)
{
    if (s->credentials && json_object_size(s->credentials) >= TENANT_CREDENTIALS_REMEMBERED)
        json_object_clear(s->credentials);
    if (!s->credentials)
        s->credentials = json_object();
    if (s->credentials)
        (void)json_object_set(s->credentials, name, item);
}

static void forget(struct tenant *t, const char *name)
{
    if (t && t->settings.credentials)
        (void)json_object_del(t->settings.credentials, name);
}

/* A new reference to what is remembered. */
static enum err_code find(struct tenant *t, const char *name, json_t **out, struct err *e)
{
    json_t *item = json_object_get(t->settings.credentials, name);
    enum err_code code = ERR_OK;

    if (item) {
        *out = json_incref(item);
        return ERR_OK;
    }
    code = store_credential_get(t->core->store, t->name, name, out, e);
    if (code == ERR_OK)
        remember(&t->settings, name, *out);
    return code;
}

enum err_code tenant_credential(struct tenant *t, const char *name, json_t **out, struct err *e)
{
    json_t *item = NULL, *copy;
    enum err_code code = find(t, name, &item, e);

    if (code != ERR_OK || !out) {
        json_decref(item);
        return code;
    }
    copy = json_copy(item); /* its parts are shared, and no caller changes them */
    json_decref(item);
    if (!copy)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    *out = copy;
    return ERR_OK;
}

enum err_code tenant_put_credential(struct tenant *t, const char *name, const json_t *bind,
                                    const char *sealed, const json_t *metadata, struct err *e)
{
    enum err_code code = store_credential_put(t->core->store, t->name, name, bind, sealed, metadata,
                                              clock_real_ms(), e);

    forget(t, name);
    return code;
}

enum err_code tenant_renew_credential(struct tenant *t, const char *name, const char *old,
                                      const char *sealed, struct err *e)
{
    enum err_code code = store_credential_renew(t->core->store, t->name, name, old, sealed, e);

    forget(t, name);
    return code;
}

enum err_code tenant_remove_credential(struct core *c, struct tenant *t, const char *tenant,
                                       const char *name, struct err *e)
{
    enum err_code code = store_credential_delete(c->store, tenant, name, e);

    forget(t, name);
    return code;
}

void tenant_settings_free(struct tenant_settings *s)
{
    forget_ceiling(s);
    json_decref(s->credentials);
    s->credentials = NULL;
}
