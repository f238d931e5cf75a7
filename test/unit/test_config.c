/* Units of src/base/config.c: the table, the file, the options. */
#include "base/settings.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

struct values {
    char *address;
    char *absent;
    int64_t port;
    bool loud;
    uint64_t memory;
    uint64_t wait_ms;
};

#define KEY(section, key, type, field) section, key, type, offsetof(struct values, field)

static const struct config_key keys[] = {
    {KEY("listen", "address", CONFIG_STRING, address), "127.0.0.1", 0, 0, "ADDRESS", "Where."},
    {KEY("listen", "port", CONFIG_INT, port), "3000", 1, 65535, "PORT", "Which port."},
    {KEY("box", "loud_mode", CONFIG_BOOL, loud), "no", 0, 0, "BOOL", "Whether."},
    {KEY("box", "memory", CONFIG_BYTES, memory), "512M", 1 << 20, INT64_C(1) << 40, "BYTES",
     "Much."},
    {KEY("box", "wait", CONFIG_TIME_MS, wait_ms), "5m", 1, 86400000, "TIME", "Long."},
    {KEY("box", "absent", CONFIG_STRING, absent), NULL, 0, 0, "TEXT", "Nothing."},
    {NULL},
};

/* Arguments are not constant: main() may change them. */
#define OPT(text) \
    (char[])      \
    {             \
        text      \
    }

static char path[] = "/tmp/cay-test-config-XXXXXX";

static enum err_code load(const char *text, struct values *v, struct err *e)
{
    FILE *f = fopen(path, "w");

    assert_non_null(f);
    fputs(text, f);
    fclose(f);
    assert_int_equal(config_defaults(keys, v, e), ERR_OK);
    return config_load_file(keys, path, v, e);
}

static void refuse(const char *text, int line, const char *says)
{
    char where[64];
    struct values v;
    struct err e;

    assert_int_not_equal(load(text, &v, &e), ERR_OK);
    snprintf(where, sizeof(where), "%s:%d: ", path, line);
    if (!strstr(e.text, where) || !strstr(e.text, says))
        fail_msg("\"%s\" does not say \"%s\" and \"%s\"", e.text, where, says);
    config_free(keys, &v);
}

static void defaults_come_from_the_table(void **state)
{
    struct values v;
    struct err e;

    assert_int_equal(config_defaults(keys, &v, &e), ERR_OK);
    assert_string_equal(v.address, "127.0.0.1");
    assert_null(v.absent);
    assert_int_equal(v.port, 3000);
    assert_false(v.loud);
    assert_int_equal(v.memory, 512 << 20);
    assert_int_equal(v.wait_ms, 300000);
    config_free(keys, &v);
    assert_null(v.address);
}

static void a_file_changes_what_it_names(void **state)
{
    struct values v;
    struct err e;

    assert_int_equal(load("# comment\n\n[listen]\n  address = ::1 ; inline\n\tport=65535\n[box]\n"
                          "loud_mode = YES\nmemory = 2g\nwait=1500ms",
                          &v, &e),
                     ERR_OK);
    assert_string_equal(v.address, "::1");
    assert_int_equal(v.port, 65535);
    assert_true(v.loud);
    assert_int_equal(v.memory, INT64_C(2) << 30);
    assert_int_equal(v.wait_ms, 1500);
    config_free(keys, &v);
}

static void a_file_with_a_mistake_names_its_line(void **state)
{
    refuse("[listen]\nprot = 1\n", 2,
           "unknown key \"prot\" in [listen]; keys there: address, port");
    refuse("\n\n[lisen]\n", 3, "unknown section [lisen]; known are [listen] [box]");
    refuse("port = 1\n", 1, "before any [section]");
    refuse("[listen\nport = 1\n", 1, "neither");
    refuse("[box]\n[listen\nport = 1\n", 2, "neither");
    refuse("[listen]\nport = 0\n", 2, "found \"0\", allowed is a whole number from 1 to 65535");
    refuse("[listen]\nport = 70000\n", 2, "70000");
    refuse("[listen]\nport = 3000x\n", 2, "3000x");
    refuse("[listen]\nport =\n", 2, "found \"\"");
    refuse("[listen]\nport = 1\nport = 2\n", 3, "second value");
    refuse("[box]\nloud_mode = maybe\n", 2, "true or false");
    refuse("[box]\nmemory = -1\n", 2, "from 1M to 1T");
    refuse("[box]\nmemory = 99999999999T\n", 2, "99999999999T");
    refuse("[box]\nwait = 2 weeks\n", 2, "from 1ms to 1d");
    refuse("[box]\n# fine\nwhat is this\n", 3, "neither");
}

static void a_file_of_zeros_is_damaged_not_empty(void **state)
{
    static const char *const texts[] = {"", "[listen]\nport = 1\n"};
    char zeroed[] = "/tmp/cay-config-XXXXXX", zeros[512] = "";
    int fd = mkstemp(zeroed);
    struct values v;
    struct err e;

    assert_true(fd >= 0);
    for (size_t i = 0; i < ARRAY_SIZE(texts); i++) {
        assert_int_equal(ftruncate(fd, 0), 0);
        assert_int_equal(pwrite(fd, texts[i], strlen(texts[i]), 0), strlen(texts[i]));
        assert_int_equal(pwrite(fd, zeros, sizeof(zeros), (off_t)strlen(texts[i])), sizeof(zeros));
        assert_int_equal(config_defaults(keys, &v, &e), ERR_OK);
        assert_int_equal(config_load_file(keys, zeroed, &v, &e), ERR_INVALID);
        assert_non_null(strstr(e.text, i == 0 ? ":1: a NUL byte" : ":3: a NUL byte"));
        config_free(keys, &v);
    }
    close(fd);
    unlink(zeroed);
}

static void a_line_that_is_too_long_is_refused_not_cut(void **state)
{
    char text[9000] = "[listen]\naddress = ";

    memset(text + strlen(text), 'a', sizeof(text) - strlen(text) - 1);
    text[sizeof(text) - 1] = '\0';
    refuse(text, 2, "characters in one line");
}

static void a_missing_file_is_not_found(void **state)
{
    struct values v;
    struct err e;

    assert_int_equal(config_defaults(keys, &v, &e), ERR_OK);
    assert_int_equal(config_load_file(keys, "/nonexistent/cay.conf", &v, &e), ERR_NOT_FOUND);
    assert_non_null(strstr(e.text, "/nonexistent/cay.conf"));
    config_free(keys, &v);
}

static void options_are_taken_and_the_rest_is_kept(void **state)
{
    char *argv[] = {OPT("prog"),
                    OPT("--listen-port=80"),
                    OPT("stay"),
                    OPT("--box-memory"),
                    OPT("64M"),
                    OPT("--box-loud-mode"),
                    OPT("--unknown"),
                    OPT("--listen-address"),
                    OPT("::"),
                    OPT("--"),
                    OPT("--listen-port=1"),
                    NULL};
    int argc = (int)ARRAY_SIZE(argv) - 1;
    struct values v;
    struct err e;

    assert_int_equal(config_defaults(keys, &v, &e), ERR_OK);
    assert_int_equal(config_load_args(keys, &argc, argv, &v, &e), ERR_OK);
    assert_int_equal(v.port, 80);
    assert_int_equal(v.memory, 64 << 20);
    assert_true(v.loud);
    assert_string_equal(v.address, "::");
    assert_int_equal(argc, 5);
    assert_string_equal(argv[1], "stay");
    assert_string_equal(argv[2], "--unknown");
    assert_string_equal(argv[3], "--");
    assert_string_equal(argv[4], "--listen-port=1");
    assert_null(argv[5]);
    config_free(keys, &v);
}

static void a_boolean_option_can_be_switched_off(void **state)
{
    char *argv[] = {OPT("prog"), OPT("--box-loud-mode=on"), OPT("--no-box-loud-mode"),
                    OPT("--no-listen-port"), NULL};
    int argc = 4;
    struct values v;
    struct err e;

    assert_int_equal(config_defaults(keys, &v, &e), ERR_OK);
    assert_int_equal(config_load_args(keys, &argc, argv, &v, &e), ERR_OK);
    assert_false(v.loud);
    assert_int_equal(argc, 2);
    assert_string_equal(argv[1], "--no-listen-port");
    config_free(keys, &v);
}

static void a_bad_option_says_which(void **state)
{
    char *bad[][3] = {{OPT("prog"), OPT("--listen-port=high"), NULL},
                      {OPT("prog"), OPT("--listen-port"), NULL}};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct values v;
        struct err e;
        int argc = 2;

        assert_int_equal(config_defaults(keys, &v, &e), ERR_OK);
        assert_int_equal(config_load_args(keys, &argc, bad[i], &v, &e), ERR_INVALID);
        assert_non_null(strstr(e.text, "--listen-port"));
        assert_int_equal(v.port, 3000);
        config_free(keys, &v);
    }
}

static void the_example_file_can_be_read_and_changes_nothing(void **state)
{
    FILE *f = fopen(path, "w");
    struct values v;
    struct err e;

    config_print_example(keys, f);
    fclose(f);
    assert_int_equal(config_defaults(keys, &v, &e), ERR_OK);
    assert_int_equal(config_load_file(keys, path, &v, &e), ERR_OK);
    assert_int_equal(v.port, 3000);
    config_free(keys, &v);
}

static void amounts_have_units_and_an_end(void **state)
{
    uint64_t n = 7;

    assert_int_equal(config_parse_bytes("1k", &n), 0);
    assert_int_equal(n, 1024);
    assert_int_equal(config_parse_time_ms("2", &n), 0);
    assert_int_equal(n, 2000);
    assert_int_equal(config_parse_time_ms("2d", &n), 0);
    assert_int_equal(n, 172800000);
    assert_true(config_parse_bytes("18446744073709551615K", &n) < 0);
    assert_true(config_parse_bytes("", &n) < 0);
    assert_true(config_parse_bytes(" 1", &n) < 0);
    assert_true(config_parse_bytes("1KB", &n) < 0);
    assert_true(config_parse_time_ms("1.5s", &n) < 0);
    assert_int_equal(n, 172800000);
}

/* The error of settings_check_start about two settings; "": nothing is wrong. */
static const char *start_with(const char *first, const char *second, const char *third,
                              char out[600])
{
    char program[] = "test", one[300], two[300], three[300];
    char *argv[] = {program, one, two, three, NULL};
    struct err e = {.code = ERR_OK};
    struct settings s;
    int argc = 4;

    snprintf(one, sizeof(one), "%s", first);
    snprintf(two, sizeof(two), "%s", second);
    snprintf(three, sizeof(three), "%s", third);
    assert_int_equal(settings_load(&s, "/dev/null", &argc, argv, &e), ERR_OK);
    out[0] = '\0';
    if (settings_check_start(&s, &e) != ERR_OK)
        snprintf(out, 600, "%s; %s", e.text, e.hint);
    settings_free(&s);
    return out;
}

static void plain_http_outside_is_asked_for_by_name(void **state)
{
    static const char *const here[] = {"localhost", "127.0.0.1", "127.8.0.1", "::1",
                                       "::ffff:127.0.0.1"};
    static const char *const outside[] = {
        "0.0.0.0", "::", "192.0.2.1", "2001:db8::1", "::ffff:0.0.0.0", "128.0.0.1", "example.org"};
    char at[100], said[600];

    for (size_t i = 0; i < ARRAY_SIZE(here); i++) {
        snprintf(at, sizeof(at), "--listen-address=%s", here[i]);
        assert_string_equal(start_with(at, "--listen-tls=off", "--listen-port=3000", said), "");
    }
    for (size_t i = 0; i < ARRAY_SIZE(outside); i++) {
        snprintf(at, sizeof(at), "--listen-address=%s", outside[i]);
        assert_string_equal(start_with(at, "--listen-tls=only", "--listen-port=3000", said), "");
        assert_string_equal(start_with(at, "--listen-tls=off", "--listen-plain-outside=true", said),
                            "");
        start_with(at, "--listen-tls=off", "--listen-port=3000", said);
        assert_true(strstr(said, outside[i]) && strstr(said, "tls = only") &&
                    strstr(said, "plain_outside"));
        start_with(at, "--listen-tls=optional", "--listen-port=3000", said);
        assert_non_null(strstr(said, "plain HTTP"));
    }
}

static void a_domain_that_cannot_be_one_is_refused(void **state)
{
    static const char *const good[] = {"a",
                                       "example.org",
                                       "boxes.example.org:8443",
                                       "A-1.example:1",
                                       "cay.localhost:65535",
                                       "1.2.3.example"};
    static const char *const bad[] = {"https://example.org",
                                      "example.org/",
                                      "*.example.org",
                                      "-a.org",
                                      "a-.org",
                                      "a..org",
                                      ".a",
                                      "a.",
                                      "a b",
                                      "a_b.org",
                                      "127.0.0.1",
                                      "192.0.2.1:80",
                                      "[::1]:80",
                                      "a.org:",
                                      "a.org:0",
                                      "a.org:65536",
                                      "a.org:8x",
                                      "a.org:80:81",
                                      "7",
                                      "ex\xc3\xa4.org",
                                      ":3000"};
    char domain[300], said[600];

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        snprintf(domain, sizeof(domain), "--server-domain=%s", good[i]);
        assert_string_equal(start_with(domain, "--listen-tls=off", "--listen-port=3000", said), "");
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        snprintf(domain, sizeof(domain), "--server-domain=%s", bad[i]);
        start_with(domain, "--listen-tls=off", "--listen-port=3000", said);
        assert_true(strstr(said, "[server] domain") && strstr(said, "sandboxes.example.org"));
    }
    snprintf(domain, sizeof(domain), "--server-domain=%064d", 0);
    assert_string_not_equal(start_with(domain, "--listen-tls=off", "--listen-port=3000", said), "");
    memset(domain, 0, sizeof(domain));
    snprintf(domain, sizeof(domain), "--server-domain=a");
    for (size_t used = strlen(domain); used < strlen("--server-domain=") + 225; used += 2)
        memcpy(domain + used, ".a", 2);
    assert_string_equal(start_with(domain, "--listen-tls=off", "--listen-port=3000", said), "");
    snprintf(domain + strlen(domain), 4, ".a");
    assert_string_not_equal(start_with(domain, "--listen-tls=off", "--listen-port=3000", said), "");
}

static void a_directory_of_the_host_has_a_name_and_a_path(void **state)
{
    static const char *const bad[] = {"",
                                      "models",
                                      ":/srv",
                                      "/srv",
                                      "Models:/srv",
                                      "-m:/srv",
                                      "m d:/srv",
                                      "m:srv",
                                      "m:",
                                      "m:/",
                                      "m:/srv/",
                                      "m:/srv//a",
                                      "m:/srv/.",
                                      "m:/../etc",
                                      "m:/s/..",
                                      "m:/s rv",
                                      "m:/srv:",
                                      "m:/srv:a,",
                                      "m:/srv:,a",
                                      "m:/s:a,,b",
                                      "m:/srv:a:b",
                                      "m:/srv,a",
                                      "m:/srv:a b",
                                      "m:/s;/etc",
                                      "m:/srv/../",
                                      "seventeen-letters:/srv"};
    char text[512];
    struct host_dir d = {.name = "before"};

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (!host_dir_parse(bad[i], &d) || strcmp(d.name, "before") != 0)
            fail_msg("\"%s\" was taken", bad[i]);
    snprintf(text, sizeof(text), "m:/%0178d", 0);
    assert_null(host_dir_parse(text, &d));
    assert_int_equal(strlen(d.path), HOST_DIR_PATH_SIZE - 1);
    snprintf(text, sizeof(text), "m:/%0179d", 0);
    assert_non_null(host_dir_parse(text, &d));
    assert_null(host_dir_parse("sixteen-letters_:/srv/.a/b..c", &d));
    assert_string_equal(d.name, "sixteen-letters_");
    assert_string_equal(d.path, "/srv/.a/b..c");
    assert_true(!d.tenants && host_dir_is_for(&d, "any"));
    assert_null(host_dir_parse("m:/srv:a,bc", &d));
    assert_true(host_dir_is_for(&d, "a") && host_dir_is_for(&d, "bc"));
    assert_false(host_dir_is_for(&d, "b") || host_dir_is_for(&d, "") ||
                 host_dir_is_for(&d, "a,bc"));
    assert_false(host_dir_is_for(&(struct host_dir){{0}}, "a"));
}

static void two_directories_of_one_name_do_not_start(void **state)
{
    char program[] = "x", one[] = "--host-dir-2=m:/srv/a", two[] = "--host-dir-7=m:/srv/b:t";
    char *argv[] = {program, one, two, NULL};
    int argc = 3;
    struct settings s;
    struct err e;

    assert_int_equal(settings_load(&s, "/dev/null", &argc, argv, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "[host] dir_7"));
    settings_free(&s);
    two[strlen("--host-dir-7=")] = 'n';
    argv[1] = one, argv[2] = two, argc = 3;
    assert_int_equal(settings_load(&s, "/dev/null", &argc, argv, &e), ERR_OK);
    assert_string_equal(s.host_dirs[6], "n:/srv/b:t");
    settings_free(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_come_from_the_table),
        cmocka_unit_test(a_file_changes_what_it_names),
        cmocka_unit_test(a_file_with_a_mistake_names_its_line),
        cmocka_unit_test(a_file_of_zeros_is_damaged_not_empty),
        cmocka_unit_test(a_line_that_is_too_long_is_refused_not_cut),
        cmocka_unit_test(a_missing_file_is_not_found),
        cmocka_unit_test(options_are_taken_and_the_rest_is_kept),
        cmocka_unit_test(a_boolean_option_can_be_switched_off),
        cmocka_unit_test(a_bad_option_says_which),
        cmocka_unit_test(the_example_file_can_be_read_and_changes_nothing),
        cmocka_unit_test(amounts_have_units_and_an_end),
        cmocka_unit_test(plain_http_outside_is_asked_for_by_name),
        cmocka_unit_test(a_domain_that_cannot_be_one_is_refused),
        cmocka_unit_test(a_directory_of_the_host_has_a_name_and_a_path),
        cmocka_unit_test(two_directories_of_one_name_do_not_start),
    };
    int fd = mkstemp(path), failed;

    if (fd < 0)
        return 1;
    close(fd);
    failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
