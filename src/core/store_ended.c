#include "core/store_ended.h"

#include "core/store_internal.h"

#include <string.h>

/* Those whose time is over, and the oldest where the tenant has too many. */
static enum err_code make_space(struct store *st, const char *tenant, int64_t now_ms, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_ENDED_PURGE];

    store_bind_text(q, 1, tenant);
    sqlite3_bind_int64(q, 2, now_ms - ENDED_LIFE_MS);
    sqlite3_bind_int64(q, 3, ENDED_OF_A_TENANT - 1);
    return store_run(st, STORE_ENDED_PURGE, "forgetting old ends of sandboxes", e);
}

enum err_code store_ended_put(struct store *st, const char *tenant, const struct store_ended *row,
                              struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_ENDED_PUT];
    enum err_code code = make_space(st, tenant, row->ended_real_ms, e);

    if (code != ERR_OK)
        return code;
    store_bind_text(q, 1, tenant);
    store_bind_text(q, 2, row->id);
    store_bind_text(q, 3, row->template_id);
    store_bind_text(q, 4, row->reason);
    sqlite3_bind_int64(q, 5, row->started_real_ms);
    sqlite3_bind_int64(q, 6, row->ended_real_ms);
    return store_run(st, STORE_ENDED_PUT, "writing why a sandbox has ended", e);
}

static void read_row(sqlite3_stmt *q, struct store_ended *out)
{
    store_column_copy(q, 0, out->id, sizeof(out->id));
    store_column_copy(q, 1, out->template_id, sizeof(out->template_id));
    store_column_copy(q, 2, out->reason, sizeof(out->reason));
    out->started_real_ms = sqlite3_column_int64(q, 3);
    out->ended_real_ms = sqlite3_column_int64(q, 4);
}

enum err_code store_ended_find(struct store *st, const char *tenant, const char *id, int64_t now_ms,
                               struct store_ended *out, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_ENDED_FIND];
    enum err_code code = ERR_OK;
    int rc;

    store_bind_text(q, 1, tenant);
    store_bind_text(q, 2, id);
    sqlite3_bind_int64(q, 3, now_ms - ENDED_LIFE_MS);
    rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        read_row(q, out);
    else
        code = rc == SQLITE_DONE ? ERR_NOT_FOUND
                                 : store_fail(st, "reading why a sandbox has ended", e);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

enum err_code store_ended_each(struct store *st, const char *tenant, int64_t now_ms, size_t limit,
                               void (*fn)(void *arg, const struct store_ended *row), void *arg,
                               struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_ENDED_EACH];
    enum err_code code = ERR_OK;
    struct store_ended row;
    int rc;

    store_bind_text(q, 1, tenant);
    sqlite3_bind_int64(q, 2, now_ms - ENDED_LIFE_MS);
    sqlite3_bind_int64(q, 3, (int64_t)limit);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        read_row(q, &row);
        fn(arg, &row);
    }
    if (rc != SQLITE_DONE)
        code = store_fail(st, "reading why sandboxes have ended", e);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}
