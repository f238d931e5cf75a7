#include "core/store_create_key.h"

#include "core/store_internal.h"

#include <string.h>

enum err_code store_create_key_find(struct store *st, const char *tenant, const char *key,
                                    int64_t now_ms, struct store_create_key *out, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_CREATE_KEY_FIND];
    enum err_code code = ERR_OK;
    int rc;

    store_bind_text(q, 1, tenant);
    store_bind_text(q, 2, key);
    sqlite3_bind_int64(q, 3, now_ms - CREATE_KEY_LIFE_MS);
    rc = sqlite3_step(q);
    if (rc == SQLITE_ROW && sqlite3_column_bytes(q, 0) == STORE_HASH_SIZE) {
        memcpy(out->request_hash, sqlite3_column_blob(q, 0), STORE_HASH_SIZE);
        store_column_copy(q, 1, out->sandbox, sizeof(out->sandbox));
        out->done = sqlite3_column_int(q, 2) != 0;
    } else {
        code = rc == SQLITE_ROW || rc == SQLITE_DONE ? ERR_NOT_FOUND
                                                     : store_fail(st, "reading a create's key", e);
    }
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

/* Those whose time is over, and the oldest where a tenant has too many. */
static enum err_code make_space(struct store *st, const char *tenant, int64_t now_ms, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_CREATE_KEY_PURGE];

    store_bind_text(q, 1, tenant);
    sqlite3_bind_int64(q, 2, now_ms - CREATE_KEY_LIFE_MS);
    sqlite3_bind_int64(q, 3, CREATE_KEYS_OF_A_TENANT - 1);
    return store_run(st, STORE_CREATE_KEY_PURGE, "forgetting old keys of creates", e);
}

enum err_code store_create_key_insert(struct store *st, const char *tenant, const char *key,
                                      const uint8_t hash[static STORE_HASH_SIZE],
                                      const char *sandbox, int64_t now_ms, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_CREATE_KEY_INSERT];
    enum err_code code = make_space(st, tenant, now_ms, e);

    if (code != ERR_OK)
        return code;
    store_bind_text(q, 1, tenant);
    store_bind_text(q, 2, key);
    sqlite3_bind_blob(q, 3, hash, STORE_HASH_SIZE, SQLITE_STATIC);
    store_bind_text(q, 4, sandbox);
    sqlite3_bind_int64(q, 5, now_ms);
    return store_run(st, STORE_CREATE_KEY_INSERT, "writing a create's key", e);
}

enum err_code store_create_key_done(struct store *st, const char *sandbox, struct err *e)
{
    store_bind_text(st->statements[STORE_CREATE_KEY_DONE], 1, sandbox);
    return store_run(st, STORE_CREATE_KEY_DONE, "confirming a create's key", e);
}
