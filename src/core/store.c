/* Opens the file, under a lock that no second cayd gets, brings its schema to the newest
 * version step by step in one transaction each, and prepares every statement once: from then on
 * nothing is compiled. The rows of each kind of object are in store_*.c; all of them run statements
 * through store_run here, which gives errors their one form. The order of steps is the order of
 * releases: append, never change. */

#include "core/store_internal.h"

#include "base/io.h"
#include "base/log.h"
#include "core/store_checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define CHECKPOINT_PAGES 1000 /* 4 MiB of log */
#define INLINE_PAGES     8192 /* 32 MiB: the helper does not come to an end between the writes */
#define BUSY_MS          2000 /* recovery of the log by another connection, at start only */

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
};

static const char *const statement_sql[STORE_STATEMENT_COUNT] = {
    [STORE_SANDBOX_INSERT] =
        "INSERT INTO sandboxes VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,"
        "?14,?15,?16,?17,?18,?19,?20,?21,?22,?23,?24,?25,?26,?27,?28,?29,?30,?31,?32,"
        "?33,?34,?35,?36,?37,?38,?39,?40)",
    [STORE_SANDBOX_UPDATE] = "UPDATE sandboxes SET state=?2, slot=?3, gen=?4, started_ms=?5, "
                             "end_ms=?6, flags=?7, idle_ms=?8, pause_reason=?9, agent_key=?10, "
                             "kept=?11, env=?12, on_timeout=?13, "
                             "file_url_number=?14, kept_ms=?15, auto_archive_ms=?16, "
                             "auto_delete_ms=?17, memory_error=?18, "
                             "destroy_ms=?19 WHERE id=?1",
    [STORE_SANDBOX_NETWORK] =
        "UPDATE sandboxes SET network=?2, flags=?3, policy=?4, credentials=?5, masked_host=?6,"
        " proxy_address=?7, proxy_user=?8 WHERE id=?1",
    [STORE_SANDBOX_METADATA] = "UPDATE sandboxes SET metadata=?2 WHERE id=?1",
    [STORE_SANDBOX_LIMITS] =
        "UPDATE sandboxes SET memory_bytes=?2, disk_bytes=?3, cpu_milli=?4 WHERE id=?1",
    [STORE_SANDBOX_DELETE] = "DELETE FROM sandboxes WHERE id=?1",
    [STORE_SANDBOX_EACH] =
        "SELECT id, tenant, template_id, template_asked, state, on_timeout, flags,"
        " started_ms, end_ms, slot, gen, agent_key, memory_bytes, disk_bytes,"
        " cpu_milli, pids, open_files, metadata, network, policy, credentials, name, idle_ms,"
        " last_end_ms, level, pause_reason, masked_host, proxy_address, proxy_user, kept, env,"
        " volumes, file_url_number, kept_ms, auto_archive_ms, auto_delete_ms, memory_error,"
        " to_disk_ms, destroy_ms, parent FROM sandboxes",
    [STORE_TENANT_INSERT] = "INSERT OR IGNORE INTO tenants (id, made_ms) VALUES (?1, ?2)",
    [STORE_TENANT_FIND] = "SELECT ceiling FROM tenants WHERE id=?1",
    [STORE_TENANT_CEILING] = "UPDATE tenants SET ceiling=?2 WHERE id=?1",
    [STORE_TENANT_EACH] =
        "SELECT id, made_ms, ceiling, (SELECT count(*) FROM api_keys WHERE tenant=id)"
        " FROM tenants ORDER BY id",
    [STORE_KEY_INSERT] = "INSERT INTO api_keys VALUES (?1, ?2, ?3, ?4, ?5)",
    [STORE_KEY_FIND] = "SELECT tenant, role FROM api_keys WHERE hash=?1",
    [STORE_KEY_COUNT] = "SELECT count(*) FROM api_keys WHERE tenant=?1",
    [STORE_KEY_EACH] =
        "SELECT hash, tenant, label, made_ms, role FROM api_keys WHERE ?1 IS NULL OR tenant=?1 "
        "ORDER BY made_ms, hash",
    [STORE_KEY_DELETE] = "DELETE FROM api_keys WHERE substr(hash, 1, length(?1))=?1 "
                         "AND (?2 IS NULL OR (tenant=?2 AND role<>1))",
    [STORE_CREDENTIAL_PUT] =
        "INSERT INTO credentials (tenant, name, bind, sealed, made_ms, first_ms, metadata)"
        " VALUES (?1, ?2, ?3, ?4, ?5, ?5, ?6) ON CONFLICT (tenant, name) DO UPDATE SET"
        " bind=?3, sealed=?4, made_ms=?5, version=version+1, metadata=coalesce(?6, metadata)",
    [STORE_CREDENTIAL_RENEW] =
        "UPDATE credentials SET sealed=?4 WHERE tenant=?1 AND name=?2 AND sealed=?3",
    [STORE_CREDENTIAL_DESCRIBE] = "UPDATE credentials SET metadata=?3 WHERE tenant=?1 AND name=?2",
    [STORE_CREDENTIAL_GET] = "SELECT bind, sealed FROM credentials WHERE tenant=?1 AND name=?2",
    [STORE_CREDENTIAL_COUNT] =
        "SELECT count(*), ifnull(sum(octets), 0) + ifnull(length(CAST(?3 AS BLOB)), 0)"
        " + ifnull(length(CAST(?4 AS BLOB)), 0) FROM (SELECT length(CAST(bind AS BLOB))"
        " + ifnull(length(CAST(metadata AS BLOB)), 0) AS octets FROM credentials"
        " WHERE tenant=?1 AND name<>?2)",
    [STORE_CREDENTIAL_EACH] =
        "SELECT name, bind, made_ms, first_ms, version, metadata FROM credentials"
        " WHERE tenant=?1 AND (?2 IS NULL OR name=?2) ORDER BY name",
    [STORE_CREDENTIAL_DELETE] = "DELETE FROM credentials WHERE tenant=?1 AND name=?2",
    [STORE_TEMPLATE_PUT] = "INSERT OR REPLACE INTO template_limits VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [STORE_TEMPLATE_EACH] =
        "SELECT id, memory_bytes, disk_bytes, cpu_milli, pids, filters FROM template_limits",
    [STORE_IMAGE_PUT] = "INSERT OR REPLACE INTO images VALUES (?1, ?2, ?3, ?4, ?5)",
    [STORE_IMAGE_DELETE] = "DELETE FROM images WHERE name=?1",
    [STORE_IMAGE_EACH] = "SELECT name, number, source, digest, tenant FROM images",
    [STORE_PUBLISHED_PUT] = "INSERT OR REPLACE INTO published VALUES (?1)",
    [STORE_PUBLISHED_DELETE] = "DELETE FROM published WHERE name=?1",
    [STORE_PUBLISHED_EACH] = "SELECT name FROM published ORDER BY name",
    [STORE_CREATE_KEY_FIND] = "SELECT request_hash, sandbox, done FROM create_keys"
                              " WHERE tenant=?1 AND key=?2 AND made_ms>=?3",
    [STORE_CREATE_KEY_PURGE] =
        "DELETE FROM create_keys WHERE tenant=?1 AND done=1 AND (made_ms<?2 OR key IN"
        " (SELECT key FROM create_keys WHERE tenant=?1 ORDER BY made_ms DESC LIMIT -1 OFFSET ?3))",
    [STORE_CREATE_KEY_INSERT] = "INSERT INTO create_keys VALUES (?1, ?2, ?3, ?4, ?5, 0)",
    [STORE_CREATE_KEY_DONE] = "UPDATE create_keys SET done=1 WHERE sandbox=?1",
    [STORE_QUOTA_PUT] = "INSERT OR REPLACE INTO tenant_quotas VALUES (?1, ?2, ?3)",
    [STORE_QUOTA_DELETE] = "DELETE FROM tenant_quotas WHERE tenant=?1 AND name=?2",
    [STORE_QUOTA_EACH] = "SELECT name, most FROM tenant_quotas WHERE tenant=?1",
    [STORE_USAGE_ADD] =
        "INSERT INTO tenant_usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)"
        " ON CONFLICT (tenant, hour_ms) DO UPDATE SET created=created+?3, commands=commands+?4,"
        " sandbox_ms=sandbox_ms+?5, paused_ms=paused_ms+?6, cpu_milli_ms=cpu_milli_ms+?7,"
        " memory_mib_ms=memory_mib_ms+?8, disk_mib_ms=disk_mib_ms+?9,"
        " peak_sandboxes=max(peak_sandboxes, ?10), builds=builds+?11,"
        " template_mib_ms=template_mib_ms+?12",
    [STORE_USAGE_EACH] =
        "SELECT hour_ms, created, commands, sandbox_ms, paused_ms, cpu_milli_ms, memory_mib_ms,"
        " disk_mib_ms, peak_sandboxes, builds, template_mib_ms FROM tenant_usage"
        " WHERE tenant=?1 AND hour_ms>=?2 AND hour_ms<?3 ORDER BY hour_ms",
    [STORE_USAGE_PURGE] = "DELETE FROM tenant_usage WHERE hour_ms<?1",
    [STORE_SNAPSHOT_INSERT] =
        "INSERT INTO snapshots VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,?14,?15,0,'')",
    [STORE_SNAPSHOT_UPDATE] = "UPDATE snapshots SET state=?2, name=?3 WHERE id=?1",
    [STORE_SNAPSHOT_MEMORY] = "UPDATE snapshots SET memory=?2, memory_of=?3 WHERE id=?1",
    [STORE_SNAPSHOT_DELETE] = "DELETE FROM snapshots WHERE id=?1",
    [STORE_SNAPSHOT_EACH] =
        "SELECT id, tenant, name, sandbox, template_id, state, of_fork, number, level,"
        " memory_bytes, disk_bytes, cpu_milli, pids, open_files, made_ms, memory, memory_of"
        " FROM snapshots",
    [STORE_WEBHOOK_INSERT] = "INSERT INTO webhooks VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [STORE_WEBHOOK_DELETE] = "DELETE FROM webhooks WHERE id=?1",
    [STORE_WEBHOOK_EACH] =
        "SELECT id, tenant, url, types, sealed, made_ms,"
        " (SELECT count(*) FROM deliveries WHERE webhook=webhooks.id AND dead=0),"
        " (SELECT count(*) FROM deliveries WHERE webhook=webhooks.id AND dead=1)"
        " FROM webhooks ORDER BY made_ms, id",
    [STORE_DELIVERY_INSERT] =
        "INSERT INTO deliveries (webhook, message, type, body, attempts, due_ms, dead, why,"
        " made_ms) VALUES (?1, ?2, ?3, ?4, 0, ?5, 0, '', ?5)",
    [STORE_DELIVERY_DELETE] = "DELETE FROM deliveries WHERE id=?1",
    [STORE_DELIVERY_DELETE_ALL] = "DELETE FROM deliveries WHERE webhook=?1",
    [STORE_DELIVERY_NEXT] =
        "SELECT id, message, type, body, attempts, due_ms, dead, why, made_ms FROM deliveries"
        " WHERE webhook=?1 AND dead=0 ORDER BY due_ms, id LIMIT 1",
    [STORE_DELIVERY_AGAIN] =
        "UPDATE deliveries SET attempts=?2, due_ms=?3, dead=?4, why=?5 WHERE id=?1",
    [STORE_DELIVERY_PRUNE] =
        "DELETE FROM deliveries WHERE id IN (SELECT id FROM deliveries WHERE webhook=?1 AND dead=1"
        " ORDER BY due_ms DESC, id DESC LIMIT -1 OFFSET ?2)",
    [STORE_DELIVERY_REVIVE] =
        "UPDATE deliveries SET attempts=0, due_ms=?2, dead=0 WHERE webhook=?1 AND dead=1",
    [STORE_DELIVERY_EACH] =
        "SELECT id, message, type, body, attempts, due_ms, dead, why, made_ms FROM deliveries"
        " WHERE webhook=?1 ORDER BY id",
    [STORE_VOLUME_INSERT] = "INSERT INTO volumes VALUES (?1,?2,?3,?4,?5,?6,?7)",
    [STORE_VOLUME_UPDATE] = "UPDATE volumes SET state=?2 WHERE id=?1",
    [STORE_VOLUME_DELETE] = "DELETE FROM volumes WHERE id=?1",
    [STORE_VOLUME_EACH] = "SELECT id, tenant, name, state, number, bytes, made_ms FROM volumes",
    [STORE_BUILD_PUT] =
        "INSERT OR REPLACE INTO builds VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13)",
    [STORE_BUILD_DELETE] = "DELETE FROM builds WHERE id=?1",
    [STORE_BUILD_EACH] =
        "SELECT id, tenant, template, name, tags, state, snapshot, step, reason, memory_bytes,"
        " cpu_milli, made_ms, ended_ms FROM builds",
    [STORE_SIGNED_END_PUT] = "INSERT OR IGNORE INTO signed_ends VALUES (?1, ?2, ?3)",
    [STORE_SIGNED_END_FIND] = "SELECT count(*) FROM signed_ends WHERE sandbox=?1 AND signature=?2",
    [STORE_SIGNED_END_COUNT] = "SELECT count(*) FROM signed_ends WHERE sandbox=?1",
    [STORE_SIGNED_END_PURGE] = "DELETE FROM signed_ends WHERE sandbox=?1 AND until_s<?2",
    [STORE_BEGIN] = "BEGIN IMMEDIATE",
    [STORE_COMMIT] = "COMMIT",
    [STORE_ROLLBACK] = "ROLLBACK",
};

/* -- helpers ----------------------------------------------------------------------------------- */

static enum err_code code_of(int rc, int errnum)
{
    switch (rc) {
    case SQLITE_FULL: return ERR_NO_SPACE;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return ERR_UNAVAILABLE;
    case SQLITE_NOMEM: return ERR_EXHAUSTED;
    default: return errnum ? err_code_from_errno(errnum) : ERR_INTERNAL;
    }
}

enum err_code store_fail(struct store *st, const char *what, struct err *e)
{
    int rc = sqlite3_errcode(st->db);
    int errnum = rc == SQLITE_IOERR || rc == SQLITE_CANTOPEN ? sqlite3_system_errno(st->db) : 0;
    enum err_code code = code_of(rc, errnum);

    err_set(e, code, "store: %s: %s%s%s", what, sqlite3_errmsg(st->db), errnum ? ": " : "",
            errnum ? strerror(errnum) : "");
    if (code == ERR_NO_SPACE)
        err_hint(e, "free some space (or inodes) where the state directory is");
    if (rc == SQLITE_BUSY || rc == SQLITE_LOCKED)
        err_hint(e, "another program writes to cay.db, which is cayd's alone: end that program");
    if (rc == SQLITE_NOTADB || rc == SQLITE_CORRUPT)
        err_hint(e, STORE_DAMAGED);
    return code;
}

enum err_code store_run(struct store *st, enum store_statement which, const char *what,
                        struct err *e)
{
    sqlite3_stmt *s = st->statements[which];
    enum err_code code = ERR_OK;

    if (sqlite3_step(s) != SQLITE_DONE)
        code = store_fail(st, what, e);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return code;
}

void store_set_durable(struct store *st, bool durable)
{
    if (sqlite3_exec(st->db, durable ? "PRAGMA synchronous = FULL" : "PRAGMA synchronous = NORMAL",
                     NULL, NULL, NULL) != SQLITE_OK)
        log_error("store: %s", sqlite3_errmsg(st->db));
}

void store_bind_text(sqlite3_stmt *s, int at, const char *text)
{
    sqlite3_bind_text(s, at, text, -1, SQLITE_STATIC);
}

void store_bind_json(sqlite3_stmt *s, int at, const json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;

    if (text)
        sqlite3_bind_text(s, at, text, -1, free);
    else
        sqlite3_bind_null(s, at);
}

json_t *store_column_json(sqlite3_stmt *s, int at)
{
    const char *text = (const char *)sqlite3_column_text(s, at);

    return text ? json_loads(text, 0, NULL) : NULL;
}

void store_column_copy(sqlite3_stmt *s, int at, char *out, size_t size)
{
    const char *text = (const char *)sqlite3_column_text(s, at);

    snprintf(out, size, "%s", text ? text : "");
}

/* -- opening ----------------------------------------------------------------------------------- */

static int on_commit(void *arg, sqlite3 *db, const char *name, int pages)
{
    struct store *st = arg;

    if (pages >= INLINE_PAGES) {
        if (st->checkpoint) /* only one works at a time: without this the log would grow on */
            store_checkpoint_wait(st->checkpoint);
        sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    } else if (pages >= CHECKPOINT_PAGES && st->checkpoint)
        store_checkpoint_request(st->checkpoint);
    return SQLITE_OK;
}

/* Two cayd on one file would each think that the other's sandboxes are strays. A record lock, not
 * flock: it is the process's, and ends with it. */
static enum err_code lock_dir(struct store *st, const char *dir, struct err *e)
{
    struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    CLEANUP_FREE char *path = NULL;

    if (asprintf(&path, "%s/cay.lock", dir) < 0)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    st->lock_fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (st->lock_fd < 0)
        return err_set_sys(e, err_code_from_errno(errno), errno, "opening %s", path);
    if (fcntl(st->lock_fd, F_SETLK, &lock) < 0) {
        err_set(e, ERR_CONFLICT, "another cayd uses the state in %s", dir);
        err_hint(e, "stop it first, or give this one a state directory of its own");
        return ERR_CONFLICT;
    }
    return ERR_OK;
}

static enum err_code open_db(struct store *st, const char *path, struct err *e)
{
    mode_t before = umask(0077);
    int rc = sqlite3_open_v2(
        path, &st->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);

    umask(before);
    if (rc != SQLITE_OK)
        return err_set(e, ERR_INTERNAL, "store: opening %s: %s", path,
                       st->db ? sqlite3_errmsg(st->db) : "memory is out");
    sqlite3_busy_timeout(st->db, BUSY_MS);
    if (sqlite3_exec(st->db,
                     "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                     "PRAGMA wal_autocheckpoint = 0; PRAGMA foreign_keys = ON;"
                     "PRAGMA secure_delete = ON", /* an environment leaves no copy in free pages */
                     NULL, NULL, NULL) != SQLITE_OK)
        return store_fail(st, "switching on the log", e);
    return ERR_OK;
}

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

/* Up to that version. */
static enum err_code migrate(struct store *st, size_t to, struct err *e)
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
    for (size_t i = (size_t)version; i < to; i++) {
        CLEANUP_FREE char *sql = NULL;

        if (asprintf(&sql, "BEGIN IMMEDIATE; %s PRAGMA user_version = %zu; COMMIT", migrations[i],
                     i + 1) < 0)
            return err_set(e, ERR_EXHAUSTED, "memory is out");
        if (sqlite3_exec(st->db, sql, NULL, NULL, NULL) != SQLITE_OK)
            return store_fail(st, "bringing the schema up to date", e);
    }
    return ERR_OK;
}

static enum err_code prepare_all(struct store *st, struct err *e)
{
    for (size_t i = 0; i < STORE_STATEMENT_COUNT; i++)
        if (sqlite3_prepare_v3(st->db, statement_sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &st->statements[i], NULL) != SQLITE_OK)
            return store_fail(st, "preparing a statement", e);
    return ERR_OK;
}

const char *store_migration(size_t i)
{
    return i < ARRAY_SIZE(migrations) ? migrations[i] : NULL;
}

enum err_code store_make_old(const char *dir, size_t version, struct err *e)
{
    struct store st = {.lock_fd = -1};
    CLEANUP_FREE char *path = NULL;
    enum err_code code;

    if (asprintf(&path, "%s/cay.db", dir) < 0)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    code = open_db(&st, path, e);
    if (code == ERR_OK)
        code = migrate(&st, version, e);
    sqlite3_close(st.db);
    return code;
}

static enum err_code open_all(struct store *st, const char *dir, struct err *e)
{
    CLEANUP_FREE char *path = NULL;
    enum err_code code;
    int rc;

    if (asprintf(&path, "%s/cay.db", dir) < 0)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if ((code = lock_dir(st, dir, e)) != ERR_OK || (code = store_check_cut(dir, e)) != ERR_OK ||
        (code = open_db(st, path, e)) != ERR_OK ||
        (code = migrate(st, ARRAY_SIZE(migrations), e)) != ERR_OK ||
        (code = prepare_all(st, e)) != ERR_OK)
        return code;
    rc = store_checkpoint_start(path, &st->checkpoint);
    if (rc < 0)
        return err_set_sys(e, ERR_INTERNAL, rc, "starting the checkpoint thread");
    sqlite3_wal_hook(st->db, on_commit, st);
    return ERR_OK;
}

enum err_code store_open(const char *dir, struct store **out, struct err *e)
{
    struct store *st = calloc(1, sizeof(*st));
    enum err_code code;

    if (!st)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    st->lock_fd = -1;
    code = open_all(st, dir, e);
    if (code != ERR_OK) {
        store_close(st);
        return code;
    }
    *out = st;
    return ERR_OK;
}

void store_close(struct store *st)
{
    if (!st)
        return;
    store_checkpoint_stop(st->checkpoint);
    for (size_t i = 0; i < STORE_STATEMENT_COUNT; i++)
        sqlite3_finalize(st->statements[i]);
    sqlite3_close(st->db);
    util_close(&st->lock_fd);
    free(st);
}
