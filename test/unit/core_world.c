#include "core_world.h"
#include "base/clock.h"
#include "core/key.h"

#include <dirent.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <sqlite3.h>

#define WAIT_MS 10000u

void world_on_answer(void *arg, const struct sandbox *s, const struct err *why)
{
    struct answer *a = arg;

    a->calls++;
    a->good = !why;
    if (s)
        memcpy(a->id, s->id, sizeof(a->id));
    if (why)
        a->why = *why;
}

static void wake_up(uv_timer_t *t)
{
}

/* Runs the loop until *value reaches wanted. */
void world_run_until(struct world *w, const unsigned *value, unsigned wanted)
{
    uint64_t end = clock_mono_ms() + WAIT_MS;
    uv_timer_t t;

    uv_timer_init(&w->loop, &t);
    uv_timer_start(&t, wake_up, 5, 5);
    while (*value < wanted && clock_mono_ms() < end)
        uv_run(&w->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&t, NULL);
    uv_run(&w->loop, UV_RUN_NOWAIT);
    assert_int_equal(*value, wanted);
}

void world_run_for(struct world *w, uint64_t ms)
{
    uint64_t end = clock_mono_ms() + ms;
    uv_timer_t t;

    uv_timer_init(&w->loop, &t);
    uv_timer_start(&t, wake_up, 2, 2);
    while (clock_mono_ms() < end)
        uv_run(&w->loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&t, NULL);
    uv_run(&w->loop, UV_RUN_NOWAIT);
}

/* Runs the loop until fn says so. */
void world_run_until_true(struct world *w, bool (*fn)(struct world *w))
{
    uint64_t end = clock_mono_ms() + WAIT_MS;

    while (!fn(w) && clock_mono_ms() < end)
        world_run_for(w, 5);
    assert_true(fn(w));
}

void world_run_until_rows(struct world *w, int64_t wanted)
{
    uint64_t end = clock_mono_ms() + WAIT_MS;

    while (world_rows(w) != wanted && clock_mono_ms() < end)
        world_run_for(w, 2);
    assert_int_equal(world_rows(w), wanted);
}

void world_run_until_ended(struct world *w, const char *id)
{
    uint64_t end = clock_mono_ms() + WAIT_MS;

    while (core_sandbox_find(w->core, NULL, id) && clock_mono_ms() < end)
        world_run_for(w, 2);
    assert_null(core_sandbox_find(w->core, NULL, id));
}

static unsigned count_at(struct world *w, size_t offset)
{
    struct fake_counts counts = fake_counts(w->fake);
    unsigned count;

    memcpy(&count, (const char *)&counts + offset, sizeof(count));
    return count;
}

void world_run_until_counted(struct world *w, size_t offset, unsigned wanted)
{
    uint64_t end = clock_mono_ms() + WAIT_MS;

    while (count_at(w, offset) < wanted && clock_mono_ms() < end)
        world_run_for(w, 2);
    assert_true(count_at(w, offset) >= wanted);
}

/* Core is not ready for less than a look at it takes: that it was is told by its new connection. */
void world_restart_privd(struct world *w, bool forget)
{
    unsigned peers = fake_counts(w->fake).peers;

    fake_restart(w->fake, forget);
    WORLD_RUN_UNTIL_COUNTED(w, peers, peers + 1);
    world_run_until_true(w, world_is_ready);
}

bool world_is_ready(struct world *w)
{
    return core_is_ready(w->core);
}

bool world_is_not_ready(struct world *w)
{
    return !core_is_ready(w->core);
}

bool world_nothing_lives(struct world *w)
{
    return fake_counts(w->fake).live == 0;
}

bool world_has_job(struct world *w)
{
    return fake_counts(w->fake).jobs > 0;
}

void world_start_core(struct world *w)
{
    struct err e = {0};

    if (core_new(&w->loop, &w->config, fake_path(w->fake), &w->core, &e) != ERR_OK)
        fail_msg("core_new: %s", e.text);
    world_run_until_true(w, world_is_ready);
}

void world_stop_core(struct world *w)
{
    core_free(w->core);
    w->core = NULL;
    world_run_for(w, 20);
}

enum err_code world_key(struct world *w, const char *tenant, const char *label,
                        char out[static CORE_TOKEN_SIZE], struct err *e)
{
    struct core_identity whose = {
        .role = strcmp(tenant, CORE_OPERATOR_TENANT) == 0 ? CORE_ROLE_OPERATOR : CORE_ROLE_OWNER};

    (void)snprintf(whose.tenant, sizeof(whose.tenant), "%s", tenant);
    return core_key_create(w->core, &whose, label, out, e);
}

enum err_code world_revoke(struct world *w, const char *tenant, const char *id, struct err *e)
{
    struct core_identity by = {.role = tenant ? CORE_ROLE_OWNER : CORE_ROLE_OPERATOR};

    (void)snprintf(by.tenant, sizeof(by.tenant), "%s", tenant ? tenant : CORE_OPERATOR_TENANT);
    return core_key_revoke(w->core, &by, id, e);
}

/* As cayd does at its first start: nothing leaves a sandbox whose tenant is not there. */
static void make_tenant(struct world *w)
{
    char key[CORE_TOKEN_SIZE];
    struct err e = {0};

    if (world_key(w, "default", "of the tests", key, &e) != ERR_OK)
        fail_msg("core_key_create: %s", e.text);
}

/* No dialect's. */
static const struct core_names world_names = {.key_prefix = "key_",
                                              .own_credential = "own-",
                                              .in_sandbox = "IN_SANDBOX",
                                              .sandbox_id = "SANDBOX_ID",
                                              .template_id = "TEMPLATE_ID"};

int world_setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    strcpy(w->dir, "/tmp/cay-core-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    uv_loop_init(&w->loop);
    w->fake = fake_start(w->dir);
    w->config = (struct core_config){.names = &world_names,
                                     .state_dir = w->dir,
                                     .domain = "localhost:3000",
                                     .limits = {.memory_bytes = 512u << 20,
                                                .disk_bytes = 1u << 30,
                                                .cpu_milli = 1500,
                                                .pids = 256,
                                                .open_files = 1024},
                                     .max_ttl_ms = 3600000,
                                     .default_ttl_ms = 300000,
                                     .agent_timeout_ms = 3000,
                                     .max_sandboxes = 4000,
                                     .agent_port = fake_agent_port(w->fake)};
    world_start_core(w);
    make_tenant(w);
    *state = w;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

int world_teardown(void **state)
{
    struct world *w = *state;

    if (w->core)
        world_stop_core(w);
    fake_stop(w->fake);
    assert_int_equal(uv_run(&w->loop, UV_RUN_NOWAIT), 0);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    nftw(w->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(w);
    return 0;
}

void world_events(struct world *w, const char *id, unsigned types,
                  char lines[static EVENTS_LINE_MAX])
{
    struct core_events_filter f = {.types = types, .sandbox = id};
    struct err e;
    ssize_t n;
    int fd;

    assert_int_equal(core_events_follow(w->core, "default", "e2b_key", &f, &fd, &e), ERR_OK);
    world_run_for(w, 5);
    n = read(fd, lines, EVENTS_LINE_MAX - 1);
    lines[n > 0 ? n : 0] = '\0';
    close(fd);
}

struct sandbox_request world_request(void)
{
    return (struct sandbox_request){
        .tenant = "default", .template_name = "host", .ttl_ms = 60000, .secure = true};
}

/* Creates one and waits for it. */
void world_create(struct world *w, const struct sandbox_request *r,
                  char id[static IDS_SANDBOX_SIZE])
{
    struct answer a = {0};

    core_sandbox_create(w->core, r, world_on_answer, &a);
    assert_int_equal(a.calls, 0);
    world_run_until(w, &a.calls, 1);
    if (!a.good)
        fail_msg("create: %s", a.why.text);
    memcpy(id, a.id, IDS_SANDBOX_SIZE);
}

void world_create_default(struct world *w, char id[static IDS_SANDBOX_SIZE])
{
    struct sandbox_request r = world_request();

    world_create(w, &r, id);
}

struct answer world_create_fails(struct world *w, const struct sandbox_request *r)
{
    struct answer a = {0};

    core_sandbox_create(w->core, r, world_on_answer, &a);
    assert_int_equal(a.calls, 0);
    world_run_until(w, &a.calls, 1);
    assert_false(a.good);
    return a;
}

int64_t world_query(struct world *w, const char *sql)
{
    char path[100];
    sqlite3 *db;
    sqlite3_stmt *s;
    int64_t out = -1;

    snprintf(path, sizeof(path), "%s/cay.db", w->dir);
    assert_int_equal(sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE, NULL), SQLITE_OK);
    sqlite3_exec(db, "PRAGMA wal_autocheckpoint = 0", NULL, NULL, NULL);
    assert_int_equal(sqlite3_prepare_v2(db, sql, -1, &s, NULL), SQLITE_OK);
    if (sqlite3_step(s) == SQLITE_ROW)
        out = sqlite3_column_int64(s, 0);
    sqlite3_finalize(s);
    sqlite3_close(db);
    return out;
}

int64_t world_rows(struct world *w)
{
    return world_query(w, "SELECT count(*) FROM sandboxes");
}

size_t world_open_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    size_t n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n;
}
