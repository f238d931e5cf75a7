#include "core/store_build.h"

#include "core/store_internal.h"

#include <string.h>

enum err_code store_build_put(struct store *st, const struct build *b, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_BUILD_PUT];
    enum err_code code;

    store_bind_text(q, 1, b->id);
    store_bind_text(q, 2, b->tenant);
    store_bind_text(q, 3, b->template_id);
    store_bind_text(q, 4, b->name);
    store_bind_text(q, 5, b->tags);
    sqlite3_bind_int(q, 6, (int)b->state);
    store_bind_text(q, 7, b->snapshot);
    store_bind_text(q, 8, b->step);
    store_bind_text(q, 9, b->reason);
    sqlite3_bind_int64(q, 10, (int64_t)b->memory_bytes);
    sqlite3_bind_int64(q, 11, b->cpu_milli);
    sqlite3_bind_int64(q, 12, b->made_real_ms);
    sqlite3_bind_int64(q, 13, b->ended_real_ms);
    store_set_durable(st, b->state == BUILD_READY);
    code = store_run(st, STORE_BUILD_PUT, "writing a build", e);
    store_set_durable(st, false);
    return code;
}

enum err_code store_build_delete(struct store *st, const char *id, struct err *e)
{
    store_bind_text(st->statements[STORE_BUILD_DELETE], 1, id);
    return store_run(st, STORE_BUILD_DELETE, "removing a build", e);
}

/* false: the row is damaged. */
static bool read_row(sqlite3_stmt *q, struct build *b)
{
    int64_t state = sqlite3_column_int64(q, 5);

    store_column_copy(q, 0, b->id, sizeof(b->id));
    b->tenant = (const char *)sqlite3_column_text(q, 1);
    store_column_copy(q, 2, b->template_id, sizeof(b->template_id));
    store_column_copy(q, 3, b->name, sizeof(b->name));
    store_column_copy(q, 4, b->tags, sizeof(b->tags));
    b->state = (enum build_state)state;
    store_column_copy(q, 6, b->snapshot, sizeof(b->snapshot));
    store_column_copy(q, 7, b->step, sizeof(b->step));
    store_column_copy(q, 8, b->reason, sizeof(b->reason));
    b->memory_bytes = (uint64_t)sqlite3_column_int64(q, 9);
    b->cpu_milli = (uint32_t)sqlite3_column_int64(q, 10);
    b->made_real_ms = sqlite3_column_int64(q, 11);
    b->ended_real_ms = sqlite3_column_int64(q, 12);
    return b->tenant && strlen(b->tenant) < CORE_TENANT_SIZE && state >= 0 &&
           state < BUILD_STATE_COUNT;
}

enum err_code store_build_each(struct store *st,
                               enum err_code (*fn)(void *arg, const struct build *b, struct err *e),
                               void *arg, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_BUILD_EACH];
    enum err_code code = ERR_OK;
    int rc;

    while ((rc = sqlite3_step(q)) == SQLITE_ROW && code == ERR_OK) {
        struct build b = {0};

        code = read_row(q, &b)
                   ? fn(arg, &b, e)
                   : err_set(e, ERR_INTERNAL, "store: the row of build '%s' is damaged", b.id);
    }
    if (code == ERR_OK && rc != SQLITE_DONE)
        code = store_fail(st, "reading builds", e);
    sqlite3_reset(q);
    return code;
}
