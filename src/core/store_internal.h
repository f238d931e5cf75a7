#pragma once
/* Shared by the files of the store: the database and its prepared statements. store.c opens it,
 * store_schema.c owns the schema, store_statement.c runs statements, store_checkpoint.c moves the
 * log into it; each other store_*.c has the rows of one kind of thing, declared in its header. */

#include "core/store.h"

#include <sqlite3.h>

enum store_statement {
    STORE_SANDBOX_INSERT,
    STORE_SANDBOX_UPDATE,
    STORE_SANDBOX_NETWORK,
    STORE_SANDBOX_METADATA,
    STORE_SANDBOX_LIMITS,
    STORE_SANDBOX_DELETE,
    STORE_SANDBOX_EACH,
    STORE_TENANT_INSERT,
    STORE_TENANT_FIND,
    STORE_TENANT_CEILING,
    STORE_TENANT_EACH,
    STORE_KEY_INSERT,
    STORE_KEY_FIND,
    STORE_KEY_COUNT,
    STORE_KEY_EACH,
    STORE_KEY_DELETE,
    STORE_CREDENTIAL_PUT,
    STORE_CREDENTIAL_RENEW,
    STORE_CREDENTIAL_DESCRIBE,
    STORE_CREDENTIAL_GET,
    STORE_CREDENTIAL_COUNT,
    STORE_CREDENTIAL_EACH,
    STORE_CREDENTIAL_DELETE,
    STORE_TEMPLATE_PUT,
    STORE_TEMPLATE_EACH,
    STORE_IMAGE_PUT,
    STORE_IMAGE_DELETE,
    STORE_IMAGE_EACH,
    STORE_PUBLISHED_PUT,
    STORE_PUBLISHED_DELETE,
    STORE_PUBLISHED_EACH,
    STORE_CREATE_KEY_FIND,
    STORE_CREATE_KEY_PURGE,
    STORE_CREATE_KEY_INSERT,
    STORE_CREATE_KEY_DONE,
    STORE_QUOTA_PUT,
    STORE_QUOTA_DELETE,
    STORE_QUOTA_EACH,
    STORE_USAGE_ADD,
    STORE_USAGE_EACH,
    STORE_USAGE_PURGE,
    STORE_SNAPSHOT_INSERT,
    STORE_SNAPSHOT_UPDATE,
    STORE_SNAPSHOT_MEMORY,
    STORE_SNAPSHOT_DELETE,
    STORE_SNAPSHOT_EACH,
    STORE_WEBHOOK_INSERT,
    STORE_WEBHOOK_DELETE,
    STORE_WEBHOOK_EACH,
    STORE_DELIVERY_INSERT,
    STORE_DELIVERY_DELETE,
    STORE_DELIVERY_DELETE_ALL,
    STORE_DELIVERY_NEXT,
    STORE_DELIVERY_AGAIN,
    STORE_DELIVERY_PRUNE,
    STORE_DELIVERY_REVIVE,
    STORE_DELIVERY_EACH,
    STORE_VOLUME_INSERT,
    STORE_VOLUME_UPDATE,
    STORE_VOLUME_DELETE,
    STORE_VOLUME_EACH,
    STORE_BUILD_PUT,
    STORE_BUILD_DELETE,
    STORE_BUILD_EACH,
    STORE_SIGNED_END_PUT,
    STORE_SIGNED_END_FIND,
    STORE_SIGNED_END_COUNT,
    STORE_SIGNED_END_PURGE,
    STORE_ENDED_PUT,
    STORE_ENDED_FIND,
    STORE_ENDED_EACH,
    STORE_ENDED_PURGE,
    STORE_BEGIN,
    STORE_COMMIT,
    STORE_ROLLBACK,
    STORE_STATEMENT_COUNT
};

struct store {
    sqlite3 *db;
    sqlite3_stmt *statements[STORE_STATEMENT_COUNT];
    struct store_checkpoint *checkpoint;
    int lock_fd;
};

/* Brings the schema up to that version, or to the newest. */
#define STORE_NEWEST SIZE_MAX
enum err_code store_migrate(struct store *st, size_t to, struct err *e);

/* For tests: the step from version i to i + 1, and NULL behind the last. */
const char *store_migration(size_t i);

/* For tests: a database as the schema's version (the number of its steps) had it. */
enum err_code store_make_old(const char *dir, size_t version, struct err *e);

#define STORE_DAMAGED                                                                          \
    "cay.db is damaged: bring a copy of it back, or move it away to start afresh without its " \
    "keys "                                                                                    \
    "and sandboxes"

/* ERR_INTERNAL where dir's cay.db has become an empty file (store_cut.c). */
enum err_code store_check_cut(const char *dir, struct err *e);

/* SQLite's last error on this database as ours, with what was tried. */
enum err_code store_fail(struct store *st, const char *what, struct err *e);

/* Runs a statement that gives no row, and makes it ready for its next use. */
enum err_code store_run(struct store *st, enum store_statement which, const char *what,
                        struct err *e);

/* Commits are synced to the disk with the next checkpoint; those that are made while this is on,
 * before they return. */
void store_set_durable(struct store *st, bool durable);

/* text lives until the statement was run. */
void store_bind_text(sqlite3_stmt *s, int at, const char *text);

/* json may be NULL. The text is SQLite's to free. */
void store_bind_json(sqlite3_stmt *s, int at, const json_t *json);

/* A new reference, or NULL where the column is empty. */
json_t *store_column_json(sqlite3_stmt *s, int at);

/* Cut to size; empty where the column is. */
void store_column_copy(sqlite3_stmt *s, int at, char *out, size_t size);
