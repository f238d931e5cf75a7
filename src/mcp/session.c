#include "mcp/session.h"

#include "base/arena.h"
#include "base/clock.h"
#include "base/fnv.h"
#include "base/log.h"
#include "base/share.h"
#include "core/life.h"
#include "core/list.h"

#include <string.h>

#define BUCKETS     1024u /* a power of two */
#define ARENA_BYTES (256u * 1024u)
#define PAGE        1000u

/* A sandbox that was made here, while it lives. */
struct kept {
    struct kept *next;
    char id[IDS_SANDBOX_SIZE], tenant[CORE_TENANT_SIZE], session[SESSION_ID_SIZE];
    uint64_t ran_ms; /* when it was last seen running (clock_mono_ms) */
};

struct sessions {
    struct core *core;
    struct session *buckets[BUCKETS];
    struct share_pool *shares;
    struct kept *kept;
    bool restored;
};

struct sessions *sessions_new(struct core *c)
{
    struct sessions *ss = calloc(1, sizeof(*ss));

    if (!ss)
        return NULL;
    ss->core = c;
    ss->shares = share_pool_new(SESSIONS_MAX);
    if (!ss->shares) {
        free(ss);
        return NULL;
    }
    return ss;
}

/* -- the table --------------------------------------------------------------------------------- */

/* An id is random, so that its characters spread by themselves. Sessions of two tenants may have
 * the same: by the metadata of a sandbox (find_again) a tenant can choose it. */
static struct session **bucket_of(struct sessions *ss, const char *id)
{
    return &ss->buckets[fnv_32(FNV_32_START, id) & (BUCKETS - 1)];
}

static struct session *add(struct sessions *ss, const char *tenant, const char *id)
{
    struct share *share = share_take(ss->shares, tenant, NULL);
    struct session *s = share ? calloc(1, sizeof(*s)) : NULL, **bucket = bucket_of(ss, id);

    if (!s) {
        share_return(share);
        return NULL;
    }
    (void)snprintf(s->id, sizeof(s->id), "%s", id);
    (void)snprintf(s->tenant, sizeof(s->tenant), "%s", tenant);
    s->share = share;
    s->used_ms = clock_mono_ms();
    s->next = *bucket;
    *bucket = s;
    return s;
}

static void discard(struct sessions *ss, struct session *s)
{
    struct session **at = bucket_of(ss, s->id);

    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    share_return(s->share);
    free(s);
}

void sessions_free(struct sessions *ss)
{
    if (!ss)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        while (ss->buckets[i])
            discard(ss, ss->buckets[i]);
    while (ss->kept) {
        struct kept *k = ss->kept;

        ss->kept = k->next;
        free(k);
    }
    share_pool_free(ss->shares);
    free(ss);
}

/* The one of the tenant's that was used least recently and holds no sandbox. */
static struct session *oldest_idle(struct sessions *ss, const char *tenant)
{
    struct session *oldest = NULL;

    for (size_t i = 0; i < BUCKETS; i++)
        for (struct session *s = ss->buckets[i]; s; s = s->next)
            if (strcmp(s->tenant, tenant) == 0 && !s->making &&
                (!s->sandbox[0] || !core_sandbox_find(ss->core, tenant, s->sandbox)) &&
                (!oldest || s->used_ms < oldest->used_ms))
                oldest = s;
    return oldest;
}

enum err_code session_begin(struct sessions *ss, const char *tenant, struct session **out,
                            struct err *e)
{
    char id[SESSION_ID_SIZE];
    struct session *oldest;

    ids_random_text(id, SESSION_ID_SIZE - 1);
    *out = add(ss, tenant, id);
    if (!*out && (oldest = oldest_idle(ss, tenant))) {
        discard(ss, oldest);
        *out = add(ss, tenant, id);
    }
    if (*out)
        return ERR_OK;
    err_set(e, ERR_EXHAUSTED,
            "%zu MCP sessions of this tenant have a sandbox, of %u sessions on this server: that "
            "is its share",
            share_held(ss->shares, tenant, NULL), SESSIONS_MAX);
    err_hint(e, "end one with DELETE, or kill its sandbox");
    return ERR_EXHAUSTED;
}

/* -- sandboxes --------------------------------------------------------------------------------- */

void session_keep_sandbox(struct sessions *ss, const char *tenant, const char *sandbox,
                          const char *session)
{
    struct kept *k = calloc(1, sizeof(*k));

    if (!k) {
        log_warn("mcp: memory is out: sandbox %s is not killed after a time by itself", sandbox);
        return;
    }
    (void)snprintf(k->id, sizeof(k->id), "%s", sandbox);
    (void)snprintf(k->tenant, sizeof(k->tenant), "%s", tenant);
    (void)snprintf(k->session, sizeof(k->session), "%s", session);
    k->ran_ms = clock_mono_ms();
    k->next = ss->kept;
    ss->kept = k;
}

static const char *metadata_of(const struct sandbox *s, const char *name)
{
    const char *text = json_string_value(json_object_get(s->metadata, name));

    return text ? text : "";
}

static bool is_kept(const struct sessions *ss, const char *id)
{
    for (const struct kept *k = ss->kept; k; k = k->next)
        if (strcmp(k->id, id) == 0)
            return true;
    return false;
}

static void keep_page(struct sessions *ss, const struct sandbox_page *page)
{
    for (size_t i = 0; i < page->count; i++)
        if (!is_kept(ss, page->items[i]->id))
            session_keep_sandbox(ss, page->items[i]->tenant, page->items[i]->id,
                                 metadata_of(page->items[i], MCP_META_SESSION));
}

void session_restore(struct sessions *ss)
{
    json_t *wanted = ss->restored ? NULL : json_pack("{s:s}", MCP_META_MADE, "1");
    struct sandbox_filter f = {.metadata = wanted, .ascending = true, .limit = PAGE};
    struct sandbox_page page = {.more = true};
    struct arena arena;
    char cursor[IDS_SANDBOX_SIZE];

    arena_init(&arena, ARENA_BYTES);
    while (wanted && page.more && core_sandbox_list(ss->core, &f, &arena, &page, NULL) == ERR_OK) {
        keep_page(ss, &page);
        ss->restored = !page.more;
        if (page.count == 0)
            break;
        (void)snprintf(cursor, sizeof(cursor), "%s", page.items[page.count - 1]->id);
        f.cursor_ms = page.items[page.count - 1]->started_real_ms;
        f.cursor_id = cursor;
        arena_free(&arena);
        arena_init(&arena, ARENA_BYTES);
    }
    arena_free(&arena);
    json_decref(wanted);
}

/* A session of before a restart, by the newest sandbox that was made in it. */
static struct session *find_again(struct sessions *ss, const char *tenant, const char *id)
{
    const struct kept *found = NULL;
    struct session *s;

    session_restore(ss);
    for (const struct kept *k = ss->kept; k && !found; k = k->next)
        if (strcmp(k->session, id) == 0 && strcmp(k->tenant, tenant) == 0 &&
            core_sandbox_find(ss->core, tenant, k->id))
            found = k; /* the newest stands first */
    s = found ? add(ss, tenant, id) : NULL;
    if (s)
        (void)snprintf(s->sandbox, sizeof(s->sandbox), "%s", found->id);
    return s;
}

struct session *session_known(struct sessions *ss, const char *tenant, const char *id)
{
    struct session *s = *bucket_of(ss, id);

    while (s && (strcmp(s->id, id) != 0 || strcmp(s->tenant, tenant) != 0))
        s = s->next;
    return s;
}

struct session *session_find(struct sessions *ss, const char *tenant, const char *id)
{
    struct session *s;

    if (strlen(id) != SESSION_ID_SIZE - 1)
        return NULL;
    s = session_known(ss, tenant, id);
    if (!s)
        s = find_again(ss, tenant, id);
    if (s)
        s->used_ms = clock_mono_ms();
    return s;
}

/* -- ends -------------------------------------------------------------------------------------- */

static void on_killed(void *arg, const struct sandbox *s, const struct err *why)
{
    if (why && why->code != ERR_NOT_FOUND && why->code != ERR_CANCELED)
        log_warn("mcp: a sandbox that is not needed any more was not killed: %s", why->text);
}

void session_kill_sandbox(struct sessions *ss, const char *tenant, const char *sandbox)
{
    core_sandbox_kill(ss->core, tenant, sandbox, on_killed, NULL);
}

static void kill_kept(struct sessions *ss, const struct kept *k)
{
    session_kill_sandbox(ss, k->tenant, k->id);
}

void session_end(struct sessions *ss, struct session *s)
{
    for (const struct kept *k = ss->kept; k; k = k->next)
        if (strcmp(k->session, s->id) == 0 && strcmp(k->tenant, s->tenant) == 0)
            kill_kept(ss, k);
    discard(ss, s);
}

/* True: it is gone, or is killed now. */
static bool sweep_kept(struct sessions *ss, struct kept *k, uint64_t now, uint64_t keep_ms)
{
    const struct sandbox *s = core_sandbox_find(ss->core, k->tenant, k->id);

    if (!s)
        return true;
    if (life_of(s->state)->pause != LIFE_CALL_ALREADY)
        k->ran_ms = now;
    if (now - k->ran_ms < keep_ms)
        return false;
    log_info("mcp: sandbox %s stayed paused for its time: it is killed", k->id);
    kill_kept(ss, k);
    return true;
}

void session_sweep(struct sessions *ss, uint64_t keep_ms)
{
    uint64_t now = clock_mono_ms();
    struct kept **at = &ss->kept;

    session_restore(ss);
    while (*at) {
        struct kept *k = *at;

        if (sweep_kept(ss, k, now, keep_ms)) {
            *at = k->next;
            free(k);
        } else {
            at = &k->next;
        }
    }
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct session *s = ss->buckets[i], *next; s; s = next) {
            next = s->next;
            if (!s->making && now - s->used_ms >= keep_ms)
                discard(ss, s);
        }
}
