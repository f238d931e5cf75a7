/* Units of src/core against a privd and agents that behave as asked (core_fake.h). */
#include "base/arena.h"
#include "base/clock.h"
#include "core/core.h"
#include "core_fake.h"

#include <dirent.h>
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

#define WAIT_MS 10000u

struct world {
    char dir[64];
    uv_loop_t loop;
    struct fake *fake;
    struct core *core;
    struct core_config config;
};

/* What a core_sandbox_cb said. */
struct answer {
    unsigned calls;
    bool good;
    char id[IDS_SANDBOX_SIZE];
    struct err why;
};

/* -- the world --------------------------------------------------------------------------------- */

static void on_answer(void *arg, const struct sandbox *s, const struct err *why)
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
static void run_until(struct world *w, const unsigned *value, unsigned wanted)
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

static void run_for(struct world *w, uint64_t ms)
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
static void run_until_true(struct world *w, bool (*fn)(struct world *w))
{
    uint64_t end = clock_mono_ms() + WAIT_MS;

    while (!fn(w) && clock_mono_ms() < end)
        run_for(w, 5);
    assert_true(fn(w));
}

static bool is_ready(struct world *w)
{
    return core_is_ready(w->core);
}

static bool is_not_ready(struct world *w)
{
    return !core_is_ready(w->core);
}

static bool nothing_lives(struct world *w)
{
    return fake_counts(w->fake).live == 0;
}

static bool has_job(struct world *w)
{
    return fake_counts(w->fake).jobs > 0;
}

static void start_core(struct world *w)
{
    struct err e = {0};

    if (core_new(&w->loop, &w->config, fake_path(w->fake), &w->core, &e) != ERR_OK)
        fail_msg("core_new: %s", e.text);
    run_until_true(w, is_ready);
}

static void stop_core(struct world *w)
{
    core_free(w->core);
    w->core = NULL;
    run_for(w, 20);
}

static int setup(void **state)
{
    struct world *w = calloc(1, sizeof(*w));

    strcpy(w->dir, "/tmp/cay-core-XXXXXX");
    assert_non_null(mkdtemp(w->dir));
    uv_loop_init(&w->loop);
    w->fake = fake_start(w->dir);
    w->config = (struct core_config){.state_dir = w->dir,
                                     .domain = "localhost:3000",
                                     .limits = {.memory_bytes = 512u << 20,
                                                .disk_bytes = 1u << 30,
                                                .cpu_milli = 1500,
                                                .pids = 256,
                                                .open_files = 1024},
                                     .max_ttl_ms = 3600000,
                                     .default_ttl_ms = 300000,
                                     .agent_timeout_ms = 300,
                                     .max_sandboxes = 4000,
                                     .agent_port = fake_agent_port(w->fake)};
    start_core(w);
    *state = w;
    return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    return remove(path);
}

static int teardown(void **state)
{
    struct world *w = *state;

    if (w->core)
        stop_core(w);
    fake_stop(w->fake);
    assert_int_equal(uv_run(&w->loop, UV_RUN_NOWAIT), 0);
    assert_int_equal(uv_loop_close(&w->loop), 0);
    nftw(w->dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    free(w);
    return 0;
}

static struct sandbox_request request(void)
{
    return (struct sandbox_request){
        .tenant = "default", .template_name = "host", .ttl_ms = 60000, .secure = true};
}

/* Creates one and waits for it. */
static void create(struct world *w, const struct sandbox_request *r,
                   char id[static IDS_SANDBOX_SIZE])
{
    struct answer a = {0};

    core_sandbox_create(w->core, r, on_answer, &a);
    assert_int_equal(a.calls, 0);
    run_until(w, &a.calls, 1);
    if (!a.good)
        fail_msg("create: %s", a.why.text);
    memcpy(id, a.id, IDS_SANDBOX_SIZE);
}

static void create_default(struct world *w, char id[static IDS_SANDBOX_SIZE])
{
    struct sandbox_request r = request();

    create(w, &r, id);
}

static struct answer create_fails(struct world *w, const struct sandbox_request *r)
{
    struct answer a = {0};

    core_sandbox_create(w->core, r, on_answer, &a);
    assert_int_equal(a.calls, 0);
    run_until(w, &a.calls, 1);
    assert_false(a.good);
    return a;
}

static int64_t query(struct world *w, const char *sql)
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

static int64_t rows(struct world *w)
{
    return query(w, "SELECT count(*) FROM sandboxes");
}

static size_t open_descriptors(void)
{
    DIR *d = opendir("/proc/self/fd");
    size_t n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

/* -- create and kill --------------------------------------------------------------------------- */

static void create_gives_a_running_sandbox_whose_agent_knows_it(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = request();
    char id[IDS_SANDBOX_SIZE], body[16384];
    const struct sandbox *s;
    json_t *init, *env;

    r.env = json_pack("{s:s, s:s}", "A", "1", "E2B_SANDBOX_ID", "mine");
    r.metadata = json_pack("{s:s}", "k", "v");
    create(w, &r, id);
    json_decref(r.env);
    json_decref(r.metadata);

    s = core_sandbox_find(w->core, "default", id);
    assert_non_null(s);
    assert_true(ids_is_sandbox(id));
    assert_int_equal(s->state, SANDBOX_RUNNING);
    assert_string_equal(s->template_id, "host");
    assert_int_equal(s->limits.pids, 256);
    assert_string_equal(json_string_value(json_object_get(s->metadata, "k")), "v");
    assert_null(s->env);
    assert_in_range(s->end_real_ms - clock_real_ms(), 58000, 60000);
    assert_ptr_equal(core_sandbox_find(w->core, NULL, id), s);
    assert_null(core_sandbox_find(w->core, "other", id));

    fake_init_body(w->fake, body, sizeof(body));
    init = json_loads(body, 0, NULL);
    assert_non_null(init);
    env = json_object_get(init, "envVars");
    assert_string_equal(json_string_value(json_object_get(env, "A")), "1");
    assert_string_equal(json_string_value(json_object_get(env, "E2B_SANDBOX_ID")), id);
    assert_string_equal(json_string_value(json_object_get(env, "E2B_SANDBOX")), "true");
    assert_string_equal(json_string_value(json_object_get(env, "E2B_TEMPLATE_ID")), "host");
    assert_string_equal(json_string_value(json_object_get(init, "defaultUser")), "user");
    json_decref(init);
    assert_int_equal(fake_counts(w->fake).bad_keys, 0);
    assert_int_equal(query(w, "SELECT state FROM sandboxes"), SANDBOX_RUNNING);
}

static void kill_leaves_nothing(void **state)
{
    struct world *w = *state;
    struct answer a = {0}, b = {0}, c = {0};
    char id[IDS_SANDBOX_SIZE];

    create_default(w, id);
    core_sandbox_kill(w->core, "other", id, on_answer, &c);
    core_sandbox_kill(w->core, "default", id, on_answer, &a);
    core_sandbox_kill(w->core, "default", id, on_answer, &b);
    assert_null(core_sandbox_find(w->core, NULL, id));
    assert_int_equal(a.calls + b.calls + c.calls, 0);
    run_until(w, &a.calls, 1);
    run_until(w, &b.calls, 1);
    run_until(w, &c.calls, 1);
    assert_true(a.good);
    assert_int_equal(b.why.code, ERR_NOT_FOUND);
    assert_int_equal(c.why.code, ERR_NOT_FOUND);
    assert_int_equal(rows(w), 0);
    assert_false(fake_lives(w->fake, id));
    assert_int_equal(fake_counts(w->fake).kills, 1);
}

static void a_refused_create_leaves_nothing_and_says_why(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = request();
    struct answer a;

    fake_set(w->fake, FAKE_FAIL_CREATES, 1);
    a = create_fails(w, &r);
    assert_int_equal(a.why.code, ERR_NO_SPACE);
    assert_non_null(strstr(a.why.text, "layer"));
    assert_int_equal(rows(w), 0);
}

static void an_agent_that_fails_undoes_the_create(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = request();
    struct answer a;

    fake_set(w->fake, FAKE_AGENT_STATUS, 500);
    a = create_fails(w, &r);
    assert_non_null(strstr(a.why.text, "500"));
    run_until_true(w, nothing_lives);
    run_for(w, 30);
    assert_int_equal(rows(w), 0);

    fake_set(w->fake, FAKE_AGENT_STATUS, 204);
    fake_set(w->fake, FAKE_AGENT_SILENT, 1);
    a = create_fails(w, &r);
    run_until_true(w, nothing_lives);
    run_for(w, 30);
    assert_int_equal(rows(w), 0);
}

static void create_checks_what_it_is_asked_for(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = request();
    struct answer a;

    r.template_name = "nonsense";
    a = create_fails(w, &r);
    assert_int_equal(a.why.code, ERR_NOT_FOUND);
    assert_non_null(strstr(a.why.text, "host, base"));
    r = request();
    r.ttl_ms = 3600001;
    assert_int_equal(create_fails(w, &r).why.code, ERR_INVALID);
    r.ttl_ms = -1;
    assert_int_equal(create_fails(w, &r).why.code, ERR_INVALID);
    assert_int_equal(fake_counts(w->fake).creates, 0);
}

static void the_number_of_sandboxes_is_bounded(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = request();
    char id[IDS_SANDBOX_SIZE];
    struct answer a;

    stop_core(w);
    w->config.max_sandboxes = 2;
    start_core(w);
    create_default(w, id);
    create_default(w, id);
    a = create_fails(w, &r);
    assert_int_equal(a.why.code, ERR_EXHAUSTED);
    assert_non_null(strstr(a.why.text, "2 of 2"));
}

static void a_kill_while_it_is_made_undoes_it(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = request();
    struct answer made = {0}, killed = {0}, again = {0};
    char id[IDS_SANDBOX_SIZE] = "";
    char path[100];
    sqlite3 *db;
    sqlite3_stmt *s;

    fake_set(w->fake, FAKE_HOLD_CREATES, 1);
    core_sandbox_create(w->core, &r, on_answer, &made);
    run_for(w, 30);
    snprintf(path, sizeof(path), "%s/cay.db", w->dir);
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    assert_int_equal(sqlite3_prepare_v2(db, "SELECT id FROM sandboxes", -1, &s, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(s), SQLITE_ROW);
    strncpy(id, (const char *)sqlite3_column_text(s, 0), sizeof(id) - 1);
    sqlite3_finalize(s);
    sqlite3_close(db);

    assert_null(core_sandbox_find(w->core, NULL, id));
    core_sandbox_kill(w->core, "default", id, on_answer, &killed);
    core_sandbox_kill(w->core, "default", id, on_answer, &again);
    run_until(w, &made.calls, 1);
    assert_int_equal(made.why.code, ERR_CANCELED);
    run_until(w, &again.calls, 1);
    assert_int_equal(again.why.code, ERR_NOT_FOUND);
    assert_int_equal(killed.calls, 0);
    fake_set(w->fake, FAKE_HOLD_CREATES, 0);
    run_until(w, &killed.calls, 1);
    assert_true(killed.good);
    assert_int_equal(rows(w), 0);
    assert_int_equal(fake_counts(w->fake).live, 0);
    assert_int_equal(made.calls, 1);
}

static void a_kill_that_fails_is_told_and_tried_again(void **state)
{
    struct world *w = *state;
    struct answer a = {0};
    char id[IDS_SANDBOX_SIZE];

    create_default(w, id);
    fake_set(w->fake, FAKE_FAIL_KILLS, 1);
    core_sandbox_kill(w->core, "default", id, on_answer, &a);
    run_until(w, &a.calls, 1);
    assert_false(a.good);
    run_until_true(w, nothing_lives);
    run_for(w, 30);
    assert_int_equal(rows(w), 0);
    assert_int_equal(a.calls, 1);
}

static void one_that_ends_by_itself_goes(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    create_default(w, id);
    fake_end(w->fake, id, PRIVSEP_CAUSE_OOM);
    run_for(w, 50);
    assert_null(core_sandbox_find(w->core, NULL, id));
    assert_int_equal(rows(w), 0);
}

static void a_thousand_creates_leave_nothing(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = request();
    static struct answer made[1000], killed[1000];
    size_t descriptors;
    uint64_t begun = clock_mono_us();

    memset(made, 0, sizeof(made));
    memset(killed, 0, sizeof(killed));
    run_for(w, 1200); /* stocks of earlier uses are dropped */
    descriptors = open_descriptors();
    for (size_t i = 0; i < ARRAY_SIZE(made); i += 50) {
        for (size_t k = i; k < i + 50; k++)
            core_sandbox_create(w->core, &r, on_answer, &made[k]);
        for (size_t k = i; k < i + 50; k++) {
            run_until(w, &made[k].calls, 1);
            assert_true(made[k].good);
        }
    }
    assert_int_equal(rows(w), 1000);
    print_message("# 1000 creates: %llu us each\n",
                  (unsigned long long)(clock_mono_us() - begun) / 1000u);
    for (size_t i = 0; i < ARRAY_SIZE(made); i++)
        core_sandbox_kill(w->core, "default", made[i].id, on_answer, &killed[i]);
    for (size_t i = 0; i < ARRAY_SIZE(made); i++) {
        run_until(w, &killed[i].calls, 1);
        assert_true(killed[i].good);
    }
    assert_int_equal(rows(w), 0);
    assert_int_equal(fake_counts(w->fake).live, 0);
    assert_int_equal(fake_counts(w->fake).connects, 1000);
    run_for(w, 100);
    /* The checkpoint thread may have opened the log meanwhile. */
    assert_in_range(open_descriptors(), 1, descriptors + 2);
}

/* -- time -------------------------------------------------------------------------------------- */

static void a_ttl_ends_it_in_time(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = request();
    char id[IDS_SANDBOX_SIZE];
    int64_t end;

    r.ttl_ms = 150;
    create(w, &r, id);
    end = core_sandbox_find(w->core, NULL, id)->end_real_ms;
    while (core_sandbox_find(w->core, NULL, id) && clock_real_ms() < end + 1000)
        uv_run(&w->loop, UV_RUN_ONCE);
    assert_in_range(clock_real_ms(), end - 1, end + 60);
    run_until_true(w, nothing_lives);
    run_for(w, 30);
    assert_int_equal(rows(w), 0);
}

static void a_ttl_is_extended_and_shortened_to_the_millisecond(void **state)
{
    struct world *w = *state;
    const struct sandbox *s = NULL;
    struct err e;
    char id[IDS_SANDBOX_SIZE];
    int64_t before, now;

    create_default(w, id);
    before = core_sandbox_find(w->core, NULL, id)->end_real_ms;
    assert_int_equal(core_sandbox_set_ttl(w->core, "default", id, 1000, true, &s, &e), ERR_OK);
    assert_int_equal(s->end_real_ms, before);
    now = clock_real_ms();
    assert_int_equal(core_sandbox_set_ttl(w->core, "default", id, 120000, true, &s, &e), ERR_OK);
    assert_in_range(s->end_real_ms, now + 120000, now + 120005);
    assert_int_equal(query(w, "SELECT end_ms FROM sandboxes"), s->end_real_ms);
    now = clock_real_ms();
    assert_int_equal(core_sandbox_set_ttl(w->core, "default", id, 100, false, &s, &e), ERR_OK);
    assert_in_range(s->end_real_ms, now + 100, now + 105);
    run_until_true(w, nothing_lives);
    assert_in_range(clock_real_ms() - now, 99, 1000);

    assert_int_equal(core_sandbox_set_ttl(w->core, "default", id, 100, false, &s, &e),
                     ERR_NOT_FOUND);
    assert_int_equal(core_sandbox_set_ttl(w->core, "default", id, 0, false, &s, &e), ERR_INVALID);
    assert_int_equal(core_sandbox_set_ttl(w->core, "default", id, 3600001, false, &s, &e),
                     ERR_INVALID);
}

/* -- privd and cayd go away -------------------------------------------------------------------- */

static void privd_gone_while_one_is_made(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = request();
    struct answer a = {0};

    fake_set(w->fake, FAKE_HOLD_CREATES, 1);
    core_sandbox_create(w->core, &r, on_answer, &a);
    run_for(w, 30);
    fake_down(w->fake);
    run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_UNAVAILABLE);
    assert_true(a.why.hint[0]);
    run_until_true(w, is_not_ready);
    assert_int_equal(create_fails(w, &r).why.code, ERR_UNAVAILABLE);
    fake_set(w->fake, FAKE_HOLD_CREATES, 0);
    fake_restart(w->fake, false);
    run_until_true(w, is_ready);
    run_for(w, 30);
    assert_int_equal(rows(w), 0);
    assert_int_equal(fake_counts(w->fake).live, 0);
}

static void a_restart_of_privd_keeps_what_lives(void **state)
{
    struct world *w = *state;
    struct answer a = {0};
    char kept[IDS_SANDBOX_SIZE], killed[IDS_SANDBOX_SIZE];

    create_default(w, kept);
    create_default(w, killed);
    fake_down(w->fake);
    run_until_true(w, is_not_ready);
    assert_non_null(core_sandbox_find(w->core, NULL, kept));
    core_sandbox_kill(w->core, NULL, killed, on_answer, &a);
    run_until(w, &a.calls, 1);
    assert_int_equal(a.why.code, ERR_UNAVAILABLE);
    fake_add_stray(w->fake, "istray");
    fake_restart(w->fake, false);
    run_until_true(w, is_ready);
    run_for(w, 50);
    assert_non_null(core_sandbox_find(w->core, NULL, kept));
    assert_true(fake_lives(w->fake, kept));
    assert_false(fake_lives(w->fake, killed));
    assert_false(fake_lives(w->fake, "istray"));
    assert_int_equal(rows(w), 1);
}

static void what_privd_lost_is_forgotten(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];

    create_default(w, id);
    fake_restart(w->fake, true);
    run_until_true(w, is_not_ready);
    run_until_true(w, is_ready);
    assert_null(core_sandbox_find(w->core, NULL, id));
    assert_int_equal(rows(w), 0);
}

/* In a process of its own: makes some, begins one more, and is killed. */
static NORETURN void be_killed(struct world *w, int out)
{
    struct sandbox_request r = request();
    struct answer unfinished = {0};
    char id[IDS_SANDBOX_SIZE];
    struct err e;

    uv_loop_fork(&w->loop);
    assert_int_equal(core_new(&w->loop, &w->config, fake_path(w->fake), &w->core, &e), ERR_OK);
    run_until_true(w, is_ready);
    for (int i = 0; i < 3; i++) {
        r.ttl_ms = i == 1 ? 100 : 60000;
        create(w, &r, id);
        if (write(out, id, sizeof(id)) != sizeof(id))
            abort();
    }
    fake_set(w->fake, FAKE_HOLD_CREATES, 1);
    core_sandbox_create(w->core, &r, on_answer, &unfinished);
    kill(getpid(), SIGKILL);
    abort();
}

static void what_lives_when_cayd_is_killed_is_served_by_the_next(void **state)
{
    struct world *w = *state;
    char ids[3][IDS_SANDBOX_SIZE];
    int fds[2], status;
    pid_t pid;

    stop_core(w);
    assert_int_equal(pipe(fds), 0);
    pid = fork();
    if (pid == 0)
        be_killed(w, fds[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    for (int i = 0; i < 3; i++)
        assert_int_equal(read(fds[0], ids[i], sizeof(ids[i])), sizeof(ids[i]));
    close(fds[0]);
    close(fds[1]);
    assert_int_equal(rows(w), 4);
    usleep(150000); /* the second one's time is over */

    start_core(w);
    run_for(w, 100);
    assert_non_null(core_sandbox_find(w->core, "default", ids[0]));
    assert_null(core_sandbox_find(w->core, "default", ids[1]));
    assert_false(fake_lives(w->fake, ids[1]));
    assert_non_null(core_sandbox_find(w->core, "default", ids[2]));
    assert_int_equal(fake_counts(w->fake).live, 2);
    assert_int_equal(rows(w), 2);
    assert_in_range(core_sandbox_find(w->core, "default", ids[0])->end_real_ms - clock_real_ms(),
                    50000, 60000);
}

static void a_stop_answers_everybody_and_keeps_what_lives(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = request();
    struct answer made = {0}, killed = {0}, built = {0};
    char id[IDS_SANDBOX_SIZE], other[IDS_SANDBOX_SIZE];

    create_default(w, id);
    create_default(w, other);
    fake_set(w->fake, FAKE_HOLD_CREATES, 1);
    fake_set(w->fake, FAKE_HOLD_KILLS, 1);
    fake_set(w->fake, FAKE_HOLD_JOBS, 1);
    core_sandbox_create(w->core, &r, on_answer, &made);
    core_sandbox_kill(w->core, NULL, other, on_answer, &killed);
    core_template_build(w->core, "base", NULL, on_answer, &built);
    run_for(w, 20);
    stop_core(w);
    assert_int_equal(made.calls, 1);
    assert_int_equal(made.why.code, ERR_CANCELED);
    assert_int_equal(killed.calls, 1);
    assert_int_equal(killed.why.code, ERR_CANCELED);
    assert_int_equal(built.calls, 1);
    fake_set(w->fake, FAKE_HOLD_CREATES, 0);
    fake_set(w->fake, FAKE_HOLD_KILLS, 0);
    fake_set(w->fake, FAKE_HOLD_JOBS, 0);
    start_core(w);
    run_for(w, 50);
    assert_non_null(core_sandbox_find(w->core, NULL, id));
    assert_int_equal(rows(w), 1);
    assert_int_equal(fake_counts(w->fake).live, 1);
}

/* -- keys and tokens --------------------------------------------------------------------------- */

static void keys_tell_tenants(void **state)
{
    struct world *w = *state;
    char key[CORE_TOKEN_SIZE], tenant[CORE_TENANT_SIZE];
    struct err e;

    assert_int_equal(core_key_create(w->core, "team-1", "ci", key, &e), ERR_OK);
    assert_int_equal(strlen(key), 44);
    assert_int_equal(core_authenticate(w->core, key, tenant, &e), ERR_OK);
    assert_string_equal(tenant, "team-1");
    key[43] = key[43] == '0' ? '1' : '0';
    assert_int_equal(core_authenticate(w->core, key, tenant, &e), ERR_UNAUTHENTICATED);
    assert_non_null(strstr(e.text, "not known"));
    assert_int_equal(core_authenticate(w->core, "e2b_XYZ", tenant, &e), ERR_UNAUTHENTICATED);
    assert_non_null(strstr(e.text, "malformed"));
    assert_int_equal(core_authenticate(w->core, NULL, tenant, &e), ERR_UNAUTHENTICATED);
    assert_int_equal(core_authenticate(w->core, "", tenant, &e), ERR_UNAUTHENTICATED);
    assert_non_null(strstr(e.text, "no API key"));
    assert_int_equal(core_key_create(w->core, "-x", "", key, &e), ERR_INVALID);
    assert_int_equal(core_key_create(w->core, "Team", "", key, &e), ERR_INVALID);
    assert_int_equal(core_key_create(w->core, "", "", key, &e), ERR_INVALID);
    assert_int_equal(query(w, "SELECT count(*) FROM api_keys WHERE length(hash) != 32"), 0);
}

static void tokens_outlive_a_restart_and_differ(void **state)
{
    struct world *w = *state;
    char a[CORE_TOKEN_SIZE + 1], b[CORE_TOKEN_SIZE + 1], path[100];
    struct stat st;

    core_sandbox_token(w->core, "iaaaaaaaaaaaaaaaaaaaa", a);
    core_sandbox_token(w->core, "iaaaaaaaaaaaaaaaaaaab", b);
    assert_int_equal(strlen(a), 64);
    assert_string_not_equal(a, b);
    stop_core(w);
    start_core(w);
    core_sandbox_token(w->core, "iaaaaaaaaaaaaaaaaaaaa", b);
    assert_string_equal(a, b);
    snprintf(path, sizeof(path), "%s/server.key", w->dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
}

/* -- templates --------------------------------------------------------------------------------- */

struct progress {
    unsigned calls, percent;
    char text[64];
    struct answer end;
};

static void on_progress(void *arg, unsigned percent, const char *text)
{
    struct progress *p = arg;

    p->calls++;
    p->percent = percent;
    snprintf(p->text, sizeof(p->text), "%s", text);
}

static void on_build_end(void *arg, const struct sandbox *s, const struct err *why)
{
    on_answer(&((struct progress *)arg)->end, s, why);
}

static void base_gives_host_until_it_is_built(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = request();
    struct progress p = {0};
    struct answer again = {0}, removed = {0};
    char id[IDS_SANDBOX_SIZE];

    r.template_name = "base:latest";
    create(w, &r, id);
    assert_string_equal(core_sandbox_find(w->core, NULL, id)->template_id, "host");
    assert_string_equal(core_sandbox_find(w->core, NULL, id)->template_asked, "base");
    assert_false(core_template_find(w->core, "base")->ready);
    assert_non_null(strstr(core_template_find(w->core, "base")->note, "cay template build base"));

    fake_set(w->fake, FAKE_HOLD_JOBS, 1);
    core_template_build(w->core, "base", on_progress, on_build_end, &p);
    core_template_build(w->core, "base", NULL, on_answer, &again);
    run_until(w, &again.calls, 1);
    assert_int_equal(again.why.code, ERR_CONFLICT);
    assert_true(core_template_find(w->core, "base")->building);
    run_until_true(w, has_job);
    fake_progress(w->fake, 40, "unpacking");
    run_until(w, &p.calls, 1);
    assert_int_equal(p.percent, 40);
    assert_string_equal(p.text, "unpacking");
    fake_set(w->fake, FAKE_HOLD_JOBS, 0);
    run_until(w, &p.end.calls, 1);
    assert_true(p.end.good);
    assert_true(core_template_find(w->core, "base")->ready);

    create(w, &r, id);
    assert_string_equal(core_sandbox_find(w->core, NULL, id)->template_id, "base");
    core_template_remove(w->core, "base", on_answer, &removed);
    run_until(w, &removed.calls, 1);
    assert_int_equal(removed.why.code, ERR_CONFLICT);
    assert_null(core_template_find(w->core, "base:v7"));
    assert_null(core_template_find(w->core, "bas"));
}

static void a_build_that_fails_says_why(void **state)
{
    struct world *w = *state;
    struct answer a = {0};

    fake_set(w->fake, FAKE_FAIL_JOBS, 1);
    core_template_build(w->core, "base", NULL, on_answer, &a);
    run_until(w, &a.calls, 1);
    assert_false(a.good);
    assert_false(core_template_find(w->core, "base")->building);
    assert_non_null(strstr(core_template_find(w->core, "base")->note, "last build failed"));
}

/* -- sockets, metrics, logs, status ------------------------------------------------------------ */

struct sockets {
    unsigned calls;
    size_t n;
    struct err why;
};

static void on_sockets(void *arg, int *fds, size_t n, const struct err *why)
{
    struct sockets *s = arg;

    s->calls++;
    s->n = n;
    s->why = why ? *why : (struct err){0};
    for (size_t i = 0; i < n; i++)
        assert_int_equal(close(fds[i]), 0);
}

static void sockets_come_in_batches_and_an_idle_sandbox_holds_none(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct sockets s = {0};
    size_t before;
    unsigned asked;

    create_default(w, id);
    run_for(w, 1100);
    before = open_descriptors();
    asked = fake_counts(w->fake).connects;
    for (unsigned i = 1; i <= 10; i++) {
        core_sandbox_sockets(w->core, id, 1, on_sockets, &s);
        assert_int_equal(s.calls, i - 1);
        run_until(w, &s.calls, i);
        assert_int_equal(s.n, 1);
    }
    assert_in_range(fake_counts(w->fake).connects - asked, 1, 4);
    run_for(w, 1200);
    assert_int_equal(open_descriptors(), before);
    core_sandbox_sockets(w->core, id, 17, on_sockets, &s);
    run_until(w, &s.calls, 11);
    assert_int_equal(s.why.code, ERR_INVALID);
    core_sandbox_sockets(w->core, "inobody", 1, on_sockets, &s);
    run_until(w, &s.calls, 12);
    assert_int_equal(s.why.code, ERR_NOT_FOUND);
}

struct samples {
    unsigned calls;
    size_t n;
    struct sandbox_metric last;
    struct err why;
};

static void on_samples(void *arg, const struct sandbox_metric *items, size_t n,
                       const struct err *why)
{
    struct samples *s = arg;

    s->calls++;
    s->n = n;
    s->why = why ? *why : (struct err){0};
    if (n)
        s->last = items[n - 1];
}

static void metrics_are_fresh_and_bounded_by_the_window(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct samples s = {0};
    unsigned stats;

    create_default(w, id);
    core_sandbox_metrics(w->core, "default", id, 0, 0, on_samples, &s);
    core_sandbox_metrics(w->core, "default", id, 0, 0, on_samples, &s);
    assert_int_equal(s.calls, 0);
    run_until(w, &s.calls, 2);
    assert_int_equal(s.n, 1);
    assert_int_equal(s.last.cpu_count, 2);
    assert_true(s.last.memory_used_bytes == 1u << 20);
    stats = fake_counts(w->fake).stats;
    core_sandbox_metrics(w->core, "default", id, 1, 2, on_samples, &s);
    run_until(w, &s.calls, 3);
    assert_int_equal(s.n, 0);
    assert_int_equal(s.why.code, ERR_OK);
    assert_int_equal(fake_counts(w->fake).stats, stats);
    core_sandbox_metrics(w->core, "other", id, 0, 0, on_samples, &s);
    run_until(w, &s.calls, 4);
    assert_int_equal(s.why.code, ERR_NOT_FOUND);
}

struct lines {
    unsigned calls;
    size_t n;
    char text[1024];
};

static void on_lines(void *arg, const struct sandbox_log *items, size_t n, const struct err *why)
{
    struct lines *l = arg;

    l->calls++;
    l->n = n;
    l->text[0] = '\0';
    for (size_t i = 0; i < n; i++) {
        assert_true(i == 0 || items[i].at_real_ms >= items[i - 1].at_real_ms);
        strncat(l->text, items[i].message, sizeof(l->text) - strlen(l->text) - 1);
        strncat(l->text, "|", sizeof(l->text) - strlen(l->text) - 1);
    }
}

static void logs_are_merged_and_survive_a_silent_agent(void **state)
{
    struct world *w = *state;
    char id[IDS_SANDBOX_SIZE];
    struct lines l = {0};

    create_default(w, id);
    core_sandbox_logs(w->core, "default", id, on_lines, &l);
    run_until(w, &l.calls, 1);
    assert_int_equal(l.n, 2);
    assert_ptr_equal(strstr(l.text, "process 7 started"), l.text);
    assert_non_null(strstr(l.text, "sandbox started from template host"));
    core_sandbox_logs(w->core, "other", id, on_lines, &l);
    run_until(w, &l.calls, 2);
    assert_int_equal(l.n, 0);
    fake_down(w->fake);
    run_for(w, 1100);
    core_sandbox_logs(w->core, "default", id, on_lines, &l);
    run_until(w, &l.calls, 3);
    assert_int_equal(l.n, 2);
    assert_non_null(strstr(l.text, "could not be read"));
}

static void on_status(void *arg, const struct core_status *s)
{
    *(struct core_status *)arg = *s;
}

static bool has_status;

static void on_status_flag(void *arg, const struct core_status *s)
{
    has_status = true;
    on_status(arg, s);
}

static bool status_came(struct world *w)
{
    return has_status;
}

static void status_tells_with_and_without_privd(void **state)
{
    struct world *w = *state;
    struct core_status s = {0};

    has_status = false;
    core_status(w->core, on_status_flag, &s);
    run_until_true(w, status_came);
    assert_true(s.privd_up && s.ready);
    assert_string_equal(s.disk_backend, "memory");
    fake_down(w->fake);
    run_until_true(w, is_not_ready);
    has_status = false;
    core_status(w->core, on_status_flag, &s);
    assert_false(has_status);
    run_until_true(w, status_came);
    assert_false(s.privd_up);
}

/* -- listings ---------------------------------------------------------------------------------- */

static size_t list_all(struct world *w, struct sandbox_filter f, char (*out)[IDS_SANDBOX_SIZE],
                       size_t max)
{
    char cursor[IDS_SANDBOX_SIZE];
    struct sandbox_page page;
    size_t n = 0;
    struct err e;

    do {
        CLEANUP_ARENA struct arena a;

        arena_init(&a, 1u << 20);
        assert_int_equal(core_sandbox_list(w->core, &f, &a, &page, &e), ERR_OK);
        assert_in_range(page.count, 0, f.limit);
        for (size_t i = 0; i < page.count; i++) {
            assert_in_range(n, 0, max - 1);
            memcpy(out[n++], page.items[i]->id, IDS_SANDBOX_SIZE);
        }
        if (page.count) {
            f.cursor_ms = page.items[page.count - 1]->started_real_ms;
            memcpy(cursor, page.items[page.count - 1]->id, sizeof(cursor));
            f.cursor_id = cursor;
        }
    } while (page.more);
    return n;
}

static void listings_are_ordered_filtered_and_paged(void **state)
{
    struct world *w = *state;
    struct sandbox_request r = request();
    struct sandbox_filter f = {.tenant = "default", .limit = 3};
    char up[32][IDS_SANDBOX_SIZE], down[32][IDS_SANDBOX_SIZE], id[IDS_SANDBOX_SIZE];
    struct sandbox_page page;
    CLEANUP_ARENA struct arena a;
    struct err e;
    size_t n;

    for (int i = 0; i < 10; i++) {
        r.metadata = json_pack("{s:s, s:i}", "odd", i % 2 ? "yes" : "no", "n", i);
        create(w, &r, id);
        json_decref(r.metadata);
    }
    r.metadata = NULL;
    r.tenant = "other";
    create(w, &r, id);

    f.ascending = true;
    n = list_all(w, f, up, 32);
    f.ascending = false;
    assert_int_equal(n, 10);
    assert_int_equal(list_all(w, f, down, 32), 10);
    for (size_t i = 0; i < n; i++) {
        assert_string_equal(up[i], down[n - 1 - i]);
        assert_true(i == 0 || core_sandbox_find(w->core, NULL, up[i - 1])->started_real_ms <=
                                  core_sandbox_find(w->core, NULL, up[i])->started_real_ms);
    }
    f.metadata = json_pack("{s:s}", "odd", "yes");
    assert_int_equal(list_all(w, f, down, 32), 5);
    json_decref((json_t *)f.metadata);
    f.metadata = json_pack("{s:s}", "none", "yes");
    assert_int_equal(list_all(w, f, down, 32), 0);
    json_decref((json_t *)f.metadata);
    f.metadata = NULL;
    f.paused = true;
    assert_int_equal(list_all(w, f, down, 32), 0);
    f.paused = false;
    f.template_name = "base";
    assert_int_equal(list_all(w, f, down, 32), 0);
    f.template_name = "nonsense";
    assert_int_equal(list_all(w, f, down, 32), 0);
    f.template_name = "host";
    f.started_after_ms = core_sandbox_find(w->core, NULL, up[9])->started_real_ms;
    assert_in_range(list_all(w, f, down, 32), 1, 9);

    arena_init(&a, 1u << 20);
    f = (struct sandbox_filter){.tenant = "default", .limit = 3};
    assert_int_equal(core_sandbox_list(w->core, &f, &a, &page, &e), ERR_OK);
    assert_true(page.more);
    assert_int_equal(page.total_running, 10);
    f.limit = 10;
    assert_int_equal(core_sandbox_list(w->core, &f, &a, &page, &e), ERR_OK);
    assert_false(page.more);
    f.limit = 1001;
    assert_int_equal(core_sandbox_list(w->core, &f, &a, &page, &e), ERR_INVALID);
}

static void the_network_is_written_through(void **state)
{
    struct world *w = *state;
    json_t *network = json_pack("{s:[s]}", "denyOut", "0.0.0.0/0");
    char id[IDS_SANDBOX_SIZE];
    struct err e;

    create_default(w, id);
    assert_int_equal(core_sandbox_set_network(w->core, "default", id, network, true, &e), ERR_OK);
    json_decref(network);
    stop_core(w);
    start_core(w);
    assert_non_null(json_object_get(core_sandbox_find(w->core, NULL, id)->network, "denyOut"));
    assert_true(core_sandbox_find(w->core, NULL, id)->allow_internet);
    assert_int_equal(core_sandbox_set_network(w->core, "default", id, NULL, false, &e), ERR_OK);
    assert_null(core_sandbox_find(w->core, NULL, id)->network);
    assert_int_equal(core_sandbox_set_network(w->core, "other", id, NULL, false, &e),
                     ERR_NOT_FOUND);
}

#define WORLD(test) cmocka_unit_test_setup_teardown(test, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WORLD(create_gives_a_running_sandbox_whose_agent_knows_it),
        WORLD(kill_leaves_nothing),
        WORLD(a_refused_create_leaves_nothing_and_says_why),
        WORLD(an_agent_that_fails_undoes_the_create),
        WORLD(create_checks_what_it_is_asked_for),
        WORLD(the_number_of_sandboxes_is_bounded),
        WORLD(a_kill_while_it_is_made_undoes_it),
        WORLD(a_kill_that_fails_is_told_and_tried_again),
        WORLD(one_that_ends_by_itself_goes),
        WORLD(a_ttl_ends_it_in_time),
        WORLD(a_ttl_is_extended_and_shortened_to_the_millisecond),
        WORLD(privd_gone_while_one_is_made),
        WORLD(a_restart_of_privd_keeps_what_lives),
        WORLD(what_privd_lost_is_forgotten),
        WORLD(what_lives_when_cayd_is_killed_is_served_by_the_next),
        WORLD(a_stop_answers_everybody_and_keeps_what_lives),
        WORLD(keys_tell_tenants),
        WORLD(tokens_outlive_a_restart_and_differ),
        WORLD(base_gives_host_until_it_is_built),
        WORLD(a_build_that_fails_says_why),
        WORLD(sockets_come_in_batches_and_an_idle_sandbox_holds_none),
        WORLD(metrics_are_fresh_and_bounded_by_the_window),
        WORLD(logs_are_merged_and_survive_a_silent_agent),
        WORLD(status_tells_with_and_without_privd),
        WORLD(listings_are_ordered_filtered_and_paged),
        WORLD(the_network_is_written_through),
        WORLD(a_thousand_creates_leave_nothing),
    };

    return cmocka_run_group_tests_name("core", tests, NULL, NULL);
}
