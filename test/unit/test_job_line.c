/* The lines of a job, as they come: in pieces, too long, or with bytes that are not to be shown. */
#include "base/util.h"
#include "privd/job_line.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct heard {
    unsigned n;
    struct job_said last;
    char text[JOB_LINE_MAX];
};

static void on_said(void *arg, const struct job_said *said)
{
    struct heard *h = arg;

    h->n++;
    h->last = *said;
    snprintf(h->text, sizeof(h->text), "%s", said->text);
}

static void each_form_is_read(void **state)
{
    static const struct {
        const char *line;
        struct job_said said;
        const char *text;
    } cases[] = {
        {"P 40 copying\n", {JOB_SAID_PROGRESS, 40, 0}, "copying"},
        {"P 999999999999999999999 over\n", {JOB_SAID_PROGRESS, 100, 0}, "over"},
        {"P 7\n", {JOB_SAID_PROGRESS, 7, 0}, ""},
        {"E 28 the disk is full\n", {JOB_SAID_FAILURE, 100, -ENOSPC}, "the disk is full"},
        {"E 0 none\n", {JOB_SAID_FAILURE, 100, -EIO}, "none"},
        {"E 4096 beyond\n", {JOB_SAID_FAILURE, 100, -EIO}, "beyond"},
        {"E 5 a\tb\x1b[31m\xc3\xa4\n", {JOB_SAID_FAILURE, 100, -EIO}, "a?b?[31m??"},
        {"E -5 minus\n", {JOB_SAID_OTHER, 0, 0}, "E -5 minus"},
        {"P40 copying\n", {JOB_SAID_OTHER, 0, 0}, "P40 copying"},
        {"Q 40 copying\n", {JOB_SAID_OTHER, 0, 0}, "Q 40 copying"},
        {"\n", {JOB_SAID_OTHER, 0, 0}, ""},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct job_line l = {.len = 0};
        struct heard h = {.n = 0};

        job_line_take(&l, cases[i].line, strlen(cases[i].line), on_said, &h);
        assert_int_equal(h.n, 1);
        assert_int_equal(h.last.kind, cases[i].said.kind);
        assert_int_equal(h.last.percent, cases[i].said.percent);
        assert_int_equal(h.last.failure, cases[i].said.failure);
        assert_string_equal(h.text, cases[i].text);
    }
}

static void a_line_may_come_in_pieces(void **state)
{
    static const char bytes[] = "P 1 one\nE 2 two\nP 3";
    struct job_line l = {.len = 0};
    struct heard h = {.n = 0};

    for (size_t i = 0; i < sizeof(bytes) - 1; i++)
        job_line_take(&l, bytes + i, 1, on_said, &h);
    assert_int_equal(h.n, 2);
    assert_int_equal(h.last.failure, -ENOENT);
    job_line_take(&l, " three\n", 7, on_said, &h);
    assert_int_equal(h.n, 3);
    assert_int_equal(h.last.percent, 3);
    assert_string_equal(h.text, "three");
}

static void of_a_long_line_the_rest_is_dropped(void **state)
{
    struct job_line l = {.len = 0};
    struct heard h = {.n = 0};

    job_line_take(&l, "P 5 ", 4, on_said, &h);
    for (unsigned i = 0; i < 3 * JOB_LINE_MAX; i++)
        job_line_take(&l, "x", 1, on_said, &h);
    job_line_take(&l, "\nP 6 next\n", 10, on_said, &h);
    assert_int_equal(h.n, 2);
    assert_string_equal(h.text, "next");
    job_line_take(&l, "P 7 ", 4, on_said, &h);
    for (unsigned i = 0; i < 3 * JOB_LINE_MAX; i++)
        job_line_take(&l, "y", 1, on_said, &h);
    job_line_take(&l, "\n", 1, on_said, &h);
    assert_int_equal(strlen(h.text), JOB_LINE_MAX - 1 - strlen("P 7 "));
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_form_is_read),
        cmocka_unit_test(a_line_may_come_in_pieces),
        cmocka_unit_test(of_a_long_line_the_rest_is_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
