/* The rows of API keys: a hash of each key, its tenant, role and label; the key itself is
 * nowhere. Called by key.c, which makes keys and checks those of requests. The first key of a
 * tenant is written with the tenant's row in one transaction, so that neither is there without
 * the other; a row with a role that this version does not know opens nothing. */

#include "core/store_key.h"

#include "core/key.h"
#include "core/store_internal.h"

#include <string.h>

static enum err_code check_key_count(struct store *st, const char *tenant, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_KEY_COUNT];
    enum err_code code = ERR_OK;

    store_bind_text(q, 1, tenant);
    if (sqlite3_step(q) != SQLITE_ROW)
        code = store_fail(st, "counting keys", e);
    else if (sqlite3_column_int64(q, 0) >= CORE_KEYS_MAX)
        code = err_set(e, ERR_EXHAUSTED,
                       "tenant %s has %u API keys, which is the most there can be", tenant,
                       CORE_KEYS_MAX);
    if (code == ERR_EXHAUSTED)
        err_hint(e, "revoke some that are not used (`cay key ls`, `cay key revoke`)");
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

static enum err_code insert_tenant_and_key(struct store *st, const struct core_identity *whose,
                                           const char *label, const uint8_t *hash, int64_t made_ms,
                                           struct err *e)
{
    sqlite3_stmt *t = st->statements[STORE_TENANT_INSERT], *k = st->statements[STORE_KEY_INSERT];
    enum err_code code = check_key_count(st, whose->tenant, e);

    if (code != ERR_OK)
        return code;
    store_bind_text(t, 1, whose->tenant);
    sqlite3_bind_int64(t, 2, made_ms);
    code = store_run(st, STORE_TENANT_INSERT, "writing a tenant", e);
    if (code != ERR_OK)
        return code;
    sqlite3_bind_blob(k, 1, hash, STORE_HASH_SIZE, SQLITE_STATIC);
    store_bind_text(k, 2, whose->tenant);
    store_bind_text(k, 3, label);
    sqlite3_bind_int64(k, 4, made_ms);
    sqlite3_bind_int(k, 5, (int)whose->role);
    return store_run(st, STORE_KEY_INSERT, "writing an API key", e);
}

enum err_code store_key_insert(struct store *st, const struct core_identity *whose,
                               const char *label, const uint8_t hash[static STORE_HASH_SIZE],
                               int64_t made_ms, struct err *e)
{
    enum err_code code = store_run(st, STORE_BEGIN, "beginning", e);

    if (code != ERR_OK)
        return code;
    code = insert_tenant_and_key(st, whose, label, hash, made_ms, e);
    if (code == ERR_OK)
        code = store_run(st, STORE_COMMIT, "writing an API key", e);
    if (code != ERR_OK)
        store_run(st, STORE_ROLLBACK, "undoing", NULL);
    return code;
}

static bool read_role(sqlite3_stmt *q, int at, enum core_role *out)
{
    int role = sqlite3_column_int(q, at);

    *out = (enum core_role)role;
    return role > CORE_ROLE_NONE && role < CORE_ROLE_COUNT;
}

enum err_code store_key_find(struct store *st, const uint8_t hash[static STORE_HASH_SIZE],
                             struct core_identity *out, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_KEY_FIND];
    enum err_code code = ERR_OK;
    int rc;

    sqlite3_bind_blob(q, 1, hash, STORE_HASH_SIZE, SQLITE_STATIC);
    rc = sqlite3_step(q);
    if (rc == SQLITE_ROW && !read_role(q, 1, &out->role))
        code = err_set(e, ERR_INTERNAL, "store: a key's row is damaged");
    else if (rc == SQLITE_ROW)
        store_column_copy(q, 0, out->tenant, sizeof(out->tenant));
    else if (rc == SQLITE_DONE)
        code = err_set(e, ERR_NOT_FOUND, "there is no such key");
    else
        code = store_fail(st, "looking a key up", e);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

enum err_code store_key_each(struct store *st, const char *tenant,
                             enum err_code (*fn)(void *arg, const struct core_key *k,
                                                 struct err *e),
                             void *arg, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_KEY_EACH];
    enum err_code code = ERR_OK;
    int rc;

    store_bind_text(q, 1, tenant);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW && code == ERR_OK) {
        struct core_key k = {.made_real_ms = sqlite3_column_int64(q, 3)};

        if (sqlite3_column_bytes(q, 0) != STORE_HASH_SIZE || !read_role(q, 4, &k.role)) {
            code = err_set(e, ERR_INTERNAL, "store: a key's row is damaged");
            continue;
        }
        ids_hex(sqlite3_column_blob(q, 0), CORE_KEY_ID_BYTES, k.id);
        store_column_copy(q, 1, k.tenant, sizeof(k.tenant));
        store_column_copy(q, 2, k.label, sizeof(k.label));
        code = fn(arg, &k, e);
    }
    if (code == ERR_OK && rc != SQLITE_DONE)
        code = store_fail(st, "reading keys", e);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

enum err_code store_key_delete(struct store *st, const char *tenant,
                               const uint8_t prefix[static CORE_KEY_ID_BYTES], struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_KEY_DELETE];
    enum err_code code;

    sqlite3_bind_blob(q, 1, prefix, CORE_KEY_ID_BYTES, SQLITE_STATIC);
    store_bind_text(q, 2, tenant);
    code = store_run(st, STORE_KEY_DELETE, "removing an API key", e);
    if (code == ERR_OK && sqlite3_changes(st->db) == 0)
        code = err_set(e, ERR_NOT_FOUND, "there is no such key");
    return code;
}
