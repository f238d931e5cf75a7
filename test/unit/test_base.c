/* Units of src/base. */
#include "base/arena.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/env_name.h"
#include "base/envelope.h"
#include "base/err.h"
#include "base/ids.h"
#include "base/instance.h"
#include "base/io.h"
#include "base/log.h"
#include "base/plain_name.h"
#include "base/port.h"
#include "base/share.h"
#include "base/signal_names.h"
#include "base/timer_heap.h"
#include "base/utf8.h"
#include "base/word_list.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>

static void a_plain_name_is_short_and_has_no_separator(void **state)
{
    assert_true(plain_name_is_valid("a.B-c_9", 7));
    assert_true(plain_name_is_valid("..", 2)); /* its users refuse that */
    assert_false(plain_name_is_valid("a.B-c_9", 6));
    assert_false(plain_name_is_valid("", 6));
    assert_false(plain_name_is_valid("a/b", 6));
    assert_false(plain_name_is_valid("a%2fb", 6));
    assert_false(plain_name_is_valid("a b", 6));
    assert_false(plain_name_is_valid("\xc3\xa4", 6));
}

static void names_of_variables(void **state)
{
    assert_true(env_name_is_valid("PATH"));
    assert_true(env_name_is_valid("_"));
    assert_true(env_name_is_valid("BASH_FUNC_f%%"));
    assert_false(env_name_is_valid(""));
    assert_false(env_name_is_valid("="));
    assert_true(env_name_is_valid("a b"));
    assert_true(env_name_is_valid("\xc3\xa9"));
    assert_false(env_name_is_valid("LD_PRELOAD=x"));
    assert_false(env_name_is_valid("N\n"));
    assert_false(env_name_is_valid("\x1b[0m"));
    assert_false(env_name_is_valid("a\x7f"));
}

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

static void buf_with_no_memory_yet_consumes_nothing(void **state)
{
    struct buf b;

    buf_init(&b, 8);
    buf_consume(&b, 0);
    assert_null(b.data);
}

/* test/scenario finds a server's control groups by the same rule: cgroup_name in conftest.py. */
static void instance_names_are_those_that_tests_look_for(void **state)
{
    char name[INSTANCE_CGROUP_SIZE];

    instance_cgroup("/var/lib/cay/privd", name);
    assert_string_equal(name, "cay");
    instance_cgroup("/srv/cay/privd", name);
    assert_string_equal(name, "cay-4f1ebd77");
}

struct seen {
    size_t count, until;
    bool one, two, dots;
};

static bool see(void *arg, const char *name)
{
    struct seen *s = arg;

    s->one |= strcmp(name, "one") == 0;
    s->two |= strcmp(name, ".two") == 0;
    s->dots |= strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
    return ++s->count != s->until;
}

static void io_tells_each_name_of_a_directory(void **state)
{
    char dir[] = "/tmp/cay-test-io-XXXXXX", path[64];
    struct seen all = {0}, first = {.until = 1};

    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof(path), "%s/one", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    snprintf(path, sizeof(path), "%s/.two", dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(io_each_name_at(AT_FDCWD, dir, see, &all), 0);
    assert_true(all.count == 2 && all.one && all.two && !all.dots);
    assert_int_equal(io_each_name_at(AT_FDCWD, dir, see, &first), 0);
    assert_int_equal(first.count, 1);
    assert_int_equal(rmdir(path), 0);
    snprintf(path, sizeof(path), "%s/one", dir);
    assert_int_equal(io_each_name_at(AT_FDCWD, path, see, &first), 0);
    assert_int_equal(first.count, 1);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(io_each_name_at(AT_FDCWD, path, see, &first), -ENOENT);
    assert_int_equal(rmdir(dir), 0);
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

static void a_port_is_digits_within_its_range(void **state)
{
    static const struct {
        const char *text;
        uint16_t port;
    } cases[] = {{"1", 1},     {"65535", 65535}, {"00080", 80},  {"0", 0},  {"00000", 0},
                 {"65536", 0}, {"99999", 0},     {"", 0},        {"+1", 0}, {" 1", 0},
                 {"1 ", 0},    {"-1", 0},        {"0x1", 0},     {"1x", 0}, {"000001", 0},
                 {"65537", 0}, {"131073", 0},    {"\xd9\xa1", 0}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        if (port_from_text(cases[i].text) != cases[i].port)
            fail_msg("\"%s\"", cases[i].text);
    assert_int_equal(port_from_digits("443:80", 3), 443);
    assert_int_equal(port_from_digits("443:80", 4), 0);
}

static void err_texts_hold_no_control_characters(void **state)
{
    struct err e;

    assert_int_equal(err_set(&e, ERR_INVALID, "bad name '%s'", "a\n\x1b[31m"), ERR_INVALID);
    assert_string_equal(e.text, "bad name 'a??[31m'");
    err_set(&e, ERR_INVALID, "%s", "caf\xc3\xa9 \xe2\x80\xae\xc2\x9b \xff");
    assert_string_equal(e.text, "caf\xc3\xa9 ????? ?");
    err_hint(&e, "%s", "\xe2\x80\xa8x");
    assert_string_equal(e.hint, "???x");
    err_set_sys(&e, ERR_INTERNAL, -ENOENT, "open");
    assert_string_equal(e.text, "open: No such file or directory");
}

static void said(const char *text, const char *expected)
{
    char last[256];

    log_write(LOG_ERROR, "%s", text);
    log_last_error(last, sizeof(last));
    assert_string_equal(last, expected);
}

/* A line is read as UTF-8, and shown by terminals: names that others chose are part of some. */
static void characters_for_people_are_shown(void **state)
{
    static const char *const hidden[] = {
        "\x01",         "\n",           "\t",           "\x1b",         "\x7f",
        "\xc2\x80",     "\xc2\x9f",     "\xd8\x9c",     "\xe2\x80\x8e", "\xe2\x80\x8f",
        "\xe2\x80\xa8", "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xaf", "\xe9",
        "\xc3",         "\xc0\x80",     "\xed\xa0\x80"};
    static const char *const shown[] = {" ",
                                        "~",
                                        "\xc2\xa0",
                                        "\xd8\x9b",
                                        "\xe2\x80\x90",
                                        "\xe2\x80\xaf",
                                        "\xe2\x81\xa5",
                                        "\xe2\x82\xac",
                                        "\xf0\x9f\x98\x80"};

    for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
        if (utf8_shown(hidden[i], strlen(hidden[i])) != 0)
            fail_msg("hidden %zu is shown", i);
    for (size_t i = 0; i < ARRAY_SIZE(shown); i++)
        if (utf8_shown(shown[i], strlen(shown[i])) != strlen(shown[i]))
            fail_msg("shown %zu is hidden", i);
    assert_int_equal(utf8_shown("", 1), 0);
    assert_int_equal(utf8_shown("a", 0), 0);
}

static void lines_of_the_log_are_text(void **state)
{
    char much[300], cut[256];

    said("caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x98\x80", "caf\xc3\xa9 \xe6\x97\xa5 \xf0\x9f\x98\x80");
    said("caf\xe9 \xe9\x95", "caf? ??");
    said("\xc0\xaf \xed\xa0\x80 \xff", "?? ??? ?");
    said("a\n\x1b[31m \x9b \xc2\x9b \xc2\xa0", "a??[31m ? ?? \xc2\xa0");
    said("a\xe2\x80\xae"
         "b \xe2\x80\xa8",
         "a???b ???"); /* turned round, or two lines to some */
    memset(much, 'n', sizeof(much));
    memcpy(much + 254, "\xc3\xa9", 3); /* only its first byte is kept for those who ask later */
    memset(cut, 'n', sizeof(cut));
    memcpy(cut + 254, "?", 2);
    said(much, cut);
}

/* A holder that takes what it can leaves room for another, and so on; a place that was given back can
 * be taken. */
static void share_leaves_space_for_others(void **state)
{
    struct share_pool *p = share_pool_new(64);
    struct share *all[64];
    size_t n = 0, first;

    while ((all[n] = share_take(p, "a", NULL)))
        n++;
    assert_int_equal(n, 32); /* half of it */
    while ((all[n] = share_take(p, "b", NULL)))
        n++;
    assert_int_equal(n, 48);
    assert_false(share_may_take(p, "a", NULL));
    assert_true(share_may_take(p, "c", NULL));
    assert_int_equal(share_held(p, "b", NULL), 16);
    for (first = 0; first < 32; first++)
        share_return(all[first]);
    assert_int_equal(share_held(p, "a", NULL), 0);
    assert_true(share_may_take(p, "b", NULL));
    for (; first < n; first++)
        share_return(all[first]);
    assert_int_equal(share_used(p), 0);
    share_pool_free(p);
    assert_true(share_leaves_space(16, 7, 7));
    assert_false(share_leaves_space(16, 8, 8));
    assert_true(share_leaves_space(16, 15, 0));
    assert_false(share_leaves_space(16, 16, 0));
    assert_false(share_leaves_space(16, 17, 0)); /* the maximum was more before */
}

static void share_divides_within_a_tenant(void **state)
{
    struct share_pool *p = share_pool_new(64);
    struct share *all[64];
    size_t n = 0, one;

    while ((all[n] = share_take(p, "a", "one")))
        n++;
    one = n;
    assert_int_equal(one, 22); /* a third */
    assert_int_equal(share_count(all[0]), one);
    assert_true(share_may_take(p, "a", "two"));
    while ((all[n] = share_take(p, "a", "two")))
        n++;
    assert_true(n > one && n < 32);
    assert_int_equal(share_held(p, "a", NULL), n);
    assert_true(share_may_take(p, "b", "one")); /* not a's "one" */
    assert_int_equal(share_held(p, "b", "one"), 0);
    while (n > 0)
        share_return(all[--n]);
    assert_int_equal(share_used(p), 0);
    share_pool_free(p);
}

/* A line that a peer can cause as often as it likes is written so many times in a span, and the rest
 * is counted. */
static void log_rates(void **state)
{
    struct log_rate r = {0};

    for (int i = 0; i < LOG_RATE_LINES; i++)
        assert_true(log_rate_allows(&r));
    for (int i = 0; i < 1000; i++)
        assert_false(log_rate_allows(&r));
    assert_int_equal(r.left_out, 1000);
    assert_true(r.began_ms > 0);
    r.began_ms = clock_mono_ms() > LOG_RATE_MS ? clock_mono_ms() - LOG_RATE_MS : 0;
    assert_true(log_rate_allows(&r));
    assert_int_equal(r.left_out, 0);
}

static void signal_names_are_found_both_ways(void **state)
{
    static const struct {
        const char *status, *name;
        int number;
    } cases[] = {{"signal: killed", "SIGKILL", SIGKILL},
                 {"signal: aborted (core dumped)", "SIGABRT", SIGABRT},
                 {"signal: trace/breakpoint trap", "SIGTRAP", SIGTRAP},
                 {"signal: signal 34", NULL, 34},
                 {"signal: signal 34x", NULL, 0},
                 {"signal: signal 999", NULL, 0},
                 {"signal: kill", NULL, 0},
                 {"signal: ", NULL, 0}};

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        size_t n = 0;
        const char *words = signal_names_split(cases[i].status, &n);
        const char *name;
        int number;

        assert_non_null(words);
        number = signal_names_from_words(words, n);
        assert_int_equal(number, cases[i].number);
        name = signal_names_name(number);
        assert_int_equal(name != NULL, cases[i].name != NULL);
        if (name) {
            assert_string_equal(name, cases[i].name);
            assert_int_equal(signal_names_number(name), number);
            assert_memory_equal(signal_names_words(number), words, n);
        }
    }
    assert_null(signal_names_split("exit status 3", &(size_t){0}));
    assert_int_equal(signal_names_number("SIGNONE"), 0);
    assert_null(signal_names_words(-1));
    assert_null(signal_names_name(0));
}

/* Two envelopes that come byte by byte, and what announces too much. */
static void envelopes_come_whole(void **state)
{
    static const char stream[] = "\0\0\0\0\2{}\2\0\0\0\0";
    char head[ENVELOPE_HEAD_BYTES];
    CLEANUP_BUF struct buf b;
    struct envelope e;
    int whole = 0;

    buf_init(&b, 64);
    assert_int_equal(envelope_peek(&b, 2, &e), 0);
    for (size_t i = 0; i < sizeof(stream) - 1; i++) {
        assert_int_equal(buf_append(&b, stream + i, 1), 0);
        if (envelope_peek(&b, 2, &e) == 0)
            continue;
        assert_int_equal(i, whole == 0 ? 6 : 11);
        assert_int_equal(e.flags, whole == 0 ? 0 : ENVELOPE_END);
        assert_int_equal(e.len, whole == 0 ? 2 : 0);
        assert_non_null(e.data);
        envelope_drop(&b, &e);
        whole++;
    }
    assert_int_equal(whole, 2);
    assert_int_equal(b.len, 0);
    envelope_write_head(head, ENVELOPE_COMPRESSED, 0x01020304);
    assert_memory_equal(head, "\1\1\2\3\4", sizeof(head));
    assert_int_equal(buf_append(&b, head, sizeof(head)), 0);
    assert_int_equal(envelope_peek(&b, 0x01020303, &e), -EMSGSIZE);
    assert_int_equal(envelope_peek(&b, 0x01020304, &e), 0);
    assert_int_equal(e.flags, ENVELOPE_COMPRESSED);
    assert_null(e.data);
    assert_false(envelope_read_head(head, sizeof(head) - 1, &e));
}

#define NODES 500

static unsigned check_node(const struct timer_node *t, const struct timer_node *parent, size_t *n)
{
    unsigned left, right;

    if (!t)
        return 0;
    (*n)++;
    assert_ptr_equal(t->parent, parent);
    assert_true(!parent || parent->at <= t->at);
    left = check_node(t->left, t, n);
    right = check_node(t->right, t, n);
    assert_true(left >= right);
    assert_int_equal(t->rank, right + 1);
    return t->rank;
}

/* Its own invariants after each of many sets, moves and removals; then all leave in their order. */
static void timer_heap_keeps_its_order(void **state)
{
    static struct timer_node nodes[NODES];
    struct timer_heap h = {0};
    uint64_t x = 1, last = 0;
    size_t armed = 0;

    memset(nodes, 0, sizeof(nodes));
    for (int i = 0; i < 10 * NODES; i++) {
        struct timer_node *t;
        size_t n = 0;

        x = x * 6364136223846793005u + 1442695040888963407u;
        t = &nodes[(x >> 33) % NODES];
        armed -= timer_node_armed(t);
        if ((x >> 20) % 3 == 0)
            timer_heap_remove(&h, t);
        else
            timer_heap_set(&h, t, (x >> 40) % 97);
        armed += timer_node_armed(t);
        (void)check_node(h.first, NULL, &n);
        assert_int_equal(n, armed);
        assert_int_equal(h.n, armed);
    }
    assert_in_range(armed, NODES / 3, NODES);
    while (h.first) {
        assert_true(h.first->at >= last);
        last = h.first->at;
        timer_heap_remove(&h, h.first);
        armed--;
    }
    assert_int_equal(armed, 0);
    assert_int_equal(h.n, 0);
}

static void a_word_of_a_list_is_whole(void **state)
{
    assert_true(word_list_has("cpu,cpuacct rw", " ,", "cpu"));
    assert_true(word_list_has("cpu,cpuacct rw", " ,", "rw"));
    assert_false(word_list_has("cpuacct,rw", " ,", "cpu"));
    assert_false(word_list_has("xcpu", " ,", "cpu"));
    assert_true(word_list_has("  a  b", " ", "b"));
    assert_false(word_list_has("a,b", " ", "b"));
    assert_false(word_list_has("a b", " ", "a b"));
    assert_false(word_list_has(" a ", " ", ""));
    assert_false(word_list_has("", " ", "a"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(timer_heap_keeps_its_order),
        cmocka_unit_test(a_plain_name_is_short_and_has_no_separator),
        cmocka_unit_test(names_of_variables),
        cmocka_unit_test(envelopes_come_whole),
        cmocka_unit_test(buf_refuses_more_than_its_maximum),
        cmocka_unit_test(buf_consumes_from_the_front_and_uses_the_room_again),
        cmocka_unit_test(buf_with_no_memory_yet_consumes_nothing),
        cmocka_unit_test(instance_names_are_those_that_tests_look_for),
        cmocka_unit_test(io_tells_each_name_of_a_directory),
        cmocka_unit_test(arena_keeps_to_its_maximum),
        cmocka_unit_test(clock_round_trips_rfc3339),
        cmocka_unit_test(ids_have_their_form),
        cmocka_unit_test(share_leaves_space_for_others),
        cmocka_unit_test(share_divides_within_a_tenant),
        cmocka_unit_test(log_rates),
        cmocka_unit_test(signal_names_are_found_both_ways),
        cmocka_unit_test(a_port_is_digits_within_its_range),
        cmocka_unit_test(err_texts_hold_no_control_characters),
        cmocka_unit_test(lines_of_the_log_are_text),
        cmocka_unit_test(characters_for_people_are_shown),
        cmocka_unit_test(a_word_of_a_list_is_whole),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
