/* The rows of sandboxes, one for each that has not ended. lifecycle.c and what changes a sandbox
 * write here before a step and after it; core.c reads all rows once, at the start. An update has
 * the columns that change with its state; metadata and network have statements of their own, and
 * the rest is written by the insert alone. A row is checked as it is read: one with a state,
 * level or key that this version does not know makes the start fail, since a sandbox must not be
 * taken over on a guess. */

#include "core/store_sandbox.h"

#include "core/life.h"
#include "core/store_internal.h"

#include <string.h>

enum sandbox_flag {
    FLAG_SECURE = 1,
    FLAG_AUTO_RESUME = 2,
    FLAG_KEEP_MEMORY = 4,
    FLAG_ALLOW_INTERNET = 8,
    FLAG_HAS_TENANT_CA = 16,
    FLAG_FILTERS = 32,
    FLAG_PRIVATE_PORTS = 64,
    FLAG_IDLE_PROCESSES = 128,
    FLAG_IDLE_NO_TRAFFIC = 256, /* so that rows of before count it */
    FLAG_ARCHIVED = 512,
    FLAG_KEPT_MEMORY = 1024,
    FLAG_OR_FILES = 2048,
    FLAG_IN_ARCHIVE = 4096,
    FLAG_TIMEOUT_DISK = 8192, /* with FLAG_KEEP_MEMORY */
    FLAG_TIMEOUT_OR_FILES = 16384,
    FLAG_MOVING = 32768
};

/* The tier of the pause at the end of its time. */
static const int timeout_flags[] = {
    [SANDBOX_TIER_FROZEN] = FLAG_KEEP_MEMORY,
    [SANDBOX_TIER_FILES] = 0,
    [SANDBOX_TIER_MEMORY] = FLAG_KEEP_MEMORY | FLAG_TIMEOUT_DISK,
    [SANDBOX_TIER_MEMORY_OR_FILES] = FLAG_KEEP_MEMORY | FLAG_TIMEOUT_DISK | FLAG_TIMEOUT_OR_FILES};
_Static_assert(ARRAY_SIZE(timeout_flags) == SANDBOX_TIER_COUNT, "flags for each tier");

static enum sandbox_tier timeout_tier_of(int flags)
{
    if (!(flags & FLAG_KEEP_MEMORY))
        return SANDBOX_TIER_FILES;
    if (!(flags & FLAG_TIMEOUT_DISK))
        return SANDBOX_TIER_FROZEN;
    return flags & FLAG_TIMEOUT_OR_FILES ? SANDBOX_TIER_MEMORY_OR_FILES : SANDBOX_TIER_MEMORY;
}

static int flags_of(const struct sandbox *s)
{
    return (s->secure ? FLAG_SECURE : 0) | (s->auto_resume ? FLAG_AUTO_RESUME : 0) |
           timeout_flags[s->timeout_tier] | (s->allow_internet ? FLAG_ALLOW_INTERNET : 0) |
           (s->has_tenant_ca ? FLAG_HAS_TENANT_CA : 0) | (s->limits.filters ? FLAG_FILTERS : 0) |
           (s->network && s->network->f.private_ports ? FLAG_PRIVATE_PORTS : 0) |
           (s->idle_counts & SANDBOX_IDLE_PROCESSES ? FLAG_IDLE_PROCESSES : 0) |
           (s->idle_counts & SANDBOX_IDLE_TRAFFIC ? 0 : FLAG_IDLE_NO_TRAFFIC) |
           (s->archived ? FLAG_ARCHIVED : 0) | (s->kept_memory ? FLAG_KEPT_MEMORY : 0) |
           (s->or_files ? FLAG_OR_FILES : 0) | (s->in_archive ? FLAG_IN_ARCHIVE : 0) |
           (s->moving ? FLAG_MOVING : 0);
}

/* The dialect's object, and the texts at `at` and the two after it. Private ports are a flag. */
static void bind_network(sqlite3_stmt *q, int shown_at, int at, const struct network *n)
{
    store_bind_json(q, shown_at, network_shown(n));
    store_bind_text(q, at, n ? n->f.masked_host : NULL);
    store_bind_text(q, at + 1, n ? n->f.proxy_address : NULL);
    store_bind_text(q, at + 2, n ? n->f.proxy_user : NULL);
}

/* false: it could not be read. NULL where nothing was set. */
static bool read_network(sqlite3_stmt *q, int shown_at, int at, int flags, struct network **out)
{
    struct network_fields f = {.private_ports = flags & FLAG_PRIVATE_PORTS,
                               .masked_host = (const char *)sqlite3_column_text(q, at),
                               .proxy_address = (const char *)sqlite3_column_text(q, at + 1),
                               .proxy_user = (const char *)sqlite3_column_text(q, at + 2),
                               .shown = store_column_json(q, shown_at)};

    *out = NULL;
    if (f.private_ports || f.masked_host || f.proxy_address || f.proxy_user || f.shown) {
        *out = network_new(&f);
        json_decref(f.shown);
        return *out != NULL;
    }
    return true;
}

/* The number, and beside it the environment: of one that has none the agent alone has it. */
static void bind_kept(sqlite3_stmt *q, int at, const struct sandbox *s)
{
    sqlite3_bind_int64(q, at, s->kept);
    store_bind_json(q, at + 1, s->kept ? s->env : NULL);
}

/* A sandbox that serves a volume's contents is undone by the next start, as if it was still being
 * made. */
static int state_of(const struct sandbox *s)
{
    return (int)(s->serves_volume && life_of(s->state)->reachable ? SANDBOX_CREATING : s->state);
}

enum err_code store_sandbox_insert(struct store *st, const struct sandbox *s, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_SANDBOX_INSERT];

    store_bind_text(q, 1, s->id);
    store_bind_text(q, 2, s->tenant);
    store_bind_text(q, 3, s->template_id);
    store_bind_text(q, 4, s->template_requested);
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
    store_bind_json(q, 18, s->metadata);
    store_bind_json(q, 20, s->policy);
    store_bind_json(q, 21, s->credentials);
    store_bind_text(q, 22, s->name);
    sqlite3_bind_int64(q, 23, s->idle_ms);
    sqlite3_bind_int64(q, 24, s->last_end_real_ms);
    sqlite3_bind_int64(q, 25, s->level);
    sqlite3_bind_int(q, 26, (int)s->pause_reason);
    bind_network(q, 19, 27, s->network);
    bind_kept(q, 30, s);
    store_bind_json(q, 32, s->volumes);
    sqlite3_bind_int64(q, 33, s->file_url_number);
    sqlite3_bind_int64(q, 34, s->kept_real_ms);
    sqlite3_bind_int64(q, 35, s->auto_archive_ms);
    sqlite3_bind_int64(q, 36, s->auto_delete_ms);
    store_bind_text(q, 37, s->memory_error ? s->memory_error : "");
    sqlite3_bind_int64(q, 38, s->to_disk_ms);
    sqlite3_bind_int64(q, 39, s->destroy_real_ms);
    store_bind_text(q, 40, s->parent);
    return store_run(st, STORE_SANDBOX_INSERT, "writing a new sandbox", e);
}

enum err_code store_sandbox_update(struct store *st, const struct sandbox *s, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_SANDBOX_UPDATE];

    store_bind_text(q, 1, s->id);
    sqlite3_bind_int(q, 2, state_of(s));
    sqlite3_bind_int64(q, 3, s->slot);
    sqlite3_bind_int64(q, 4, s->gen);
    sqlite3_bind_int64(q, 5, s->started_real_ms);
    sqlite3_bind_int64(q, 6, s->end_real_ms);
    sqlite3_bind_int(q, 7, flags_of(s));
    sqlite3_bind_int64(q, 8, s->idle_ms);
    sqlite3_bind_int(q, 9, (int)s->pause_reason);
    sqlite3_bind_blob(q, 10, s->agent_key, sizeof(s->agent_key), SQLITE_STATIC);
    bind_kept(q, 11, s);
    sqlite3_bind_int(q, 13, (int)s->on_timeout);
    sqlite3_bind_int64(q, 14, s->file_url_number);
    sqlite3_bind_int64(q, 15, s->kept_real_ms);
    sqlite3_bind_int64(q, 16, s->auto_archive_ms);
    sqlite3_bind_int64(q, 17, s->auto_delete_ms);
    store_bind_text(q, 18, s->memory_error ? s->memory_error : "");
    sqlite3_bind_int64(q, 19, s->destroy_real_ms);
    return store_run(st, STORE_SANDBOX_UPDATE, "writing a sandbox's state", e);
}

enum err_code store_sandbox_update_synced(struct store *st, const struct sandbox *s, struct err *e)
{
    enum err_code code;

    store_set_durable(st, true);
    code = store_sandbox_update(st, s, e);
    store_set_durable(st, false);
    return code;
}

enum err_code store_sandbox_set_metadata(struct store *st, const char *id, const json_t *metadata,
                                         struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_SANDBOX_METADATA];

    store_bind_text(q, 1, id);
    store_bind_json(q, 2, metadata);
    return store_run(st, STORE_SANDBOX_METADATA, "writing a sandbox's metadata", e);
}

enum err_code store_sandbox_set_limits(struct store *st, const char *id,
                                       const struct privsep_limits *l, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_SANDBOX_LIMITS];

    store_bind_text(q, 1, id);
    sqlite3_bind_int64(q, 2, (int64_t)l->memory_bytes);
    sqlite3_bind_int64(q, 3, (int64_t)l->disk_bytes);
    sqlite3_bind_int64(q, 4, l->cpu_milli);
    return store_run(st, STORE_SANDBOX_LIMITS, "writing a sandbox's limits", e);
}

enum err_code store_sandbox_set_network(struct store *st, const struct sandbox *s, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_SANDBOX_NETWORK];

    store_bind_text(q, 1, s->id);
    bind_network(q, 2, 6, s->network);
    sqlite3_bind_int(q, 3, flags_of(s));
    store_bind_json(q, 4, s->policy);
    store_bind_json(q, 5, s->credentials);
    return store_run(st, STORE_SANDBOX_NETWORK, "writing a sandbox's network", e);
}

enum err_code store_sandbox_delete(struct store *st, const char *id, struct err *e)
{
    store_bind_text(st->statements[STORE_SANDBOX_DELETE], 1, id);
    return store_run(st, STORE_SANDBOX_DELETE, "removing a sandbox", e);
}

static bool is_in(sqlite3_stmt *q, int at, int64_t least, int64_t most)
{
    return sqlite3_column_int64(q, at) >= least && sqlite3_column_int64(q, at) <= most;
}

/* Its columns as they are written: a key of the right size, numbers that mean something. */
static bool is_sound(sqlite3_stmt *q, const struct sandbox *s)
{
    return s->tenant && strlen(s->tenant) < CORE_TENANT_SIZE && ids_is_sandbox(s->id) &&
           sqlite3_column_bytes(q, 11) == sizeof(s->agent_key) &&
           is_in(q, 4, SANDBOX_CREATING, SANDBOX_STATE_COUNT - 1) &&
           is_in(q, 24, 0, PRIVSEP_LEVEL_COUNT - 1) &&
           is_in(q, 25, 0, SANDBOX_PAUSE_REASON_COUNT - 1) && is_in(q, 29, 0, PRIVSEP_KEPT_MAX) &&
           is_in(q, 32, 0, UINT32_MAX) && is_in(q, 35, 0, CORE_AUTO_DELETE_MAX_MS) &&
           is_in(q, 37, INT64_MIN, CORE_TO_DISK_MAX_MS) && is_in(q, 38, 0, INT64_MAX);
}

static void take_flags(struct sandbox *s, int flags)
{
    s->secure = flags & FLAG_SECURE;
    s->auto_resume = flags & FLAG_AUTO_RESUME;
    s->timeout_tier = timeout_tier_of(flags);
    s->allow_internet = flags & FLAG_ALLOW_INTERNET;
    s->has_tenant_ca = flags & FLAG_HAS_TENANT_CA;
    s->idle_counts = (flags & FLAG_IDLE_PROCESSES ? SANDBOX_IDLE_PROCESSES : 0u) |
                     (flags & FLAG_IDLE_NO_TRAFFIC ? 0u : SANDBOX_IDLE_TRAFFIC);
    s->limits.filters = flags & FLAG_FILTERS ? PRIVSEP_FILTERS : 0;
    s->kept_memory = flags & FLAG_KEPT_MEMORY;
    s->or_files = flags & FLAG_OR_FILES;
    s->moving = flags & FLAG_MOVING;
    s->archived = flags & FLAG_ARCHIVED;
    s->in_archive = flags & FLAG_IN_ARCHIVE;
}

static void read_limits(sqlite3_stmt *q, int at, struct privsep_limits *l)
{
    l->memory_bytes = (uint64_t)sqlite3_column_int64(q, at);
    l->disk_bytes = (uint64_t)sqlite3_column_int64(q, at + 1);
    l->cpu_milli = (uint32_t)sqlite3_column_int64(q, at + 2);
    l->pids = (uint32_t)sqlite3_column_int64(q, at + 3);
    l->open_files = (uint32_t)sqlite3_column_int64(q, at + 4);
}

/* false: the row is damaged (a key of another size, a state or level that does not exist), or
 * memory is out. */
static bool read_row(sqlite3_stmt *q, struct sandbox *s)
{
    int flags = sqlite3_column_int(q, 6);

    store_column_copy(q, 0, s->id, sizeof(s->id));
    s->tenant = (const char *)sqlite3_column_text(q, 1);
    if (!is_sound(q, s) || !read_network(q, 18, 26, flags, &s->network))
        return false;
    store_column_copy(q, 2, s->template_id, sizeof(s->template_id));
    store_column_copy(q, 3, s->template_requested, sizeof(s->template_requested));
    s->state = (enum sandbox_state)sqlite3_column_int(q, 4);
    s->on_timeout = sqlite3_column_int(q, 5) ? SANDBOX_ON_TIMEOUT_PAUSE : SANDBOX_ON_TIMEOUT_KILL;
    take_flags(s, flags);
    s->started_real_ms = sqlite3_column_int64(q, 7);
    s->end_real_ms = sqlite3_column_int64(q, 8);
    s->slot = (uint32_t)sqlite3_column_int64(q, 9);
    s->gen = (uint32_t)sqlite3_column_int64(q, 10);
    memcpy(s->agent_key, sqlite3_column_blob(q, 11), sizeof(s->agent_key));
    read_limits(q, 12, &s->limits);
    s->metadata = store_column_json(q, 17);
    s->policy = store_column_json(q, 19);
    s->credentials = store_column_json(q, 20);
    store_column_copy(q, 21, s->name, sizeof(s->name));
    s->idle_ms = sqlite3_column_int64(q, 22);
    s->last_end_real_ms = sqlite3_column_int64(q, 23);
    s->level = (uint32_t)sqlite3_column_int64(q, 24);
    s->pause_reason = (enum sandbox_pause_reason)sqlite3_column_int(q, 25);
    s->kept = (uint32_t)sqlite3_column_int64(q, 29);
    s->env = store_column_json(q, 30);
    s->volumes = store_column_json(q, 31);
    s->file_url_number = (uint32_t)sqlite3_column_int64(q, 32);
    s->kept_real_ms = sqlite3_column_int64(q, 33);
    s->auto_archive_ms = sqlite3_column_int64(q, 34);
    s->auto_delete_ms = sqlite3_column_int64(q, 35);
    s->memory_error = (const char *)sqlite3_column_text(q, 36);
    s->to_disk_ms = sqlite3_column_int64(q, 37);
    s->destroy_real_ms = sqlite3_column_int64(q, 38);
    store_column_copy(q, 39, s->parent, sizeof(s->parent));
    return true;
}

enum err_code store_sandbox_each(struct store *st,
                                 enum err_code (*fn)(void *arg, const struct sandbox *s,
                                                     struct err *e),
                                 void *arg, struct err *e)
{
    sqlite3_stmt *q = st->statements[STORE_SANDBOX_EACH];
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
        code = store_fail(st, "reading sandboxes", e);
    sqlite3_reset(q);
    return code;
}
