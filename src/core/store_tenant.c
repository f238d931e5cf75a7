#include "core/store_tenant.h"

#include "core/ceiling.h"
#include "core/store_internal.h"

#include <string.h>

static enum err_code no_such_tenant(const char *tenant, struct err *e)
{
    err_set(e, ERR_NOT_FOUND, "there is no tenant \"%s\"", tenant);
    err_hint(e, "`cay tenant ls` lists those that there are; one is made with its first key");
    return ERR_NOT_FOUND;
}

enum err_code store_tenant_ceiling(struct store *st, const char *tenant, json_t **out,
                                   struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_TENANT_FIND];
    enum err_code code = ERR_OK;
    int rc;

    store_bind_text(q, 1, tenant);
    rc = sqlite3_step(q);
    if (rc == SQLITE_ROW) {
        *out = store_column_json(q, 0);
        if (!*out && sqlite3_column_type(q, 0) != SQLITE_NULL)
            code = err_set(e, ERR_INTERNAL, "store: the ceiling of tenant %s is damaged", tenant);
    } else if (rc == SQLITE_DONE) {
        code = no_such_tenant(tenant, e);
    } else {
        code = store_fail(st, "reading a tenant", e);
    }
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

enum err_code store_tenant_set_ceiling(struct store *st, const char *tenant, const json_t *ceiling,
                                       struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_TENANT_CEILING];
    enum err_code code;

    store_bind_text(q, 1, tenant);
    store_bind_json(q, 2, ceiling);
    code = store_run(st, STORE_TENANT_CEILING, "writing a tenant's ceiling", e);
    if (code == ERR_OK && sqlite3_changes(st->db) == 0)
        code = no_such_tenant(tenant, e);
    return code;
}

enum err_code store_tenant_each(struct store *st,
                                enum err_code (*fn)(void *arg, const struct core_tenant *t,
                                                    struct err *e),
                                void *arg, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_TENANT_EACH];
    enum err_code code = ERR_OK;
    int rc;

    while ((rc = sqlite3_step(q)) == SQLITE_ROW && code == ERR_OK) {
        struct core_tenant t = {.made_real_ms = sqlite3_column_int64(q, 1)};

        store_column_copy(q, 0, t.name, sizeof(t.name));
        t.ceiling = store_column_json(q, 2);
        t.keys = (unsigned)sqlite3_column_int64(q, 3);
        code = fn(arg, &t, e);
        json_decref(t.ceiling);
    }
    if (code == ERR_OK && rc != SQLITE_DONE)
        code = store_fail(st, "reading tenants", e);
    sqlite3_reset(q);
    return code;
}
