#include "core/store.h"

#include "base/io.h"
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
 * was released: append one. */
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
};

enum statement {
    SANDBOX_INSERT,
    SANDBOX_UPDATE,
    SANDBOX_NETWORK,
    SANDBOX_DELETE,
    SANDBOX_EACH,
    TENANT_INSERT,
    KEY_INSERT,
    KEY_FIND,
    KEY_COUNT,
    KEY_EACH,
    KEY_DELETE,
    CREDENTIAL_PUT,
    CREDENTIAL_GET,
    CREDENTIAL_COUNT,
    CREDENTIAL_EACH,
    CREDENTIAL_DELETE,
    BEGIN,
    COMMIT,
    ROLLBACK,
    STATEMENT_COUNT
};

static const char *const statement_sql[STATEMENT_COUNT] = {
    [SANDBOX_INSERT] = "INSERT INTO sandboxes VALUES (?1,?2,?3,?4,?5,?6,?7,?8,?9,?10,?11,?12,?13,"
                       "?14,?15,?16,?17,?18,?19,?20,?21)",
    [SANDBOX_UPDATE] = "UPDATE sandboxes SET state=?2, slot=?3, gen=?4, started_ms=?5, end_ms=?6 "
                       "WHERE id=?1",
    [SANDBOX_NETWORK] = "UPDATE sandboxes SET network=?2, flags=?3, policy=?4, credentials=?5 "
                        "WHERE id=?1",
    [SANDBOX_DELETE] = "DELETE FROM sandboxes WHERE id=?1",
    [SANDBOX_EACH] =
        "SELECT id, tenant, template_id, template_asked, state, on_timeout, flags,"
        " started_ms, end_ms, slot, gen, agent_key, memory_bytes, disk_bytes,"
        " cpu_milli, pids, open_files, metadata, network, policy, credentials FROM sandboxes",
    [TENANT_INSERT] = "INSERT OR IGNORE INTO tenants VALUES (?1, ?2)",
    [KEY_INSERT] = "INSERT INTO api_keys VALUES (?1, ?2, ?3, ?4)",
    [KEY_FIND] = "SELECT tenant FROM api_keys WHERE hash=?1",
    [KEY_COUNT] = "SELECT count(*) FROM api_keys WHERE tenant=?1",
    [KEY_EACH] = "SELECT hash, tenant, label, made_ms FROM api_keys WHERE ?1 IS NULL OR tenant=?1 "
                 "ORDER BY made_ms, hash",
    [KEY_DELETE] = "DELETE FROM api_keys WHERE substr(hash, 1, length(?1))=?1 "
                   "AND (?2 IS NULL OR tenant=?2)",
    [CREDENTIAL_PUT] = "INSERT OR REPLACE INTO credentials VALUES (?1, ?2, ?3, ?4, ?5)",
    [CREDENTIAL_GET] = "SELECT bind, sealed FROM credentials WHERE tenant=?1 AND name=?2",
    [CREDENTIAL_COUNT] = "SELECT count(*) FROM credentials WHERE tenant=?1 AND name<>?2",
    [CREDENTIAL_EACH] = "SELECT name, bind, made_ms FROM credentials WHERE tenant=?1 ORDER BY name",
    [CREDENTIAL_DELETE] = "DELETE FROM credentials WHERE tenant=?1 AND name=?2",
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [ROLLBACK] = "ROLLBACK",
};

enum sandbox_flag {
    FLAG_SECURE = 1,
    FLAG_AUTO_RESUME = 2,
    FLAG_KEEP_MEMORY = 4,
    FLAG_ALLOW_INTERNET = 8
};

struct store {
    sqlite3 *db;
    sqlite3_stmt *statements[STATEMENT_COUNT];
    struct store_checkpoint *checkpoint;
    int lock_fd;
};

/* -- helpers ----------------------------------------------------------------------------------- */

static enum err_code code_of(int rc, int errnum)
{
    switch (rc) {
    case SQLITE_FULL: return ERR_NO_SPACE;
    case SQLITE_BUSY:
    case SQLITE_LOCKED: return ERR_CONFLICT;
    case SQLITE_NOMEM: return ERR_EXHAUSTED;
    default: return errnum ? err_code_from_errno(errnum) : ERR_INTERNAL;
    }
}

static enum err_code fail(struct store *st, const char *what, struct err *e)
{
    int rc = sqlite3_errcode(st->db);
    int errnum = rc == SQLITE_IOERR || rc == SQLITE_CANTOPEN ? sqlite3_system_errno(st->db) : 0;
    enum err_code code = code_of(rc, errnum);

    err_set(e, code, "store: %s: %s%s%s", what, sqlite3_errmsg(st->db), errnum ? ": " : "",
            errnum ? strerror(errnum) : "");
    if (code == ERR_NO_SPACE)
        err_hint(e, "free some space (or inodes) where the state directory is");
    if (rc == SQLITE_NOTADB || rc == SQLITE_CORRUPT)
        err_hint(e, "cay.db is damaged: bring a copy of it back, or move it away to start afresh "
                    "without its keys and sandboxes");
    return code;
}

/* Runs a statement that gives no row, and makes it ready for its next use. */
static enum err_code run(struct store *st, enum statement which, const char *what, struct err *e)
{
    sqlite3_stmt *s = st->statements[which];
    enum err_code code = ERR_OK;

    if (sqlite3_step(s) != SQLITE_DONE)
        code = fail(st, what, e);
    sqlite3_reset(s);
    sqlite3_clear_bindings(s);
    return code;
}

static void bind_text(sqlite3_stmt *s, int at, const char *text)
{
    sqlite3_bind_text(s, at, text, -1, SQLITE_STATIC);
}

/* json may be NULL. The text is SQLite's to free. */
static void bind_json(sqlite3_stmt *s, int at, const json_t *json)
{
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;

    if (text)
        sqlite3_bind_text(s, at, text, -1, free);
    else
        sqlite3_bind_null(s, at);
}

static json_t *column_json(sqlite3_stmt *s, int at)
{
    const char *text = (const char *)sqlite3_column_text(s, at);

    return text ? json_loads(text, 0, NULL) : NULL;
}

static void column_copy(sqlite3_stmt *s, int at, char *out, size_t size)
{
    const char *text = (const char *)sqlite3_column_text(s, at);

    snprintf(out, size, "%s", text ? text : "");
}

/* -- opening ----------------------------------------------------------------------------------- */

static int on_commit(void *arg, sqlite3 *db, const char *name, int pages)
{
    struct store *st = arg;

    if (pages >= INLINE_PAGES)
        sqlite3_wal_checkpoint_v2(db, name, SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    else if (pages >= CHECKPOINT_PAGES && st->checkpoint)
        store_checkpoint_ask(st->checkpoint);
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
                     "PRAGMA wal_autocheckpoint = 0; PRAGMA foreign_keys = ON",
                     NULL, NULL, NULL) != SQLITE_OK)
        return fail(st, "switching on the log", e);
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

static enum err_code migrate(struct store *st, struct err *e)
{
    int version = schema_version(st);

    if (version < 0)
        return fail(st, "reading the schema's version", e);
    if ((size_t)version > ARRAY_SIZE(migrations)) {
        err_set(e, ERR_CONFLICT,
                "the state was written by a newer cay (schema %d; this one knows %zu)", version,
                ARRAY_SIZE(migrations));
        err_hint(e, "start the newer cay, or move the state directory away to start afresh");
        return ERR_CONFLICT;
    }
    for (size_t i = (size_t)version; i < ARRAY_SIZE(migrations); i++) {
        CLEANUP_FREE char *sql = NULL;

        if (asprintf(&sql, "BEGIN IMMEDIATE; %s PRAGMA user_version = %zu; COMMIT", migrations[i],
                     i + 1) < 0)
            return err_set(e, ERR_EXHAUSTED, "memory is out");
        if (sqlite3_exec(st->db, sql, NULL, NULL, NULL) != SQLITE_OK)
            return fail(st, "bringing the schema up to date", e);
    }
    return ERR_OK;
}

static enum err_code prepare_all(struct store *st, struct err *e)
{
    for (size_t i = 0; i < STATEMENT_COUNT; i++)
        if (sqlite3_prepare_v3(st->db, statement_sql[i], -1, SQLITE_PREPARE_PERSISTENT,
                               &st->statements[i], NULL) != SQLITE_OK)
            return fail(st, "preparing a statement", e);
    return ERR_OK;
}

static enum err_code open_all(struct store *st, const char *dir, struct err *e)
{
    CLEANUP_FREE char *path = NULL;
    enum err_code code;
    int rc;

    if (asprintf(&path, "%s/cay.db", dir) < 0)
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    if ((code = lock_dir(st, dir, e)) != ERR_OK || (code = open_db(st, path, e)) != ERR_OK ||
        (code = migrate(st, e)) != ERR_OK || (code = prepare_all(st, e)) != ERR_OK)
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
    for (size_t i = 0; i < STATEMENT_COUNT; i++)
        sqlite3_finalize(st->statements[i]);
    sqlite3_close(st->db);
    util_close(&st->lock_fd);
    free(st);
}

/* -- sandboxes --------------------------------------------------------------------------------- */

static int flags_of(const struct sandbox *s)
{
    return (s->secure ? FLAG_SECURE : 0) | (s->auto_resume ? FLAG_AUTO_RESUME : 0) |
           (s->keep_memory ? FLAG_KEEP_MEMORY : 0) | (s->allow_internet ? FLAG_ALLOW_INTERNET : 0);
}

enum err_code store_sandbox_insert(struct store *st, const struct sandbox *s, struct err *e)
{
    sqlite3_stmt *q = st->statements[SANDBOX_INSERT];

    bind_text(q, 1, s->id);
    bind_text(q, 2, s->tenant);
    bind_text(q, 3, s->template_id);
    bind_text(q, 4, s->template_asked);
    sqlite3_bind_int(q, 5, (int)s->state);
    sqlite3_bind_int(q, 6, (int)s->on_timeout);
    sqlite3_bind_int(q, 7, flags_of(s));
    sqlite3_bind_int64(q, 8, s->started_real_ms);
    sqlite3_bind_int64(q, 9, s->end_real_ms);
    sqlite3_bind_int64(q, 10, s->slot);
    sqlite3_bind_int64(q, 11, s->gen);
    sqlite3_bind_blob(q, 12, s->agent_key, sizeof(s->agent_key), SQLITE_STATIC);
    sqlite3_bind_int64(q, 13, (int64_t)s->limits.memory_bytes);
    sqlite3_bind_int64(q, 14, (int64_t)s->limits.disk_bytes);
    sqlite3_bind_int64(q, 15, s->limits.cpu_milli);
    sqlite3_bind_int64(q, 16, s->limits.pids);
    sqlite3_bind_int64(q, 17, s->limits.open_files);
    bind_json(q, 18, s->metadata);
    bind_json(q, 19, s->network);
    bind_json(q, 20, s->policy);
    bind_json(q, 21, s->credentials);
    return run(st, SANDBOX_INSERT, "writing a new sandbox", e);
}

enum err_code store_sandbox_update(struct store *st, const struct sandbox *s, struct err *e)
{
    sqlite3_stmt *q = st->statements[SANDBOX_UPDATE];

    bind_text(q, 1, s->id);
    sqlite3_bind_int(q, 2, (int)s->state);
    sqlite3_bind_int64(q, 3, s->slot);
    sqlite3_bind_int64(q, 4, s->gen);
    sqlite3_bind_int64(q, 5, s->started_real_ms);
    sqlite3_bind_int64(q, 6, s->end_real_ms);
    return run(st, SANDBOX_UPDATE, "writing a sandbox's state", e);
}

enum err_code store_sandbox_set_network(struct store *st, const struct sandbox *s, struct err *e)
{
    sqlite3_stmt *q = st->statements[SANDBOX_NETWORK];

    bind_text(q, 1, s->id);
    bind_json(q, 2, s->network);
    sqlite3_bind_int(q, 3, flags_of(s));
    bind_json(q, 4, s->policy);
    bind_json(q, 5, s->credentials);
    return run(st, SANDBOX_NETWORK, "writing a sandbox's network", e);
}

enum err_code store_sandbox_delete(struct store *st, const char *id, struct err *e)
{
    bind_text(st->statements[SANDBOX_DELETE], 1, id);
    return run(st, SANDBOX_DELETE, "removing a sandbox", e);
}

/* false: the row is damaged (a key of another size, a state that does not exist). */
static bool read_row(sqlite3_stmt *q, struct sandbox *s)
{
    int flags = sqlite3_column_int(q, 6), state = sqlite3_column_int(q, 4);

    column_copy(q, 0, s->id, sizeof(s->id));
    column_copy(q, 1, s->tenant, sizeof(s->tenant));
    column_copy(q, 2, s->template_id, sizeof(s->template_id));
    column_copy(q, 3, s->template_asked, sizeof(s->template_asked));
    s->state = (enum sandbox_state)state;
    s->on_timeout = sqlite3_column_int(q, 5) ? SANDBOX_ON_TIMEOUT_PAUSE : SANDBOX_ON_TIMEOUT_KILL;
    s->secure = flags & FLAG_SECURE;
    s->auto_resume = flags & FLAG_AUTO_RESUME;
    s->keep_memory = flags & FLAG_KEEP_MEMORY;
    s->allow_internet = flags & FLAG_ALLOW_INTERNET;
    s->started_real_ms = sqlite3_column_int64(q, 7);
    s->end_real_ms = sqlite3_column_int64(q, 8);
    s->slot = (uint32_t)sqlite3_column_int64(q, 9);
    s->gen = (uint32_t)sqlite3_column_int64(q, 10);
    s->limits.memory_bytes = (uint64_t)sqlite3_column_int64(q, 12);
    s->limits.disk_bytes = (uint64_t)sqlite3_column_int64(q, 13);
    s->limits.cpu_milli = (uint32_t)sqlite3_column_int64(q, 14);
    s->limits.pids = (uint32_t)sqlite3_column_int64(q, 15);
    s->limits.open_files = (uint32_t)sqlite3_column_int64(q, 16);
    if (sqlite3_column_bytes(q, 11) != sizeof(s->agent_key) || !ids_is_sandbox(s->id) ||
        state < SANDBOX_CREATING || state > SANDBOX_ENDED)
        return false;
    memcpy(s->agent_key, sqlite3_column_blob(q, 11), sizeof(s->agent_key));
    s->metadata = column_json(q, 17);
    s->network = column_json(q, 18);
    s->policy = column_json(q, 19);
    s->credentials = column_json(q, 20);
    return true;
}

enum err_code store_sandbox_each(struct store *st,
                                 enum err_code (*fn)(void *arg, const struct sandbox *s,
                                                     struct err *e),
                                 void *arg, struct err *e)
{
    sqlite3_stmt *q = st->statements[SANDBOX_EACH];
    enum err_code code = ERR_OK;
    int rc;

    while ((rc = sqlite3_step(q)) == SQLITE_ROW && code == ERR_OK) {
        struct sandbox s = {0};

        if (read_row(q, &s))
            code = fn(arg, &s, e);
        else
            code = err_set(e, ERR_INTERNAL, "store: the row of sandbox '%s' is damaged", s.id);
    }
    if (code == ERR_OK && rc != SQLITE_DONE)
        code = fail(st, "reading sandboxes", e);
    sqlite3_reset(q);
    return code;
}

/* -- tenants and keys -------------------------------------------------------------------------- */

static enum err_code check_key_count(struct store *st, const char *tenant, struct err *e)
{
    sqlite3_stmt *q = st->statements[KEY_COUNT];
    enum err_code code = ERR_OK;

    bind_text(q, 1, tenant);
    if (sqlite3_step(q) != SQLITE_ROW)
        code = fail(st, "counting keys", e);
    else if (sqlite3_column_int64(q, 0) >= CORE_KEYS_MAX)
        code = err_set(e, ERR_EXHAUSTED,
                       "tenant %s has %u API keys, which is the most there can be", tenant,
                       CORE_KEYS_MAX);
    if (code == ERR_EXHAUSTED)
        err_hint(e, "revoke some that are not used (`cay key ls`, `cay key revoke`)");
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

static enum err_code insert_tenant_and_key(struct store *st, const char *tenant, const char *label,
                                           const uint8_t *hash, int64_t made_ms, struct err *e)
{
    sqlite3_stmt *t = st->statements[TENANT_INSERT], *k = st->statements[KEY_INSERT];
    enum err_code code = check_key_count(st, tenant, e);

    if (code != ERR_OK)
        return code;
    bind_text(t, 1, tenant);
    sqlite3_bind_int64(t, 2, made_ms);
    code = run(st, TENANT_INSERT, "writing a tenant", e);
    if (code != ERR_OK)
        return code;
    sqlite3_bind_blob(k, 1, hash, STORE_HASH_SIZE, SQLITE_STATIC);
    bind_text(k, 2, tenant);
    bind_text(k, 3, label);
    sqlite3_bind_int64(k, 4, made_ms);
    return run(st, KEY_INSERT, "writing an API key", e);
}

enum err_code store_key_insert(struct store *st, const char *tenant, const char *label,
                               const uint8_t hash[static STORE_HASH_SIZE], int64_t made_ms,
                               struct err *e)
{
    enum err_code code = run(st, BEGIN, "beginning", e);

    if (code != ERR_OK)
        return code;
    code = insert_tenant_and_key(st, tenant, label, hash, made_ms, e);
    if (code == ERR_OK)
        code = run(st, COMMIT, "writing an API key", e);
    if (code != ERR_OK)
        run(st, ROLLBACK, "undoing", NULL);
    return code;
}

enum err_code store_key_find(struct store *st, const uint8_t hash[static STORE_HASH_SIZE],
                             char out[static CORE_TENANT_SIZE], struct err *e)
{
    sqlite3_stmt *q = st->statements[KEY_FIND];
    enum err_code code = ERR_OK;
    int rc;

    sqlite3_bind_blob(q, 1, hash, STORE_HASH_SIZE, SQLITE_STATIC);
    rc = sqlite3_step(q);
    if (rc == SQLITE_ROW)
        column_copy(q, 0, out, CORE_TENANT_SIZE);
    else if (rc == SQLITE_DONE)
        code = err_set(e, ERR_NOT_FOUND, "there is no such key");
    else
        code = fail(st, "looking a key up", e);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

enum err_code store_key_each(struct store *st, const char *tenant,
                             enum err_code (*fn)(void *arg, const struct core_key *k,
                                                 struct err *e),
                             void *arg, struct err *e)
{
    sqlite3_stmt *q = st->statements[KEY_EACH];
    enum err_code code = ERR_OK;
    int rc;

    bind_text(q, 1, tenant);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW && code == ERR_OK) {
        struct core_key k = {.made_real_ms = sqlite3_column_int64(q, 3)};

        if (sqlite3_column_bytes(q, 0) != STORE_HASH_SIZE) {
            code = err_set(e, ERR_INTERNAL, "store: a key's row is damaged");
            continue;
        }
        ids_hex(sqlite3_column_blob(q, 0), CORE_KEY_ID_BYTES, k.id);
        column_copy(q, 1, k.tenant, sizeof(k.tenant));
        column_copy(q, 2, k.label, sizeof(k.label));
        code = fn(arg, &k, e);
    }
    if (code == ERR_OK && rc != SQLITE_DONE)
        code = fail(st, "reading keys", e);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

enum err_code store_key_delete(struct store *st, const char *tenant,
                               const uint8_t prefix[static CORE_KEY_ID_BYTES], struct err *e)
{
    sqlite3_stmt *q = st->statements[KEY_DELETE];
    enum err_code code;

    sqlite3_bind_blob(q, 1, prefix, CORE_KEY_ID_BYTES, SQLITE_STATIC);
    bind_text(q, 2, tenant);
    code = run(st, KEY_DELETE, "removing an API key", e);
    if (code == ERR_OK && sqlite3_changes(st->db) == 0)
        code = err_set(e, ERR_NOT_FOUND, "there is no such key");
    return code;
}

/* -- credentials ------------------------------------------------------------------------------- */

static enum err_code check_credential_count(struct store *st, const char *tenant, const char *name,
                                            struct err *e)
{
    sqlite3_stmt *q = st->statements[CREDENTIAL_COUNT];
    enum err_code code = ERR_OK;

    bind_text(q, 1, tenant);
    bind_text(q, 2, name);
    if (sqlite3_step(q) != SQLITE_ROW)
        code = fail(st, "counting credentials", e);
    else if (sqlite3_column_int64(q, 0) >= CREDENTIALS_OF_A_TENANT)
        code = err_set(e, ERR_EXHAUSTED,
                       "tenant %s has %u credentials, which is the most there can be", tenant,
                       CREDENTIALS_OF_A_TENANT);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

enum err_code store_credential_put(struct store *st, const char *tenant, const char *name,
                                   const json_t *bind, const char *sealed, int64_t made_ms,
                                   struct err *e)
{
    sqlite3_stmt *q = st->statements[CREDENTIAL_PUT];
    enum err_code code = check_credential_count(st, tenant, name, e);

    if (code != ERR_OK)
        return code;
    bind_text(q, 1, tenant);
    bind_text(q, 2, name);
    bind_json(q, 3, bind);
    sqlite3_bind_blob(q, 4, sealed, (int)strlen(sealed), SQLITE_STATIC);
    sqlite3_bind_int64(q, 5, made_ms);
    return run(st, CREDENTIAL_PUT, "writing a credential", e);
}

enum err_code store_credential_get(struct store *st, const char *tenant, const char *name,
                                   json_t **out, struct err *e)
{
    sqlite3_stmt *q = st->statements[CREDENTIAL_GET];
    enum err_code code = ERR_OK;
    int rc;

    bind_text(q, 1, tenant);
    bind_text(q, 2, name);
    rc = sqlite3_step(q);
    if (rc == SQLITE_DONE)
        code = err_set(e, ERR_NOT_FOUND, "there is no such credential");
    else if (rc != SQLITE_ROW)
        code = fail(st, "looking a credential up", e);
    else if (out)
        *out = json_pack("{s:s, s:o, s:s%}", "name", name, "bind", column_json(q, 0), "sealed",
                         sqlite3_column_blob(q, 1), (size_t)sqlite3_column_bytes(q, 1));
    if (code == ERR_OK && out && !*out)
        code = err_set(e, ERR_INTERNAL, "store: a credential's row is damaged");
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

enum err_code store_credential_each(struct store *st, const char *tenant,
                                    enum err_code (*fn)(void *arg, const struct core_credential *k,
                                                        struct err *e),
                                    void *arg, struct err *e)
{
    sqlite3_stmt *q = st->statements[CREDENTIAL_EACH];
    enum err_code code = ERR_OK;
    int rc;

    bind_text(q, 1, tenant);
    while ((rc = sqlite3_step(q)) == SQLITE_ROW && code == ERR_OK) {
        struct core_credential k = {.bind = column_json(q, 1),
                                    .made_real_ms = sqlite3_column_int64(q, 2)};

        column_copy(q, 0, k.name, sizeof(k.name));
        code = fn(arg, &k, e);
        json_decref(k.bind);
    }
    if (code == ERR_OK && rc != SQLITE_DONE)
        code = fail(st, "reading credentials", e);
    sqlite3_reset(q);
    sqlite3_clear_bindings(q);
    return code;
}

enum err_code store_credential_delete(struct store *st, const char *tenant, const char *name,
                                      struct err *e)
{
    sqlite3_stmt *q = st->statements[CREDENTIAL_DELETE];
    enum err_code code;

    bind_text(q, 1, tenant);
    bind_text(q, 2, name);
    code = run(st, CREDENTIAL_DELETE, "removing a credential", e);
    if (code == ERR_OK && sqlite3_changes(st->db) == 0)
        code = err_set(e, ERR_NOT_FOUND, "there is no such credential");
    return code;
}
