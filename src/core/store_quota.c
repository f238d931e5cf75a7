/* The tables of quotas and of usage: see quota.h and usage.h. */
#include "core/store_quota.h"

#include "core/store_internal.h"

enum err_code store_quota_put(struct store *st, const char *tenant, const char *name, int64_t most,
                              struct err *e)
{
    enum store_statement which = most == QUOTA_NONE ? STORE_QUOTA_DELETE : STORE_QUOTA_PUT;
    sqlite3_stmt *q = st->statements[which];

    store_bind_text(q, 1, tenant);
    store_bind_text(q, 2, name);
    if (most != QUOTA_NONE)
        sqlite3_bind_int64(q, 3, most);
    return store_run(st, which, "writing a tenant's quota", e);
}

enum err_code store_quota_each(struct store *st, const char *tenant,
                               void (*fn)(void *arg, const char *name, int64_t most), void *arg,
                               struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_QUOTA_EACH];
    enum err_code code = ERR_OK;
    int rc;

    store_bind_text(q, 1, tenant);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW)
        fn(arg, (const char *)sqlite3_column_text(q, 0), sqlite3_column_int64(q, 1));
    if (rc != SQLITE_DONE)
        code = store_fail(st, "reading a tenant's quotas", e);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

enum err_code store_usage_add(struct store *st, const char *tenant, const struct core_usage *u,
                              struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_USAGE_ADD];

    store_bind_text(q, 1, tenant);
    sqlite3_bind_int64(q, 2, u->hour_real_ms);
    for (int i = 0; i < USAGE_COUNT; i++)
        sqlite3_bind_int64(q, 3 + i, (int64_t)u->n[i]);
    return store_run(st, STORE_USAGE_ADD, "writing a tenant's usage", e);
}

enum err_code store_usage_each(struct store *st, const char *tenant, int64_t from_ms, int64_t to_ms,
                               void (*fn)(void *arg, const struct core_usage *u), void *arg,
                               struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_USAGE_EACH];
    enum err_code code = ERR_OK;
    int rc;

    store_bind_text(q, 1, tenant);
    sqlite3_bind_int64(q, 2, from_ms);
    sqlite3_bind_int64(q, 3, to_ms);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        struct core_usage u = {.hour_real_ms = sqlite3_column_int64(q, 0)};

        for (int i = 0; i < USAGE_COUNT; i++)
            u.n[i] = (uint64_t)sqlite3_column_int64(q, 1 + i);
        fn(arg, &u);
    }
    if (rc != SQLITE_DONE)
        code = store_fail(st, "reading a tenant's usage", e);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

enum err_code store_usage_purge(struct store *st, int64_t before_ms, struct err *e)
{
    sqlite3_bind_int64(st->statements[STORE_USAGE_PURGE], 1, before_ms);
    return store_run(st, STORE_USAGE_PURGE, "removing old usage", e);
}
