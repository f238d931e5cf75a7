#include "core/store_snapshot.h"

#include "core/store_internal.h"

#include <string.h>

enum err_code store_snapshot_insert(struct store *st, const struct snapshot *s, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_SNAPSHOT_INSERT];

    store_bind_text(q, 1, s->id);
    store_bind_text(q, 2, s->tenant);
    store_bind_text(q, 3, s->name);
    store_bind_text(q, 4, s->sandbox);
    store_bind_text(q, 5, s->template_id);
    sqlite3_bind_int(q, 6, (int)s->state);
    sqlite3_bind_int(q, 7, (int)s->kind);
    sqlite3_bind_int64(q, 8, s->number);
    sqlite3_bind_int64(q, 9, s->level);
    sqlite3_bind_int64(q, 10, (int64_t)s->limits.memory_bytes);
    sqlite3_bind_int64(q, 11, (int64_t)s->limits.disk_bytes);
    sqlite3_bind_int64(q, 12, s->limits.cpu_milli);
    sqlite3_bind_int64(q, 13, s->limits.pids);
    sqlite3_bind_int64(q, 14, s->limits.open_files);
    sqlite3_bind_int64(q, 15, s->made_real_ms);
    return store_run(st, STORE_SNAPSHOT_INSERT, "writing a new snapshot", e);
}

/* It outlives the host, and so does what is said of it; a fork's does not, and is dropped at a
 * start. */
enum err_code store_snapshot_update(struct store *st, const struct snapshot *s, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_SNAPSHOT_UPDATE];
    enum err_code code;

    store_bind_text(q, 1, s->id);
    sqlite3_bind_int(q, 2, (int)s->state);
    store_bind_text(q, 3, s->name);
    store_set_durable(st, s->kind != SNAPSHOT_OF_FORK);
    code = store_run(st, STORE_SNAPSHOT_UPDATE, "writing a snapshot's state", e);
    store_set_durable(st, false);
    return code;
}

enum err_code store_snapshot_memory(struct store *st, const struct snapshot *s, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_SNAPSHOT_MEMORY];
    enum err_code code;

    store_bind_text(q, 1, s->id);
    sqlite3_bind_int64(q, 2, s->memory);
    store_bind_text(q, 3, s->memory_of);
    store_set_durable(st, true);
    code = store_run(st, STORE_SNAPSHOT_MEMORY, "writing the memory of a snapshot", e);
    store_set_durable(st, false);
    return code;
}

enum err_code store_snapshot_delete(struct store *st, const char *id, struct err *e)
{
    store_bind_text(st->statements[STORE_SNAPSHOT_DELETE], 1, id);
    return store_run(st, STORE_SNAPSHOT_DELETE, "removing a snapshot", e);
}

/* false: the row is damaged. */
static bool read_row(sqlite3_stmt *q, struct snapshot *s)
{
    int64_t state = sqlite3_column_int64(q, 5), number = sqlite3_column_int64(q, 7);
    int64_t level = sqlite3_column_int64(q, 8), kind = sqlite3_column_int64(q, 6);
    int64_t memory = sqlite3_column_int64(q, 15);

    store_column_copy(q, 0, s->id, sizeof(s->id));
    s->tenant = (const char *)sqlite3_column_text(q, 1);
    store_column_copy(q, 2, s->name, sizeof(s->name));
    store_column_copy(q, 3, s->sandbox, sizeof(s->sandbox));
    store_column_copy(q, 4, s->template_id, sizeof(s->template_id));
    s->state = (enum snapshot_state)state;
    s->kind = (enum snapshot_kind)kind;
    s->number = (uint32_t)number;
    s->level = (uint32_t)level;
    s->limits.memory_bytes = (uint64_t)sqlite3_column_int64(q, 9);
    s->limits.disk_bytes = (uint64_t)sqlite3_column_int64(q, 10);
    s->limits.cpu_milli = (uint32_t)sqlite3_column_int64(q, 11);
    s->limits.pids = (uint32_t)sqlite3_column_int64(q, 12);
    s->limits.open_files = (uint32_t)sqlite3_column_int64(q, 13);
    s->made_real_ms = sqlite3_column_int64(q, 14);
    s->memory = (uint32_t)memory;
    store_column_copy(q, 16, s->memory_of, sizeof(s->memory_of));
    return memory >= 0 && memory <= PRIVSEP_KEPT_MAX && !s->memory == !s->memory_of[0] &&
           s->tenant && strlen(s->tenant) < CORE_TENANT_SIZE && s->id[0] == 's' && state >= 0 &&
           state < SNAPSHOT_STATE_COUNT && number >= 1 && number <= PRIVSEP_KEPT_MAX &&
           level >= 0 && level < PRIVSEP_LEVEL_COUNT && kind >= 0 && kind < SNAPSHOT_KIND_COUNT;
}

enum err_code store_snapshot_each(struct store *st,
                                  enum err_code (*fn)(void *arg, const struct snapshot *s,
                                                      struct err *e),
                                  void *arg, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_SNAPSHOT_EACH];
    enum err_code code = ERR_OK;
    int rc;

    while ((rc = sqlite3_step(q)) == SQLITE_ROW && code == ERR_OK) {
        struct snapshot s = {0};

        code = read_row(q, &s)
                   ? fn(arg, &s, e)
                   : err_set(e, ERR_INTERNAL, "store: the row of snapshot '%s' is damaged", s.id);
    }
    if (code == ERR_OK && rc != SQLITE_DONE)
        code = store_fail(st, "reading snapshots", e);
    sqlite3_reset(q);
    return code;
}
