/* Units of cay-init's watched trees and the queue of their events. */
#include "agent/fs/fs_remove.h"
#include "agent/watch/watch_queue.h"
#include "agent/watch/watch_tree.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

#define REPORTED_MAX 4096

struct world {
    uv_loop_t loop;
    char top[64];
    struct watch_tree *tree;
    size_t dirs;
    bool ready, timed_out;
    int error;
    unsigned lost, reported_count;
    char *told[REPORTED_MAX]; /* "create name" */
    bool close_on_event;
};

static struct world *w;

static void on_ready(void *arg)
{
    w->ready = true;
    uv_stop(&w->loop);
}

static void on_event(void *arg, enum watch_type type, const char *name, const char *path)
{
    static const char *const words[] = {"create", "write", "remove", "rename", "chmod"};
    char text[AGENT_PATH_SIZE + 16], want[2 * AGENT_PATH_SIZE];

    snprintf(want, sizeof(want), "%s/%s", w->top, name);
    assert_string_equal(path, strcmp(name, ".") == 0 ? w->top : want);
    snprintf(text, sizeof(text), "%s %s", words[type], name);
    assert_true(w->reported_count < REPORTED_MAX);
    w->told[w->reported_count++] = strdup(text);
    if (w->close_on_event) {
        watch_tree_close(w->tree);
        w->tree = NULL;
    }
}

static void on_lost(void *arg)
{
    w->lost++;
}

static void on_error(void *arg, int error)
{
    w->error = error;
    watch_tree_close(w->tree);
    w->tree = NULL;
    uv_stop(&w->loop);
}

static const struct watch_tree_callbacks callbacks = {on_ready, on_event, on_lost, on_error};

static void time_out(uv_timer_t *timer)
{
    w->timed_out = true;
    uv_stop(timer->loop);
}

static void run_ms(uint64_t ms)
{
    uv_timer_t timer;

    uv_timer_init(&w->loop, &timer);
    uv_timer_start(&timer, time_out, ms, 0);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(&w->loop, UV_RUN_NOWAIT);
}

static int set_up(void **state)
{
    w = calloc(1, sizeof(*w));
    snprintf(w->top, sizeof(w->top), "/tmp/cay-agent-watch-XXXXXX");
    uv_loop_init(&w->loop);
    return mkdtemp(w->top) ? 0 : -1;
}

static void forget_reported(void)
{
    while (w->reported_count > 0)
        free(w->told[--w->reported_count]);
}

static int tear_down(void **state)
{
    struct fs_remover *r;
    int left = 0;

    watch_tree_close(w->tree);
    uv_run(&w->loop, UV_RUN_DEFAULT);
    left |= uv_loop_close(&w->loop) != 0; /* a handle was left open */
    left |= w->dirs != 0;
    if (fs_remover_new(w->top, &r) == 0) {
        while (fs_remover_step(r) == 1)
            ;
        fs_remover_free(r);
    }
    forget_reported();
    free(w);
    return left ? -1 : 0;
}

static void open_tree(bool recursive)
{
    assert_int_equal(
        watch_tree_new(&w->loop, w->top, recursive, &w->dirs, &callbacks, NULL, &w->tree), 0);
    run_ms(5000);
    assert_true(w->ready || w->error);
}

static void sh(const char *script)
{
    char command[1024];

    snprintf(command, sizeof(command), "cd %s && %s", w->top, script);
    assert_int_equal(system(command), 0);
}

/* Events and scans of what was done take turns of the loop, and on a busy machine there may be few
 * in any time. */
static void settle_ms(uint64_t ms)
{
    run_ms(ms);
    for (int i = 0; i < 200; i++)
        uv_run(&w->loop, UV_RUN_NOWAIT);
}

static void assert_reported(const char *const *want, size_t count)
{
    settle_ms(100);
    for (size_t i = 0; i < MIN(count, (size_t)w->reported_count); i++)
        assert_string_equal(w->told[i], want[i]);
    assert_int_equal(w->reported_count, count);
    forget_reported();
}

#define TOLD(...)                                       \
    assert_reported((const char *const[]){__VA_ARGS__}, \
                    sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *))

/* inotify has it after the directory's watch, and a scan of the directory comes upon it too. */
static void a_write_before_the_scan(void **state)
{
    open_tree(true);
    sh("mkdir d");
    uv_run(&w->loop, UV_RUN_NOWAIT); /* d is watched; its scan is to come */
    sh("echo x > d/f");
    TOLD("create d", "create d/f", "write d/f");
    sh("mkdir e");
    uv_run(&w->loop, UV_RUN_NOWAIT);
    sh(": > e/f && echo x >> e/f"); /* two writes in a row would be one event */
    TOLD("create e", "create e/f", "write e/f");
}

/* inotify has nothing of it. */
static void a_write_before_the_watch(void **state)
{
    open_tree(true);
    sh("mkdir d && echo x > d/f && : > d/g");
    settle_ms(100);
    assert_int_equal(w->reported_count, 4);
    assert_string_equal(w->told[0], "create d");
    assert_string_equal(w->told[3], "write d/f");
    forget_reported();
    sh("mkdir e && echo x > e/f");
    uv_run(&w->loop, UV_RUN_NOWAIT);
    sh("echo y >> e/f");
    TOLD("create e", "create e/f", "write e/f");
}

/* The name is older than the directory's watch, its write is not: the write's event is read before
 * the scan comes upon the name. */
static void a_write_after_the_watch_to_an_older_name(void **state)
{
    open_tree(true);
    sh("mkdir d && : > d/f && : > d/g && : > d/gone && mkdir d/sub");
    uv_run(&w->loop, UV_RUN_NOWAIT); /* d is watched; its scan is to come */
    sh("echo x > d/f; chmod 600 d/g; rm d/gone; echo y >> d/f; : > d/sub/i");
    watch_tree_catch_up(w->tree);
    TOLD("create d", "create d/f", "write d/f", "create d/g", "chmod d/g", "create d/gone",
         "remove d/gone", "write d/f", "create d/sub", "create d/sub/i");
}

/* A client that asks right after its own changes: nothing was read and no turn of the loop passed. */
static void what_was_done_before_catching_up_is_told(void **state)
{
    static const char *const want[] = {"create d", "create d/e", "create d/e/f", "write d/e/f"};

    open_tree(true);
    sh("mkdir -p d/e && echo x > d/e/f");
    watch_tree_catch_up(w->tree);
    assert_int_equal(w->reported_count, ARRAY_SIZE(want));
    for (size_t i = 0; i < ARRAY_SIZE(want); i++)
        assert_string_equal(w->told[i], want[i]);
    forget_reported();
    sh("echo y >> d/e/f");
    TOLD("write d/e/f");
}

static void one_directory(void **state)
{
    sh("mkdir sub");
    open_tree(false);
    sh("echo 1 > a; mv a b; chmod 600 b; rm b; echo x > sub/f; rmdir sub 2>/dev/null || true");
    TOLD("create a", "write a", "rename a", "create b", "chmod b", "remove b");
    sh("chmod 700 .");
    TOLD("chmod .");
    assert_int_equal(w->dirs, 1);
}

static void a_tree_keeps_up_with_moves(void **state)
{
    sh("mkdir -p a/b/c other ../$(basename $PWD)-out");
    open_tree(true);
    assert_int_equal(w->dirs, 5);
    sh("mv a/b other/moved; touch other/moved/c/f");
    TOLD("rename a/b", "create other/moved", "create other/moved/c/f", "chmod other/moved/c/f");
    assert_int_equal(w->dirs, 5);
    sh("mv other ../$(basename $PWD)-out/");
    TOLD("rename other");
    settle_ms(400); /* it is given up as moved out */
    assert_int_equal(w->dirs, 2);
    sh("touch ../$(basename $PWD)-out/other/moved/c/g");
    settle_ms(100);
    assert_int_equal(w->reported_count, 0);
    sh("mv ../$(basename $PWD)-out/other back; rmdir ../$(basename $PWD)-out");
    TOLD("create back");
    assert_int_equal(w->dirs, 5);
    sh("touch back/moved/c/h");
    TOLD("create back/moved/c/h", "chmod back/moved/c/h");
    sh("rm back/moved/c/?; rm -r back a");
    TOLD("remove back/moved/c/f", "remove back/moved/c/g", "remove back/moved/c/h",
         "remove back/moved/c", "remove back/moved", "remove back", "remove a");
    assert_int_equal(w->dirs, 1);
}

static void what_was_there_first_is_told_once(void **state)
{
    open_tree(true);
    sh("mkdir -p d/e; echo x > d/e/f; : > d/g");
    settle_ms(200);
    assert_string_equal(w->told[0], "create d");
    for (unsigned i = 0; i < w->reported_count; i++)
        for (unsigned k = 0; k < i; k++)
            assert_string_not_equal(w->told[i], w->told[k]);
    assert_int_equal(w->reported_count, 5);
    assert_int_equal(w->dirs, 3);
}

static void the_number_of_directories_is_bounded(void **state)
{
    sh("mkdir -p 1 2 3 4");
    w->dirs = WATCH_TREE_DIRS_MAX - 3;
    open_tree(true);
    assert_int_equal(w->error, -ENOSPC);
    assert_int_equal(w->dirs, WATCH_TREE_DIRS_MAX - 3);
    w->dirs = 0;
}

static void a_limit_that_is_reached_later_is_told(void **state)
{
    open_tree(true);
    w->dirs = WATCH_TREE_DIRS_MAX;
    sh("mkdir more");
    TOLD("create more");
    assert_int_equal(w->lost, 1);
    w->dirs = 1;
}

static void it_may_be_closed_from_a_callback(void **state)
{
    open_tree(true);
    w->close_on_event = true;
    sh("touch a b c");
    settle_ms(100);
    assert_int_equal(w->reported_count, 1);
    assert_null(w->tree);
}

static void the_root_that_goes_is_told(void **state)
{
    open_tree(true);
    sh("rmdir $PWD");
    TOLD("remove .");
}

static void a_full_queue_drops_the_oldest_and_says_so(void **state)
{
    struct watch_queue q;
    char name[32];
    unsigned count = 0;

    watch_queue_init(&q);
    for (unsigned i = 0; i < WATCH_QUEUE_EVENTS_MAX + 5; i++) {
        snprintf(name, sizeof(name), "f%u", i);
        watch_queue_add(&q, WATCH_CREATE, name, NULL);
    }
    for (;; count++) {
        CLEANUP_BUF struct buf out;
        json_t *j;

        buf_init(&out, 4096);
        if (watch_queue_take(&q, &out) == 0)
            break;
        j = json_loadb(out.data, out.len, 0, NULL);
        assert_non_null(j);
        snprintf(name, sizeof(name), "f%u", count + 5);
        assert_string_equal(json_string_value(json_object_get(j, "name")), name);
        assert_int_equal(json_is_true(json_object_get(j, "overflowed")), count == 0);
        json_decref(j);
    }
    assert_int_equal(count, WATCH_QUEUE_EVENTS_MAX);
    assert_int_equal(q.bytes, 0);
    watch_queue_free(&q);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        CASE(one_directory),
        CASE(a_tree_keeps_up_with_moves),
        CASE(what_was_there_first_is_told_once),
        CASE(a_write_before_the_scan),
        CASE(a_write_before_the_watch),
        CASE(a_write_after_the_watch_to_an_older_name),
        CASE(what_was_done_before_catching_up_is_told),
        CASE(the_number_of_directories_is_bounded),
        CASE(a_limit_that_is_reached_later_is_told),
        CASE(it_may_be_closed_from_a_callback),
        CASE(the_root_that_goes_is_told),
        cmocka_unit_test(a_full_queue_drops_the_oldest_and_says_so),
    };

    return cmocka_run_group_tests_name("agent_watch", tests, NULL, NULL);
}
