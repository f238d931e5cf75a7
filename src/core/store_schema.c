/* The schema, step by step: a file of an older cay is brought to the newest version in one
 * transaction for each step, and one of a newer cay is refused. The order of steps is the order of
 * releases: append, never change. */

#include "core/store_internal.h"

#include "base/util.h"

#include <stdio.h>
#include <stdlib.h>

/* Each step brings the file from version i to i + 1 (PRAGMA user_version). Never change a step that
 * was released: append one, with its line in test/unit/migrations.txt. */
static const char *const migrations[] = {
    "CREATE TABLE tenants (id TEXT PRIMARY KEY, made_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE api_keys (hash BLOB PRIMARY KEY, tenant TEXT NOT NULL REFERENCES tenants(id),"
    "  label TEXT NOT NULL, made_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE sandboxes (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, template_id TEXT NOT NULL,"
    "  template_asked TEXT NOT NULL, state INTEGER NOT NULL, on_timeout INTEGER NOT NULL,"
    "  flags INTEGER NOT NULL, started_ms INTEGER NOT NULL, end_ms INTEGER NOT NULL,"
    "  slot INTEGER NOT NULL, gen INTEGER NOT NULL, agent_key BLOB NOT NULL,"
    "  memory_bytes INTEGER NOT NULL, disk_bytes INTEGER NOT NULL, cpu_milli INTEGER NOT NULL,"
    "  pids INTEGER NOT NULL, open_files INTEGER NOT NULL, metadata TEXT, network TEXT)"
    "  STRICT, WITHOUT ROWID;",
    "ALTER TABLE sandboxes ADD COLUMN policy TEXT;",
    "CREATE TABLE credentials (tenant TEXT NOT NULL, name TEXT NOT NULL, bind TEXT NOT NULL,"
    "  sealed BLOB NOT NULL, made_ms INTEGER NOT NULL, PRIMARY KEY (tenant, name))"
    "  STRICT, WITHOUT ROWID;"
    "ALTER TABLE sandboxes ADD COLUMN credentials TEXT;",
    "ALTER TABLE tenants ADD COLUMN ceiling TEXT;",
    "CREATE TABLE template_limits (id TEXT PRIMARY KEY, memory_bytes INTEGER NOT NULL,"
    "  disk_bytes INTEGER NOT NULL, cpu_milli INTEGER NOT NULL, pids INTEGER NOT NULL)"
    "  STRICT, WITHOUT ROWID;",
    /* A create that failed, or did not end before a restart, has not used its key. */
    "CREATE TABLE create_keys (tenant TEXT NOT NULL, key TEXT NOT NULL, request_hash BLOB NOT NULL,"
    "  sandbox TEXT NOT NULL, made_ms INTEGER NOT NULL, done INTEGER NOT NULL,"
    "  PRIMARY KEY (tenant, key)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX create_keys_sandbox ON create_keys (sandbox);"
    "CREATE TRIGGER create_keys_unused AFTER DELETE ON sandboxes BEGIN"
    "  DELETE FROM create_keys WHERE sandbox=OLD.id AND done=0; END;",
    "ALTER TABLE credentials ADD COLUMN first_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE credentials ADD COLUMN version INTEGER NOT NULL DEFAULT 1;"
    "ALTER TABLE credentials ADD COLUMN metadata TEXT;"
    "UPDATE credentials SET first_ms=made_ms;",
    "ALTER TABLE sandboxes ADD COLUMN name TEXT NOT NULL DEFAULT '';"
    "ALTER TABLE sandboxes ADD COLUMN idle_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sandboxes ADD COLUMN last_end_ms INTEGER NOT NULL DEFAULT 0;",
    "ALTER TABLE template_limits ADD COLUMN filters INTEGER NOT NULL DEFAULT 0;",
    "ALTER TABLE sandboxes ADD COLUMN level INTEGER NOT NULL DEFAULT 0;",
    "ALTER TABLE sandboxes ADD COLUMN pause_reason INTEGER NOT NULL DEFAULT 0;",
    /* Fields of a network object that core reads get columns, and bit 64 of the flags: private
     * ports. */
    "ALTER TABLE sandboxes ADD COLUMN masked_host TEXT;"
    "ALTER TABLE sandboxes ADD COLUMN proxy_address TEXT;"
    "ALTER TABLE sandboxes ADD COLUMN proxy_user TEXT;"
    "UPDATE sandboxes SET masked_host=json_extract(network, '$.maskRequestHost'),"
    "  proxy_address=json_extract(network, '$.egressProxy.address'),"
    "  proxy_user=json_extract(network, '$.egressProxy.username'),"
    "  flags=flags |"
    "  CASE WHEN json_extract(network, '$.allowPublicTraffic') IS 0 THEN 64 ELSE 0 END"
    "  WHERE network IS NOT NULL;",
    /* enum core_role. A row that is made without one opens nothing. */
    "ALTER TABLE api_keys ADD COLUMN role INTEGER NOT NULL DEFAULT 0;"
    "UPDATE api_keys SET role=CASE WHEN tenant='default' THEN 1 ELSE 2 END;",
    "CREATE TABLE tenant_quotas (tenant TEXT NOT NULL, name TEXT NOT NULL, most INTEGER NOT NULL,"
    "  PRIMARY KEY (tenant, name)) STRICT, WITHOUT ROWID;"
    "CREATE TABLE tenant_usage (tenant TEXT NOT NULL, hour_ms INTEGER NOT NULL,"
    "  created INTEGER NOT NULL, commands INTEGER NOT NULL, sandbox_ms INTEGER NOT NULL,"
    "  paused_ms INTEGER NOT NULL, cpu_milli_ms INTEGER NOT NULL, memory_mib_ms INTEGER NOT NULL,"
    "  disk_mib_ms INTEGER NOT NULL, peak_sandboxes INTEGER NOT NULL,"
    "  PRIMARY KEY (tenant, hour_ms)) STRICT, WITHOUT ROWID;",
    /* env: only while kept is set (store.h) */
    "ALTER TABLE sandboxes ADD COLUMN kept INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sandboxes ADD COLUMN env TEXT;",
    "CREATE TABLE snapshots (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL,"
    "  sandbox TEXT NOT NULL, template_id TEXT NOT NULL, state INTEGER NOT NULL,"
    "  of_fork INTEGER NOT NULL, number INTEGER NOT NULL, level INTEGER NOT NULL,"
    "  memory_bytes INTEGER NOT NULL, disk_bytes INTEGER NOT NULL, cpu_milli INTEGER NOT NULL,"
    "  pids INTEGER NOT NULL, open_files INTEGER NOT NULL, made_ms INTEGER NOT NULL)"
    "  STRICT, WITHOUT ROWID;",
    /* types: names, with commas; what it would be as bits depends on the version. */
    "CREATE TABLE webhooks (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, url TEXT NOT NULL,"
    "  types TEXT NOT NULL, sealed TEXT NOT NULL, made_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "CREATE TABLE deliveries (id INTEGER PRIMARY KEY AUTOINCREMENT, webhook TEXT NOT NULL,"
    "  message TEXT NOT NULL, type TEXT NOT NULL, body TEXT NOT NULL, attempts INTEGER NOT NULL,"
    "  due_ms INTEGER NOT NULL, dead INTEGER NOT NULL, why TEXT NOT NULL,"
    "  made_ms INTEGER NOT NULL) STRICT;"
    "CREATE INDEX deliveries_due ON deliveries (webhook, dead, due_ms, id);",
    "CREATE TABLE volumes (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, name TEXT NOT NULL,"
    "  state INTEGER NOT NULL, number INTEGER NOT NULL, bytes INTEGER NOT NULL,"
    "  made_ms INTEGER NOT NULL) STRICT, WITHOUT ROWID;"
    "ALTER TABLE sandboxes ADD COLUMN volumes TEXT;",
    "ALTER TABLE sandboxes ADD COLUMN file_url_number INTEGER NOT NULL DEFAULT 0;",
    /* Of one that is stopped already it is not known since when: as if since now. */
    "ALTER TABLE sandboxes ADD COLUMN kept_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sandboxes ADD COLUMN auto_archive_ms INTEGER NOT NULL DEFAULT 604800000;"
    "UPDATE sandboxes SET kept_ms=unixepoch()*1000 WHERE kept<>0;",
    "CREATE TABLE images (name TEXT PRIMARY KEY, number INTEGER NOT NULL UNIQUE,"
    "  source TEXT NOT NULL, digest TEXT NOT NULL) STRICT, WITHOUT ROWID;",
    /* of_fork of a snapshot is enum snapshot_kind from here on. */
    "CREATE TABLE builds (id TEXT PRIMARY KEY, tenant TEXT NOT NULL, template TEXT NOT NULL,"
    "  name TEXT NOT NULL, tags TEXT NOT NULL, state INTEGER NOT NULL, snapshot TEXT NOT NULL,"
    "  step TEXT NOT NULL, reason TEXT NOT NULL, memory_bytes INTEGER NOT NULL,"
    "  cpu_milli INTEGER NOT NULL, made_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL)"
    "  STRICT, WITHOUT ROWID;",
    "ALTER TABLE sandboxes ADD COLUMN auto_delete_ms INTEGER NOT NULL DEFAULT 0;",
    "ALTER TABLE images ADD COLUMN tenant TEXT NOT NULL DEFAULT '';",
    "CREATE TABLE published (name TEXT PRIMARY KEY) STRICT, WITHOUT ROWID;"
    "ALTER TABLE tenant_usage ADD COLUMN builds INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE tenant_usage ADD COLUMN template_mib_ms INTEGER NOT NULL DEFAULT 0;",
    "CREATE TABLE signed_ends (sandbox TEXT NOT NULL, signature TEXT NOT NULL,"
    "  until_s INTEGER NOT NULL, PRIMARY KEY (sandbox, signature)) STRICT, WITHOUT ROWID;"
    "CREATE TRIGGER signed_ends_unused AFTER DELETE ON sandboxes BEGIN"
    "  DELETE FROM signed_ends WHERE sandbox=OLD.id; END;",
    "ALTER TABLE sandboxes ADD COLUMN memory_error TEXT NOT NULL DEFAULT '';",
    "ALTER TABLE snapshots ADD COLUMN memory INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE snapshots ADD COLUMN memory_of TEXT NOT NULL DEFAULT '';",
    "ALTER TABLE sandboxes ADD COLUMN to_disk_ms INTEGER NOT NULL DEFAULT 0;",
    "ALTER TABLE sandboxes ADD COLUMN destroy_ms INTEGER NOT NULL DEFAULT 0;"
    "ALTER TABLE sandboxes ADD COLUMN parent TEXT NOT NULL DEFAULT '';",
    "CREATE TABLE ended (tenant TEXT NOT NULL, id TEXT NOT NULL, template_id TEXT NOT NULL,"
    "  reason TEXT NOT NULL, started_ms INTEGER NOT NULL, ended_ms INTEGER NOT NULL,"
    "  PRIMARY KEY (tenant, id)) STRICT, WITHOUT ROWID;"
    "CREATE INDEX ended_by_age ON ended (tenant, ended_ms, id);",
};

static int schema_version(struct store *st)
{
    sqlite3_stmt *s = NULL;
    int version = -1;

    if (sqlite3_prepare_v2(st->db, "PRAGMA user_version", -1, &s, NULL) == SQLITE_OK &&
        sqlite3_step(s) == SQLITE_ROW)
        version = sqlite3_column_int(s, 0);
    sqlite3_finalize(s);
    return version;
}

enum err_code store_migrate(struct store *st, size_t to, struct err *e)
{
    int version = schema_version(st);

    if (version < 0)
        return store_fail(st, "reading the schema's version", e);
    if ((size_t)version > ARRAY_SIZE(migrations)) {
        err_set(e, ERR_CONFLICT,
                "the state was written by a newer cay (schema %d; this one knows %zu)", version,
                ARRAY_SIZE(migrations));
        err_hint(e, "start the newer cay, or move the state directory away to start afresh");
        return ERR_CONFLICT;
    }
    for (size_t i = (size_t)version; i < MIN(to, ARRAY_SIZE(migrations)); i++) {
        CLEANUP_FREE char *sql = NULL;

        if (asprintf(&sql, "BEGIN IMMEDIATE; %s PRAGMA user_version = %zu; COMMIT", migrations[i],
                     i + 1) < 0)
            return err_set(e, ERR_EXHAUSTED, "memory is out");
        if (sqlite3_exec(st->db, sql, NULL, NULL, NULL) != SQLITE_OK)
            return store_fail(st, "bringing the schema up to date", e);
    }
    return ERR_OK;
}

const char *store_migration(size_t i)
{
    return i < ARRAY_SIZE(migrations) ? migrations[i] : NULL;
}
