/* The rows of webhooks and of their deliveries. Called by webhook.c (create, delete, start) and
 * webhook_send.c. A delivery is inserted with its event and stays until it was delivered
 * (delete) or its webhook is removed; after a failed attempt it is written again with its next
 * time or as dead (store_delivery_again, which keeps only the newest dead ones), and a client
 * may revive those. So a delivery that was under way when cayd ended is sent once more:
 * receivers see its id. */

#include "core/store_webhook.h"

#include "core/store_internal.h"
#include "core/webhook_internal.h"

#include <stdio.h>
#include <string.h>

#define TYPES_MAX 512u

/* -- types ------------------------------------------------------------------------------------- */

static void write_types(unsigned types, char out[static TYPES_MAX])
{
    size_t used = 0;

    out[0] = '\0';
    for (int i = 0; i < EVENT_TYPE_COUNT; i++)
        if (types & 1u << i)
            used += (size_t)snprintf(out + used, TYPES_MAX - used, "%s%s", used ? "," : "",
                                     event_type_name((enum event_type)i));
}

/* A name that this version does not know is left out: no event has it. */
static unsigned read_types(const char *text)
{
    unsigned types = 0;

    for (const char *p = text; p && *p; p += strspn(p, ",")) {
        size_t n = strcspn(p, ",");
        int type = event_type_from(p, n);

        if (type >= 0)
            types |= 1u << type;
        p += n;
    }
    return types;
}

/* -- webhooks ---------------------------------------------------------------------------------- */

enum err_code store_webhook_insert(struct store *st, const struct webhook_row *w, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_WEBHOOK_INSERT];
    char types[TYPES_MAX];

    write_types(w->types, types);
    store_bind_text(q, 1, w->id);
    store_bind_text(q, 2, w->tenant);
    store_bind_text(q, 3, w->url);
    store_bind_text(q, 4, types);
    store_bind_text(q, 5, w->sealed);
    sqlite3_bind_int64(q, 6, w->made_real_ms);
    return store_run(st, STORE_WEBHOOK_INSERT, "writing a webhook", e);
}

static enum err_code delete_all(struct store *st, const char *id, struct err *e)
{
    enum err_code code;

    store_bind_text(st->statements[STORE_DELIVERY_DELETE_ALL], 1, id);
    code = store_run(st, STORE_DELIVERY_DELETE_ALL, "removing deliveries", e);
    if (code != ERR_OK)
        return code;
    store_bind_text(st->statements[STORE_WEBHOOK_DELETE], 1, id);
    return store_run(st, STORE_WEBHOOK_DELETE, "removing a webhook", e);
}

enum err_code store_webhook_delete(struct store *st, const char *id, struct err *e)
{
    enum err_code code = store_run(st, STORE_BEGIN, "beginning", e);

    if (code != ERR_OK)
        return code;
    code = delete_all(st, id, e);
    if (code == ERR_OK)
        code = store_run(st, STORE_COMMIT, "removing a webhook", e);
    if (code != ERR_OK)
        store_run(st, STORE_ROLLBACK, "undoing", NULL);
    return code;
}

static bool read_webhook(sqlite3_stmt *q, struct webhook_row *w)
{
    *w = (struct webhook_row){.id = (const char *)sqlite3_column_text(q, 0),
                              .tenant = (const char *)sqlite3_column_text(q, 1),
                              .url = (const char *)sqlite3_column_text(q, 2),
                              .sealed = (const char *)sqlite3_column_text(q, 4),
                              .types = read_types((const char *)sqlite3_column_text(q, 3)),
                              .made_real_ms = sqlite3_column_int64(q, 5),
                              .waiting = (uint64_t)sqlite3_column_int64(q, 6),
                              .dead = (uint64_t)sqlite3_column_int64(q, 7)};
    return w->id && strlen(w->id) < CORE_WEBHOOK_ID_SIZE && w->tenant &&
           strlen(w->tenant) < CORE_TENANT_SIZE && w->url &&
           strlen(w->url) < CORE_WEBHOOK_URL_SIZE && w->sealed;
}

enum err_code store_webhook_each(struct store *st,
                                 enum err_code (*fn)(void *arg, const struct webhook_row *w,
                                                     struct err *e),
                                 void *arg, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_WEBHOOK_EACH];
    enum err_code code = ERR_OK;
    struct webhook_row w;
    int rc;

    while ((rc = sqlite3_step(q)) == SQLITE_ROW && code == ERR_OK)
        code = read_webhook(q, &w)
                   ? fn(arg, &w, e)
                   : err_set(e, ERR_INTERNAL, "store: the row of a webhook is damaged");
    if (code == ERR_OK && rc != SQLITE_DONE)
        code = store_fail(st, "reading webhooks", e);
    sqlite3_reset(q);
    return code;
}

/* -- deliveries -------------------------------------------------------------------------------- */

enum err_code store_delivery_insert(struct store *st, const char *webhook,
                                    const struct delivery_row *d, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_DELIVERY_INSERT];

    store_bind_text(q, 1, webhook);
    store_bind_text(q, 2, d->message);
    store_bind_text(q, 3, d->type);
    store_bind_text(q, 4, d->body);
    sqlite3_bind_int64(q, 5, d->made_ms);
    return store_run(st, STORE_DELIVERY_INSERT, "writing a delivery", e);
}

enum err_code store_delivery_delete(struct store *st, int64_t id, struct err *e)
{
    sqlite3_bind_int64(st->statements[STORE_DELIVERY_DELETE], 1, id);
    return store_run(st, STORE_DELIVERY_DELETE, "removing a delivery", e);
}

static struct delivery_row read_delivery(sqlite3_stmt *q)
{
    return (struct delivery_row){.id = sqlite3_column_int64(q, 0),
                                 .message = (const char *)sqlite3_column_text(q, 1),
                                 .type = (const char *)sqlite3_column_text(q, 2),
                                 .body = (const char *)sqlite3_column_text(q, 3),
                                 .attempts = (unsigned)sqlite3_column_int64(q, 4),
                                 .due_ms = sqlite3_column_int64(q, 5),
                                 .dead = sqlite3_column_int64(q, 6) != 0,
                                 .why = (const char *)sqlite3_column_text(q, 7),
                                 .made_ms = sqlite3_column_int64(q, 8)};
}

/* fn for each row of the statement, whose first parameter is the webhook. *n: how many. */
static enum err_code each(struct store *st, enum store_statement which, const char *webhook,
                          void (*fn)(void *arg, const struct delivery_row *d), void *arg,
                          uint64_t *n, struct err *e)
{
    sqlite3_stmt *q = st->statements[which];
    enum err_code code = ERR_OK;
    int rc;

    *n = 0;
    store_bind_text(q, 1, webhook);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW) {
        const struct delivery_row d = read_delivery(q);

        fn(arg, &d);
        ++*n;
    }
    if (rc != SQLITE_DONE)
        code = store_fail(st, "reading deliveries", e);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

enum err_code store_delivery_next(struct store *st, const char *webhook,
                                  void (*fn)(void *arg, const struct delivery_row *d), void *arg,
                                  struct err *e)
{
    uint64_t n;
    enum err_code code = each(st, STORE_DELIVERY_NEXT, webhook, fn, arg, &n, e);

    return code == ERR_OK && n == 0 ? err_set(e, ERR_NOT_FOUND, "no delivery waits") : code;
}

enum err_code store_delivery_each(struct store *st, const char *webhook,
                                  void (*fn)(void *arg, const struct delivery_row *d), void *arg,
                                  struct err *e)
{
    uint64_t n;

    return each(st, STORE_DELIVERY_EACH, webhook, fn, arg, &n, e);
}

enum err_code store_delivery_again(struct store *st, const char *webhook,
                                   const struct delivery_row *d, uint64_t keep, uint64_t *gone,
                                   struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_DELIVERY_AGAIN];
    enum err_code code;

    *gone = 0;
    sqlite3_bind_int64(q, 1, d->id);
    sqlite3_bind_int64(q, 2, d->attempts);
    sqlite3_bind_int64(q, 3, d->due_ms);
    sqlite3_bind_int(q, 4, d->dead);
    store_bind_text(q, 5, d->why);
    code = store_run(st, STORE_DELIVERY_AGAIN, "writing a delivery", e);
    if (code != ERR_OK || !d->dead)
        return code;
    store_bind_text(st->statements[STORE_DELIVERY_PRUNE], 1, webhook);
    sqlite3_bind_int64(st->statements[STORE_DELIVERY_PRUNE], 2, (sqlite3_int64)keep);
    code = store_run(st, STORE_DELIVERY_PRUNE, "removing old deliveries", e);
    if (code == ERR_OK)
        *gone = (uint64_t)sqlite3_changes(st->db);
    return code;
}

enum err_code store_delivery_revive(struct store *st, const char *webhook, int64_t due_ms,
                                    uint64_t *count, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_DELIVERY_REVIVE];
    enum err_code code;

    store_bind_text(q, 1, webhook);
    sqlite3_bind_int64(q, 2, due_ms);
    code = store_run(st, STORE_DELIVERY_REVIVE, "writing deliveries", e);
    if (code == ERR_OK)
        *count = (uint64_t)sqlite3_changes(st->db);
    return code;
}
