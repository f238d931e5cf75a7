/* The rows of credentials: name, binding and metadata in clear, the value as cay-egress sealed
 * it. Called by credential.c, and by renewal.c for a new record; each statement is one commit. A
 * renewal replaces the record only where it is still the one that was renewed, so that a
 * credential that its owner has set meanwhile is not undone. A tenant's number is bounded at the
 * insert. */

#include "core/store_credential.h"

#include "base/log.h"
#include "core/store_internal.h"

#include <string.h>

/* Of the tenant's others, and of this one: a list of them is made in one turn of the control
 * loop. */
static enum err_code check_credential_count(struct store *st, const char *tenant, const char *name,
                                            const json_t *bind, const json_t *metadata,
                                            struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_CREDENTIAL_COUNT];
    enum err_code code = ERR_OK;

    store_bind_text(q, 1, tenant);
    store_bind_text(q, 2, name);
    store_bind_json(q, 3, bind);
    store_bind_json(q, 4, metadata);
    if (sqlite3_step(q) != SQLITE_ROW)
        code = store_fail(st, "counting credentials", e);
    else if (sqlite3_column_int64(q, 0) >= CREDENTIALS_OF_A_TENANT)
        code = err_set(e, ERR_EXHAUSTED,
                       "tenant %s has %u credentials, which is the most there can be", tenant,
                       CREDENTIALS_OF_A_TENANT);
    else if (sqlite3_column_int64(q, 1) > CREDENTIALS_MAX_BYTES)
        code = err_set(e, ERR_EXHAUSTED,
                       "the descriptions of tenant %s's credentials (hosts, headers, metadata) "
                       "would be longer than %u bytes together: name fewer hosts, or delete "
                       "credentials that are not needed",
                       tenant, CREDENTIALS_MAX_BYTES);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

enum err_code store_credential_put(struct store *st, const char *tenant, const char *name,
                                   const json_t *bind, const char *sealed, const json_t *metadata,
                                   int64_t made_ms, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_CREDENTIAL_PUT];
    enum err_code code = check_credential_count(st, tenant, name, bind, metadata, e);

    if (code != ERR_OK)
        return code;
    store_bind_text(q, 1, tenant);
    store_bind_text(q, 2, name);
    store_bind_json(q, 3, bind);
    sqlite3_bind_blob(q, 4, sealed, (int)strlen(sealed), SQLITE_STATIC);
    sqlite3_bind_int64(q, 5, made_ms);
    store_bind_json(q, 6, metadata);
    return store_run(st, STORE_CREDENTIAL_PUT, "writing a credential", e);
}

/* A statement that changes the one row of a name that has to be there. */
static enum err_code change_one(struct store *st, enum store_statement which, const char *what,
                                struct err *e)
{
    enum err_code code = store_run(st, which, what, e);

    if (code == ERR_OK && sqlite3_changes(st->db) == 0)
        code = err_set(e, ERR_NOT_FOUND, "there is no such credential");
    return code;
}

enum err_code store_credential_renew(struct store *st, const char *tenant, const char *name,
                                     const char *old, const char *sealed, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_CREDENTIAL_RENEW];
    enum err_code code;

    store_bind_text(q, 1, tenant);
    store_bind_text(q, 2, name);
    sqlite3_bind_blob(q, 3, old, (int)strlen(old), SQLITE_STATIC);
    sqlite3_bind_blob(q, 4, sealed, (int)strlen(sealed), SQLITE_STATIC);
    store_set_durable(st, true); /* the value before cannot be had again */
    code = change_one(st, STORE_CREDENTIAL_RENEW, "writing a renewed credential", e);
    store_set_durable(st, false);
    return code;
}

enum err_code store_credential_describe(struct store *st, const char *tenant, const char *name,
                                        const json_t *metadata, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_CREDENTIAL_DESCRIBE];

    store_bind_text(q, 1, tenant);
    store_bind_text(q, 2, name);
    store_bind_json(q, 3, metadata);
    return change_one(st, STORE_CREDENTIAL_DESCRIBE, "writing a credential", e);
}

enum err_code store_credential_get(struct store *st, const char *tenant, const char *name,
                                   json_t **out, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_CREDENTIAL_GET];
    enum err_code code = ERR_OK;
    int rc;

    store_bind_text(q, 1, tenant);
    store_bind_text(q, 2, name);
    rc = sqlite3_step(q);
    if (rc == SQLITE_DONE)
        code = err_set(e, ERR_NOT_FOUND, "there is no such credential");
    else if (rc != SQLITE_ROW)
        code = store_fail(st, "looking a credential up", e);
    else if (out)
        *out = json_pack("{s:s, s:o, s:s%}", "name", name, "bind", store_column_json(q, 0),
                         "sealed", sqlite3_column_blob(q, 1), (size_t)sqlite3_column_bytes(q, 1));
    if (code == ERR_OK && out && !*out)
        code = err_set(e, ERR_INTERNAL, "store: a credential's row is damaged");
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

enum err_code store_credential_each(struct store *st, const char *tenant, const char *name,
                                    enum err_code (*fn)(void *arg, const struct core_credential *k,
                                                        struct err *e),
                                    void *arg, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_CREDENTIAL_EACH];
    enum err_code code = ERR_OK;
    int rc;

    store_bind_text(q, 1, tenant);
    store_bind_text(q, 2, name);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW && code == ERR_OK) {
        struct core_credential k = {.bind = store_column_json(q, 1),
                                    .made_real_ms = sqlite3_column_int64(q, 2),
                                    .first_real_ms = sqlite3_column_int64(q, 3),
                                    .version = sqlite3_column_int64(q, 4),
                                    .metadata = store_column_json(q, 5)};

        store_column_copy(q, 0, k.name, sizeof(k.name));
        code = fn(arg, &k, e);
        json_decref(k.bind);
        json_decref(k.metadata);
    }
    if (code == ERR_OK && rc != SQLITE_DONE)
        code = store_fail(st, "reading credentials", e);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

enum err_code store_credential_delete(struct store *st, const char *tenant, const char *name,
                                      struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_CREDENTIAL_DELETE];

    store_bind_text(q, 1, tenant);
    store_bind_text(q, 2, name);
    return change_one(st, STORE_CREDENTIAL_DELETE, "removing a credential", e);
}
