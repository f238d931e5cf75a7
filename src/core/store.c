/* Opens the file, under a lock that no second cayd gets, has its schema brought to the newest
 * version (store_schema.c), and prepares every statement once: from then on nothing is compiled.
 * The rows of each kind of object are in store_*.c, which run them by store_statement.c. */

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
    [STORE_ENDED_PUT] = "INSERT OR REPLACE INTO ended VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
    [STORE_ENDED_FIND] = "SELECT id, template_id, reason, started_ms, ended_ms FROM ended"
                         " WHERE tenant=?1 AND id=?2 AND ended_ms>=?3",
    [STORE_ENDED_EACH] =
        "SELECT id, template_id, reason, started_ms, ended_ms FROM ended"
        " WHERE tenant=?1 AND ended_ms>=?2 ORDER BY ended_ms DESC, id DESC LIMIT ?3",
    /* All but the newest ?3 of the tenant's. */
    [STORE_ENDED_PURGE] =
        "DELETE FROM ended WHERE tenant=?1 AND (ended_ms<?2 OR (ended_ms, id)<=(SELECT ended_ms, id"
        " FROM ended WHERE tenant=?1 ORDER BY ended_ms DESC, id DESC LIMIT 1 OFFSET ?3))",
    [STORE_BEGIN] = "BEGIN IMMEDIATE",
    [STORE_COMMIT] = "COMMIT",
    [STORE_ROLLBACK] = "ROLLBACK",
};

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

static enum err_code prepare_all(struct store *st, struct err *e)
{
    for (size_t i = 0; i < STORE_STATEMENT_COUNT; i++)
        if (sqlite3_prepare_v3(st->db, statement_sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &st->statements[i], NULL) != SQLITE_OK)
            return store_fail(st, "preparing a statement", e);
    return ERR_OK;
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
        code = store_migrate(&st, version, e);
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
        (code = store_migrate(st, STORE_NEWEST, e)) != ERR_OK ||
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
