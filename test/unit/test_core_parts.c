/* Units of the parts of src/core that need no privd: timers, registry, states, store. */
#include "base/clock.h"
#include "core/core.h"
#include "core/key.h"
#include "core/life.h"
#include "core/registry.h"
#include "core/sandbox.h"
#include "core/store.h"
#include "core/store_internal.h"
#include "core/store_key.h"
#include "core/store_sandbox.h"
#include "core/timers.h"

#include <fcntl.h>
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>
#include <sqlite3.h>

/* -- states ------------------------------------------------------------------------------------ */

static void only_the_steps_of_the_table_are_legal(void **state)
{
    static const struct {
        enum sandbox_state from, to;
    } legal[] = {
        {SANDBOX_CREATING, SANDBOX_RUNNING},  {SANDBOX_CREATING, SANDBOX_ENDING},
        {SANDBOX_CREATING, SANDBOX_ENDED},    {SANDBOX_RUNNING, SANDBOX_PAUSING},
        {SANDBOX_RUNNING, SANDBOX_ENDING},    {SANDBOX_PAUSING, SANDBOX_PAUSED},
        {SANDBOX_PAUSING, SANDBOX_RUNNING},   {SANDBOX_PAUSING, SANDBOX_ENDING},
        {SANDBOX_PAUSED, SANDBOX_RESUMING},   {SANDBOX_PAUSED, SANDBOX_ENDING},
        {SANDBOX_RESUMING, SANDBOX_RUNNING},  {SANDBOX_RESUMING, SANDBOX_PAUSED},
        {SANDBOX_RESUMING, SANDBOX_ENDING},   {SANDBOX_ENDING, SANDBOX_ENDED},
        {SANDBOX_RUNNING, SANDBOX_KEEPING},   {SANDBOX_KEEPING, SANDBOX_KEPT},
        {SANDBOX_KEEPING, SANDBOX_RUNNING},   {SANDBOX_KEEPING, SANDBOX_ENDING},
        {SANDBOX_KEPT, SANDBOX_RESTARTING},   {SANDBOX_KEPT, SANDBOX_ENDING},
        {SANDBOX_RESTARTING, SANDBOX_KEPT},   {SANDBOX_RESTARTING, SANDBOX_RUNNING},
        {SANDBOX_RESTARTING, SANDBOX_ENDING},
    };
    size_t found = 0;

    for (int from = SANDBOX_CREATING; from < SANDBOX_STATE_COUNT; from++) {
        for (int to = SANDBOX_CREATING; to < SANDBOX_STATE_COUNT; to++) {
            bool expected = false;

            for (size_t i = 0; i < ARRAY_SIZE(legal); i++)
                expected |= (int)legal[i].from == from && (int)legal[i].to == to;
            assert_int_equal(life_may_move((enum sandbox_state)from, (enum sandbox_state)to),
                             expected);
            found += expected;
        }
    }
    assert_int_equal(found, ARRAY_SIZE(legal));
}

static void an_illegal_step_ends_the_program(void **state)
{
    struct sandbox_obj o = {.s = {.id = "i", .state = SANDBOX_ENDED}};
    int status;
    pid_t pid = fork();

    if (pid == 0) {
        close(STDERR_FILENO);
        sandbox_move(&o, SANDBOX_RUNNING);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

/* -- timers ------------------------------------------------------------------------------------ */

#define TIMERS 500

struct bell {
    struct timer t;
    uint64_t fired_ms;
};

static uint64_t last_due_ms;
static size_t fired_n;

static void on_fire(struct timer *t)
{
    struct bell *b = CONTAINER_OF(t, struct bell, t);

    b->fired_ms = clock_mono_ms();
    assert_true(t->node.at >= last_due_ms);
    last_due_ms = t->node.at;
    fired_n++;
}

static void close_timers(struct timers *ts, uv_loop_t *loop)
{
    timers_free(ts);
    uv_close((uv_handle_t *)&ts->uv, NULL);
    uv_run(loop, UV_RUN_DEFAULT);
    assert_int_equal(uv_loop_close(loop), 0);
}

static void timers_fire_in_order_and_never_early(void **state)
{
    static struct bell bells[TIMERS];
    struct timers ts;
    uv_loop_t loop;
    uint64_t now;

    last_due_ms = fired_n = 0;
    memset(bells, 0, sizeof(bells));
    uv_loop_init(&loop);
    timers_init(&ts, &loop);
    now = clock_mono_ms();
    for (size_t i = 0; i < TIMERS; i++) {
        bells[i].t.fire = on_fire;
        timers_set(&ts, &bells[i].t, now + 5000);
    }
    for (size_t i = 0; i < TIMERS; i++) /* moved, both ways */
        timers_set(&ts, &bells[i].t, now + (i * 7919) % 200);
    for (size_t i = 0; i < TIMERS; i += 5)
        timers_cancel(&ts, &bells[i].t);
    timers_cancel(&ts, &bells[0].t); /* once more does nothing */
    uv_run(&loop, UV_RUN_DEFAULT);
    assert_int_equal(fired_n, TIMERS - TIMERS / 5);
    for (size_t i = 0; i < TIMERS; i++) {
        if (i % 5 == 0) {
            assert_int_equal(bells[i].fired_ms, 0);
            continue;
        }
        assert_true(bells[i].fired_ms >= bells[i].t.node.at);
        assert_true(bells[i].fired_ms < now + 5000); /* where it was before */
    }
    close_timers(&ts, &loop);
}

static void nothing_armed_wakes_nobody(void **state)
{
    struct bell b = {.t.fire = on_fire};
    struct timers ts;
    uv_loop_t loop;

    uv_loop_init(&loop);
    timers_init(&ts, &loop);
    assert_false(uv_is_active((uv_handle_t *)&ts.uv));
    timers_set(&ts, &b.t, clock_mono_ms() + 1000);
    assert_true(uv_is_active((uv_handle_t *)&ts.uv));
    timers_cancel(&ts, &b.t);
    assert_false(uv_is_active((uv_handle_t *)&ts.uv));
    close_timers(&ts, &loop);
}

/* -- registry ---------------------------------------------------------------------------------- */

#define OBJECTS 3000

static void the_registry_finds_and_orders(void **state)
{
    struct sandbox_obj *all = calloc(OBJECTS, sizeof(*all));
    struct registry r = {0};

    for (size_t i = 0; i < OBJECTS; i++) {
        ids_sandbox(all[i].s.id);
        all[i].s.started_real_ms = (int64_t)((i * 7919) % 977);
        assert_int_equal(registry_add(&r, &all[i]), 0);
    }
    for (size_t i = 0; i < OBJECTS; i += 2)
        registry_remove(&r, &all[i]);
    assert_int_equal(r.n, OBJECTS / 2);
    for (size_t i = 0; i < OBJECTS; i++)
        assert_ptr_equal(registry_find(&r, all[i].s.id), i % 2 ? &all[i] : NULL);
    for (size_t i = 1; i < r.n; i++) {
        const struct sandbox *a = &r.order[i - 1]->s, *b = &r.order[i]->s;

        assert_true(a->started_real_ms < b->started_real_ms ||
                    (a->started_real_ms == b->started_real_ms && strcmp(a->id, b->id) < 0));
    }
    assert_int_equal(registry_lower_bound(&r, 977, ""), r.n);
    assert_int_equal(registry_lower_bound(&r, -1, ""), 0);
    assert_null(registry_find(&r, "nobody"));
    registry_free(&r);
    assert_null(registry_find(&r, "nobody"));
    free(all);
}

/* -- store ------------------------------------------------------------------------------------- */

static int make_dir(void **state)
{
    char *dir = strdup("/tmp/cay-store-XXXXXX");

    *state = mkdtemp(dir);
    return *state ? 0 : -1;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static int remove_dir(void **state)
{
    nftw(*state, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(*state);
    return 0;
}

static struct store *open_store(const char *dir)
{
    struct store *st = NULL;
    struct err e;

    if (store_open(dir, &st, &e) != ERR_OK)
        fail_msg("store_open: %s", e.text);
    return st;
}

static void exec_sql(const char *dir, const char *sql)
{
    char path[100];
    sqlite3 *db;

    snprintf(path, sizeof(path), "%s/cay.db", dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_exec(db, sql, NULL, NULL, NULL), SQLITE_OK);
    sqlite3_close(db);
}

static struct sandbox seen;
static char seen_tenant[CORE_TENANT_SIZE];
static unsigned seen_n;

static enum err_code see(void *arg, const struct sandbox *s, struct err *e)
{
    json_decref(seen.metadata);
    network_unref(seen.network);
    seen = *s;
    (void)snprintf(seen_tenant, sizeof(seen_tenant), "%s", s->tenant);
    seen.tenant = seen_tenant;
    seen_n++;
    return ERR_OK;
}

static void the_store_gives_back_each_tier_of_a_pause_at_the_end(void **state)
{
    struct store *st = open_store(*state);
    struct sandbox s = {.tenant = "t", .template_id = "host", .state = SANDBOX_CREATING};
    struct err e;

    ids_sandbox(s.id);
    assert_int_equal(store_sandbox_insert(st, &s, &e), ERR_OK);
    for (int t = 0; t < SANDBOX_TIER_COUNT; t++) {
        s.timeout_tier = (enum sandbox_tier)t;
        assert_int_equal(store_sandbox_update(st, &s, &e), ERR_OK);
        seen_n = 0;
        assert_int_equal(store_sandbox_each(st, see, NULL, &e), ERR_OK);
        assert_int_equal(seen_n, 1);
        assert_int_equal(seen.timeout_tier, t);
    }
    store_close(st);
}

static void the_store_gives_back_what_it_was_given(void **state)
{
    struct store *st = open_store(*state);
    struct sandbox s = {.tenant = "t",
                        .template_id = "host",
                        .template_requested = "base",
                        .state = SANDBOX_CREATING,
                        .on_timeout = SANDBOX_ON_TIMEOUT_PAUSE,
                        .level = PRIVSEP_LEVEL_VM,
                        .secure = true,
                        .allow_internet = true,
                        .started_real_ms = 1790000000123,
                        .end_real_ms = 1790000300123,
                        .limits = {1ull << 40, 1ull << 41, 1500, 77, 88, 0}};
    struct err e;

    ids_sandbox(s.id);
    ids_random_bytes(s.agent_key, sizeof(s.agent_key));
    s.metadata = json_pack("{s:s}", "k", "v\" '; DROP TABLE sandboxes; --\xc3\xa9");
    s.env = json_pack("{s:s}", "SECRET", "swordfish-in-the-store");
    assert_int_equal(store_sandbox_insert(st, &s, &e), ERR_OK);
    s.state = SANDBOX_RUNNING;
    s.slot = 4294967295u;
    s.gen = 4000000000u;
    s.end_real_ms++;
    s.has_tenant_ca = true;
    assert_int_equal(store_sandbox_update(st, &s, &e), ERR_OK);
    assert_int_equal(store_sandbox_insert(st, &s, &e), ERR_INTERNAL);
    store_close(st);

    st = open_store(*state);
    seen_n = 0;
    assert_int_equal(store_sandbox_each(st, see, NULL, &e), ERR_OK);
    assert_int_equal(seen_n, 1);
    assert_string_equal(seen.id, s.id);
    assert_string_equal(seen.tenant, "t");
    assert_string_equal(seen.template_id, "host");
    assert_string_equal(seen.template_requested, "base");
    assert_int_equal(seen.state, SANDBOX_RUNNING);
    assert_int_equal(seen.on_timeout, SANDBOX_ON_TIMEOUT_PAUSE);
    assert_true(seen.secure && seen.allow_internet && seen.has_tenant_ca && !seen.auto_resume);
    assert_int_equal(seen.level, PRIVSEP_LEVEL_VM);
    assert_true(seen.slot == s.slot && seen.gen == s.gen);
    assert_true(seen.started_real_ms == s.started_real_ms && seen.end_real_ms == s.end_real_ms);
    assert_memory_equal(&seen.limits, &s.limits, sizeof(s.limits));
    assert_memory_equal(seen.agent_key, s.agent_key, sizeof(s.agent_key));
    assert_true(json_equal(seen.metadata, s.metadata));
    assert_null(seen.env);
    assert_null(seen.network);
    assert_int_equal(store_sandbox_delete(st, s.id, &e), ERR_OK);
    seen_n = 0;
    assert_int_equal(store_sandbox_each(st, see, NULL, &e), ERR_OK);
    assert_int_equal(seen_n, 0);
    store_close(st);
    json_decref(s.metadata);
    json_decref(s.env);
    json_decref(seen.metadata);
    seen = (struct sandbox){0};
}

static void no_secret_is_in_the_file_and_nobody_else_reads_it(void **state)
{
    char path[100], command[200];
    struct stat st;

    the_store_gives_back_what_it_was_given(state);
    snprintf(path, sizeof(path), "%s/cay.db", (char *)*state);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    snprintf(command, sizeof(command), "grep -q swordfish-in-the-store %s/cay.db*", (char *)*state);
    assert_int_not_equal(system(command), 0);
}

static void assert_network(const struct network *n, bool private_ports, const char *mask,
                           const char *address, const char *user)
{
    assert_non_null(n);
    assert_int_equal(n->f.private_ports, private_ports);
    assert_true(!n->f.masked_host == !mask && !n->f.proxy_address == !address &&
                !n->f.proxy_user == !user);
    assert_string_equal(mask ? n->f.masked_host : "", mask ? mask : "");
    assert_string_equal(address ? n->f.proxy_address : "", address ? address : "");
    assert_string_equal(user ? n->f.proxy_user : "", user ? user : "");
}

static void network_settings_survive(void **state)
{
    const struct network_fields fields = {.private_ports = true,
                                          .masked_host = "app:${PORT}",
                                          .proxy_address = "203.0.113.7:1080",
                                          .proxy_user = "u",
                                          .shown = json_pack("{s:[i]}", "any", 1)};
    struct store *st = open_store(*state);
    struct sandbox s = {.tenant = "t", .template_id = "host", .template_requested = "host"};
    struct network *n = network_new(&fields);
    struct err e;

    ids_sandbox(s.id);
    s.network = n;
    assert_int_equal(store_sandbox_insert(st, &s, &e), ERR_OK);
    assert_int_equal(store_sandbox_each(st, see, NULL, &e), ERR_OK);
    assert_network(seen.network, true, "app:${PORT}", "203.0.113.7:1080", "u");
    assert_true(json_equal(network_shown(seen.network), fields.shown));
    s.network = NULL;
    assert_int_equal(store_sandbox_set_network(st, &s, &e), ERR_OK);
    assert_int_equal(store_sandbox_each(st, see, NULL, &e), ERR_OK);
    assert_null(seen.network);
    network_unref(n);
    json_decref(fields.shown);
    store_close(st);
}

/* Schemas before network settings had columns of their own, and before keys had roles. */
static void make_old_rows(const char *path, const char *key_tenant, const char *network)
{
    char sql[1024];
    struct err e;

    assert_int_equal(store_make_old(path, 11, &e), ERR_OK);
    (void)snprintf(
        sql, sizeof(sql),
        "INSERT INTO sandboxes VALUES ('iaaaaaaaaaaaaaaaaaaaa','t','h','h',1,0,1,0,0,0,0,"
        "zeroblob(32),0,0,0,0,0,NULL,'%s',NULL,NULL,'',0,0,0,0);"
        "INSERT INTO tenants VALUES ('default',0,NULL),('t',0,NULL);"
        "INSERT INTO api_keys VALUES (zeroblob(32),'%s','',0)",
        network, key_tenant);
    exec_sql(path, sql);
}

static void rows_of_older_stores_are_read(void **state)
{
    const uint8_t hash[STORE_HASH_SIZE] = {0};
    struct core_identity who = {.role = CORE_ROLE_NONE};
    struct store *st;
    struct err e;

    make_old_rows(
        *state, "t",
        "{\"allowPublicTraffic\":false,\"maskRequestHost\":\"app:${PORT}\",\"egressProxy\":"
        "{\"address\":\"1.1.1.1:1\",\"username\":\"u\"}}");
    st = open_store(*state);
    assert_int_equal(store_sandbox_each(st, see, NULL, &e), ERR_OK);
    assert_network(seen.network, true, "app:${PORT}", "1.1.1.1:1", "u");
    assert_true(json_is_false(json_object_get(network_shown(seen.network), "allowPublicTraffic")));
    assert_true(seen.secure);
    assert_int_equal(store_key_find(st, hash, &who, &e), ERR_OK);
    assert_string_equal(who.tenant, "t");
    assert_int_equal(who.role, CORE_ROLE_OWNER);
    store_close(st);
    exec_sql(*state, "UPDATE api_keys SET role=7");
    st = open_store(*state);
    assert_int_equal(store_key_find(st, hash, &who, &e), ERR_INTERNAL);
    store_close(st);
}

static void another_row_of_an_older_store_is_read(void **state)
{
    const uint8_t hash[STORE_HASH_SIZE] = {0};
    struct core_identity who = {.role = CORE_ROLE_NONE};
    struct store *st;
    struct err e;

    make_old_rows(*state, "default", "{\"allowPublicTraffic\":true,\"denyOut\":[]}");
    st = open_store(*state);
    assert_int_equal(store_sandbox_each(st, see, NULL, &e), ERR_OK);
    assert_network(seen.network, false, NULL, NULL, NULL);
    network_unref(TAKE_PTR(seen.network));
    assert_int_equal(store_key_find(st, hash, &who, &e), ERR_OK);
    assert_int_equal(who.role, CORE_ROLE_OPERATOR);
    store_close(st);
}

static void a_newer_store_is_refused(void **state)
{
    struct store *st = open_store(*state);
    struct err e;

    store_close(st);
    exec_sql(*state, "PRAGMA user_version = 99");
    assert_int_equal(store_open(*state, &st, &e), ERR_CONFLICT);
    assert_non_null(strstr(e.text, "newer cay"));
    assert_true(e.hint[0]);
}

static void a_damaged_row_is_an_error_not_a_crash(void **state)
{
    struct store *st = open_store(*state);
    struct err e;

    exec_sql(*state,
             "INSERT INTO sandboxes VALUES ('x','t','h','h',1,0,0,0,0,0,0,x'00',0,0,0,0,0,"
             "NULL,NULL,NULL,NULL,'',0,0,0,0,NULL,NULL,NULL,0,NULL,NULL,0,0,0,0,'',0,0,'')");
    seen_n = 0;
    assert_int_equal(store_sandbox_each(st, see, NULL, &e), ERR_INTERNAL);
    assert_int_equal(seen_n, 0);
    assert_non_null(strstr(e.text, "damaged"));
    store_close(st);
}

static void a_second_cayd_on_the_same_state_is_refused(void **state)
{
    struct store *st = open_store(*state), *second = NULL;
    struct err e;
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(store_open(*state, &second, &e) == ERR_CONFLICT && strstr(e.text, "another cayd")
                  ? 0
                  : 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    store_close(st);
}

static void a_directory_that_is_not_there_is_told(void **state)
{
    struct store *st = NULL;
    struct err e;

    assert_int_equal(store_open("/nonexistent/cay", &st, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.text, "/nonexistent/cay"));
}

static off_t size_of(const char *dir, const char *name)
{
    char path[100];
    struct stat st;

    snprintf(path, sizeof(path), "%s/%s", dir, name);
    return stat(path, &st) == 0 ? st.st_size : -1;
}

/* The helper thread moves the log into the file and the log starts anew: it stays bounded. */
static void the_log_stays_bounded(void **state)
{
    struct store *st = open_store(*state);
    struct sandbox s = {.tenant = "t", .template_id = "host", .template_requested = "host"};
    struct err e;

    for (int i = 0; i < 20000; i++) {
        if (i % 100 == 0)
            ids_sandbox(s.id);
        if (i % 100 == 0)
            assert_int_equal(store_sandbox_insert(st, &s, &e), ERR_OK);
        s.end_real_ms = i;
        assert_int_equal(store_sandbox_update(st, &s, &e), ERR_OK);
    }
    assert_true(size_of(*state, "cay.db") > 0);
    /* 20,000 commits of two pages would be 160 MiB. */
    assert_in_range(size_of(*state, "cay.db-wal"), 1, 64 << 20);
    store_close(st);
}

#define STORE(test) cmocka_unit_test_setup_teardown(test, make_dir, remove_dir)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(only_the_steps_of_the_table_are_legal),
        cmocka_unit_test(an_illegal_step_ends_the_program),
        cmocka_unit_test(timers_fire_in_order_and_never_early),
        cmocka_unit_test(nothing_armed_wakes_nobody),
        cmocka_unit_test(the_registry_finds_and_orders),
        STORE(the_store_gives_back_what_it_was_given),
        STORE(the_store_gives_back_each_tier_of_a_pause_at_the_end),
        STORE(no_secret_is_in_the_file_and_nobody_else_reads_it),
        STORE(network_settings_survive),
        STORE(rows_of_older_stores_are_read),
        STORE(another_row_of_an_older_store_is_read),
        STORE(a_newer_store_is_refused),
        STORE(a_damaged_row_is_an_error_not_a_crash),
        STORE(a_second_cayd_on_the_same_state_is_refused),
        STORE(a_directory_that_is_not_there_is_told),
        STORE(the_log_stays_bounded),
    };

    return cmocka_run_group_tests_name("core_parts", tests, NULL, NULL);
}
