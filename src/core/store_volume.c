#include "core/store_volume.h"

#include "core/store_internal.h"

#include <string.h>

enum err_code store_volume_insert(struct store *st, const struct volume *v, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_VOLUME_INSERT];
    enum err_code code;

    store_bind_text(q, 1, v->id);
    store_bind_text(q, 2, v->tenant);
    store_bind_text(q, 3, v->name);
    sqlite3_bind_int(q, 4, (int)v->state);
    sqlite3_bind_int64(q, 5, v->number);
    sqlite3_bind_int64(q, 6, (int64_t)v->bytes);
    sqlite3_bind_int64(q, 7, v->made_real_ms);
    store_set_durable(st, true);
    code = store_run(st, STORE_VOLUME_INSERT, "writing a new volume", e);
    store_set_durable(st, false);
    return code;
}

enum err_code store_volume_set_state(struct store *st, const char *id, enum volume_state state,
                                     struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_VOLUME_UPDATE];
    enum err_code code;

    store_bind_text(q, 1, id);
    sqlite3_bind_int(q, 2, (int)state);
    store_set_durable(st, true);
    code = store_run(st, STORE_VOLUME_UPDATE, "writing a volume's state", e);
    store_set_durable(st, false);
    return code;
}

enum err_code store_volume_delete(struct store *st, const char *id, struct err *e)
{
    store_bind_text(st->statements[STORE_VOLUME_DELETE], 1, id);
    return store_run(st, STORE_VOLUME_DELETE, "removing a volume", e);
}

/* false: the row is damaged. */
static bool read_row(sqlite3_stmt *q, struct volume *v)
{
    int64_t state = sqlite3_column_int64(q, 3), number = sqlite3_column_int64(q, 4);

    store_column_copy(q, 0, v->id, sizeof(v->id));
    v->tenant = (const char *)sqlite3_column_text(q, 1);
    store_column_copy(q, 2, v->name, sizeof(v->name));
    v->state = (enum volume_state)state;
    v->number = (uint32_t)number;
    v->bytes = (uint64_t)sqlite3_column_int64(q, 5);
    v->made_real_ms = sqlite3_column_int64(q, 6);
    return v->tenant && strlen(v->tenant) < CORE_TENANT_SIZE && v->id[0] == 'v' && state >= 0 &&
           state < VOLUME_STATE_COUNT && number >= 1 && number <= PRIVSEP_VOLUMES_MAX;
}

enum err_code store_volume_each(struct store *st,
                                enum err_code (*fn)(void *arg, const struct volume *v,
                                                    struct err *e),
                                void *arg, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_VOLUME_EACH];
    enum err_code code = ERR_OK;
    int rc;

    while ((rc = sqlite3_step(q)) == SQLITE_ROW && code == ERR_OK) {
        struct volume v = {0};

        code = read_row(q, &v)
                   ? fn(arg, &v, e)
                   : err_set(e, ERR_INTERNAL, "store: the row of volume '%s' is damaged", v.id);
    }
    if (code == ERR_OK && rc != SQLITE_DONE)
        code = store_fail(st, "reading volumes", e);
    sqlite3_reset(q);
    return code;
}
