/* Units of src/base. */
#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/err.h"
#include "base/ids.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static void buf_refuses_more_than_its_maximum(void **state)
{
    CLEANUP_BUF struct buf b;

    buf_init(&b, 8);
    assert_int_equal(buf_append(&b, "12345678", 8), 0);
    assert_int_equal(buf_append(&b, "9", 1), -EMSGSIZE);
    assert_int_equal(b.len, 8);
    assert_string_equal(b.data, "12345678");
}

static void buf_consumes_from_the_front_and_uses_the_room_again(void **state)
{
    CLEANUP_BUF struct buf b;

    buf_init(&b, 300);
    for (int i = 0; i < 100; i++) {
        assert_int_equal(buf_append(&b, "0123456789", 10), 0);
        buf_consume(&b, 10);
    }
    assert_int_equal(b.len, 0);
    assert_int_equal(buf_printf(&b, "%d", 42), 0);
    assert_string_equal(b.data, "42");
}

static void arena_keeps_to_its_maximum(void **state)
{
    CLEANUP_ARENA struct arena a;

    arena_init(&a, 10000);
    assert_non_null(arena_alloc(&a, 9000));
    assert_null(arena_alloc(&a, 2000));
    assert_string_equal(arena_printf(&a, "%s-%d", "x", 7), "x-7");
}

static void clock_round_trips_rfc3339(void **state)
{
    char text[CLOCK_RFC3339_SIZE];
    int64_t ms = 0;

    clock_format_rfc3339(1763693401123, text);
    assert_string_equal(text, "2025-11-21T02:50:01.123Z");
    assert_int_equal(clock_parse_rfc3339(text, &ms), 0);
    assert_int_equal(ms, 1763693401123);
    assert_int_equal(clock_parse_rfc3339("2025-11-21T03:50:01.123456+01:00", &ms), 0);
    assert_int_equal(ms, 1763693401123);
    assert_int_equal(clock_parse_rfc3339("2025-13-21T03:50:01Z", &ms), -EINVAL);
    assert_int_equal(clock_parse_rfc3339("2025-11-21T03:50:01", &ms), -EINVAL);
}

static void ids_have_their_form(void **state)
{
    char id[IDS_SANDBOX_SIZE], hex[9];
    uint8_t bytes[4] = {0, 0xab, 0xff, 7}, back[4];

    ids_sandbox(id);
    assert_true(ids_is_sandbox(id));
    assert_false(ids_is_sandbox("i../../etc"));
    ids_hex(bytes, 4, hex);
    assert_string_equal(hex, "00abff07");
    assert_int_equal(ids_unhex(hex, back, 4), 0);
    assert_memory_equal(bytes, back, 4);
    assert_int_equal(ids_unhex("00abff0g", back, 4), -EINVAL);
}

static void err_texts_hold_no_control_characters(void **state)
{
    struct err e;

    assert_int_equal(err_set(&e, ERR_INVALID, "bad name '%s'", "a\n\x1b[31m"), ERR_INVALID);
    assert_string_equal(e.text, "bad name 'a??[31m'");
    err_set_sys(&e, ERR_INTERNAL, -ENOENT, "open");
    assert_string_equal(e.text, "open: No such file or directory");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(buf_refuses_more_than_its_maximum),
        cmocka_unit_test(buf_consumes_from_the_front_and_uses_the_room_again),
        cmocka_unit_test(arena_keeps_to_its_maximum),
        cmocka_unit_test(clock_round_trips_rfc3339),
        cmocka_unit_test(ids_have_their_form),
        cmocka_unit_test(err_texts_hold_no_control_characters),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
