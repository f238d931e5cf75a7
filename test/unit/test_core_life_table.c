/* The table of a sandbox's life (core/life.h) by itself: rules that hold for every row, and that
 * docs/architecture.md says the same. */
#include "base/util.h"
#include "core/life.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define PAGE_MAX 65536u

/* -- the table itself --------------------------------------------------------------------------- */

static void every_life_ends_by_steps_of_the_table(void **state)
{
    for (int i = 0; i < SANDBOX_STATE_COUNT; i++) {
        const struct life *life = life_of((enum sandbox_state)i);
        bool last = i == SANDBOX_ENDED;

        if (!life->name)
            fail_msg("core/life.c has no row for state %d", i);
        assert_int_equal(life->next == 0, last);
        if (!last && i != SANDBOX_ENDING)
            assert_true(life_may_move((enum sandbox_state)i, SANDBOX_ENDING));
        assert_int_equal(life->visible, life->group != LIFE_GROUP_NONE);
        assert_int_equal(life->visible, life->pause != LIFE_CALL_NOT_FOUND);
        assert_int_equal(life->visible, life->resume != LIFE_CALL_NOT_FOUND);
        assert_true(!life->reachable || life->visible);
        assert_int_equal(life->gone, last);
        assert_int_equal(life->wakes, life->visible && !life->reachable);
        assert_int_equal(life->change != LIFE_CHANGE_NONE, life->timer == LIFE_TIMER_CHANGE);
        assert_int_not_equal(life->at_start, LIFE_START_REFUSE);
    }
}

static void what_is_no_state_is_granted_nothing(void **state)
{
    const struct life *none = life_of((enum sandbox_state)SANDBOX_STATE_COUNT);

    assert_string_equal(none->name, "unknown");
    assert_int_equal(none->next, 0);
    assert_false(none->visible || none->reachable || none->policy);
    assert_int_equal(none->kill, LIFE_CALL_NOT_FOUND);
    assert_ptr_equal(life_of((enum sandbox_state) - 1), none);
    assert_false(life_may_move(SANDBOX_RUNNING, SANDBOX_STATE_COUNT));
}

/* -- the table of the documentation ------------------------------------------------------------- */

static const char *const starts[] = {
    [LIFE_START_REFUSE] = "refuse", [LIFE_START_UNDO] = "undo", [LIFE_START_RUN] = "run",
    [LIFE_START_FILES] = "files",   [LIFE_START_END] = "end",   [LIFE_START_DELETE] = "delete"};
static const char *const timers[] = {
    [LIFE_TIMER_NONE] = "none", [LIFE_TIMER_CREATE] = "create", [LIFE_TIMER_LIFETIME] = "lifetime",
    [LIFE_TIMER_KILL] = "kill", [LIFE_TIMER_CHANGE] = "change", [LIFE_TIMER_REST] = "rest"};
static const char *const missing_names[] = {[LIFE_MISSING_LOST] = "ended: lost",
                                            [LIFE_MISSING_DONE] = "ended",
                                            [LIFE_MISSING_FILES] = "files",
                                            [LIFE_MISSING_WAIT] = "wait"};
static const char *const listeds[] = {
    [LIFE_LISTED_END] = "ended",        [LIFE_LISTED_KEEP] = "keep",
    [LIFE_LISTED_SETTLE] = "settle",    [LIFE_LISTED_RUNS] = "runs",
    [LIFE_LISTED_AGAIN] = "kept again", [LIFE_LISTED_KILL] = "kill again",
    [LIFE_LISTED_WAIT] = "wait"};
static const char *const exits[] = {[LIFE_EXIT_ENDED] = "ended", [LIFE_EXIT_WAIT] = "wait"};
static const char *const calls[] = {
    [LIFE_CALL_NOT_FOUND] = "not found", [LIFE_CALL_DO] = "done",
    [LIFE_CALL_WAIT] = "waits",          [LIFE_CALL_ALREADY] = "already",
    [LIFE_CALL_UNDER_WAY] = "under way", [LIFE_CALL_END] = "ended"};
static const char *const groups[] = {
    [LIFE_GROUP_NONE] = "no", [LIFE_GROUP_RUNNING] = "running", [LIFE_GROUP_PAUSED] = "paused"};

static const char *yes(bool value)
{
    return value ? "yes" : "no";
}

static json_t *next_names(const struct life *life)
{
    json_t *names = json_string("");

    for (int to = 0; to < SANDBOX_STATE_COUNT; to++) {
        const char *so_far = json_string_value(names);
        json_t *longer;

        if (!(life->next & LIFE_STEP(to)))
            continue;
        longer = json_sprintf("%s%s%s", so_far, *so_far ? ", " : "",
                              life_of((enum sandbox_state)to)->name);
        json_decref(names);
        names = longer;
    }
    return names;
}

static void print_row(const struct life *l, char *out, size_t size)
{
    json_t *names = next_names(l);
    const char *next = json_string_value(names);

    (void)snprintf(out, size,
                   "| %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s | %s |\n",
                   l->name, *next ? next : "none", starts[l->at_start], timers[l->timer],
                   listeds[l->listed], missing_names[l->missing], exits[l->exit], calls[l->kill],
                   calls[l->pause], calls[l->resume], groups[l->group], yes(l->visible),
                   yes(l->reachable), yes(l->policy), yes(!l->gone));
    json_decref(names);
}

static void the_architecture_page_has_this_table(void **state)
{
    const char *path = getenv("CAY_ARCHITECTURE_DOC");
    static char page[PAGE_MAX];
    FILE *f = path ? fopen(path, "re") : NULL;
    const char *from, *end;
    char row[1024];

    assert_non_null(f);
    page[fread(page, 1, sizeof(page) - 1, f)] = '\0';
    fclose(f);
    from = strstr(page, "<!-- table: life -->\n");
    assert_non_null(from);
    end = strstr(from, "<!-- end -->");
    assert_non_null(end);
    for (int i = 0; i < 3; i++) /* mark, head, line */
        from = strchr(from, '\n') + 1;
    for (int i = 0; i < SANDBOX_STATE_COUNT; i++) {
        print_row(life_of((enum sandbox_state)i), row, sizeof(row));
        if (strncmp(from, row, strlen(row)) != 0)
            fail_msg("docs/architecture.md lacks, in its place: %s", row);
        from += strlen(row);
    }
    assert_ptr_equal(from, end);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_life_ends_by_steps_of_the_table),
        cmocka_unit_test(what_is_no_state_is_granted_nothing),
        cmocka_unit_test(the_architecture_page_has_this_table),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
