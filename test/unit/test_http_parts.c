/* Parts that need no connection: names and values, JSON, multipart, ranges, dates, types, gzip. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/ids.h"
#include "http/gate.h"
#include "http/gzip.h"
#include "http/http_date.h"
#include "http/json.h"
#include "http/message.h"
#include "http/mime.h"
#include "http/multipart.h"
#include "http/range.h"

static void test_percent(void **state)
{
    char out[16];

    assert_int_equal(http_percent_decode("a%20b+c", 7, false, out, sizeof(out)), 5);
    assert_string_equal(out, "a b+c");
    assert_int_equal(http_percent_decode("a+b%2B", 6, true, out, sizeof(out)), 4);
    assert_string_equal(out, "a b+");
    assert_int_equal(http_percent_decode("%", 1, false, out, sizeof(out)), -EINVAL);
    assert_int_equal(http_percent_decode("%4", 2, false, out, sizeof(out)), -EINVAL);
    assert_int_equal(http_percent_decode("%4g", 3, false, out, sizeof(out)), -EINVAL);
    assert_int_equal(http_percent_decode("%00", 3, false, out, sizeof(out)), -EINVAL);
    assert_int_equal(http_percent_decode("abcd", 4, false, out, 4), -EMSGSIZE);
    assert_int_equal(http_percent_decode("abc", 3, false, out, 4), 3);
}

static void test_query(void **state)
{
    const char *q = "path=%2Fa%20b&empty=&flag&path=second&n%61me=x&%zz=1&bad=%g";
    char out[32];

    assert_int_equal(http_query_get(q, "path", out, sizeof(out)), 4);
    assert_string_equal(out, "/a b");
    assert_int_equal(http_query_get(q, "empty", out, sizeof(out)), 0);
    assert_int_equal(http_query_get(q, "flag", out, sizeof(out)), 0);
    assert_int_equal(http_query_get(q, "name", out, sizeof(out)), 1);
    assert_int_equal(http_query_get(q, "pat", out, sizeof(out)), -ENOENT);
    assert_int_equal(http_query_get(q, "pathx", out, sizeof(out)), -ENOENT);
    assert_int_equal(http_query_get(q, "bad", out, sizeof(out)), -EINVAL);
    assert_int_equal(http_query_get("", "a", out, sizeof(out)), -ENOENT);
    assert_int_equal(http_query_get("&&", "", out, sizeof(out)), -ENOENT);
}

static void test_authority(void **state)
{
    static const char *const good[] = {"a",     "a.b-c_d.f",  "1.2.3.4:80",
                                       "[::1]", "[::1]:8080", "49983-iabc.localhost:3000",
                                       "a:0",   "a:65535"};
    static const char *const bad[] = {
        "",   ":80", "a:",   "a:65536",  "a:1:2",  "a b", "a/",   "a@b", "[::1", "::1",
        "[]", "[g]", "a%41", "a:080000", "[::1]x", "a,b", "a\\b", "a#",  "a?"};

    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        assert_true(gate_is_authority(good[i]));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (gate_is_authority(bad[i]))
            fail_msg("%s", bad[i]);
}

/* -- JSON ---------------------------------------------------------------------------------------- */

static enum err_code parse(const char *text, struct err *e)
{
    json_t *value = NULL;
    enum err_code code = json_parse(text, strlen(text), false, &value, e);

    json_decref(value);
    return code;
}

static void test_json_refused(void **state)
{
    static const char *const bad[] = {"",           "{",   "{}x",         "{\"a\":1,\"a\":2}",
                                      "[1,]",       "nul", "\"\\u0000\"", "\"\xff\"",
                                      "{'a':1}",    "01",  "1e999",       "[1 2]",
                                      "\"\\ud800\""};
    char deep[200] = "";
    struct err e;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        assert_int_equal(parse(bad[i], &e), ERR_INVALID);
        assert_true(strlen(e.text) > 0);
    }
    memset(deep, '[', JSON_MAX_DEPTH);
    memset(deep + JSON_MAX_DEPTH, ']', JSON_MAX_DEPTH);
    assert_int_equal(parse(deep, &e), ERR_OK);
    memset(deep, '[', JSON_MAX_DEPTH + 1);
    memset(deep + JSON_MAX_DEPTH + 1, ']', JSON_MAX_DEPTH + 1);
    assert_int_equal(parse(deep, &e), ERR_INVALID);
    assert_int_equal(parse("\"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[\"", &e), ERR_OK);
}

static void test_json_of_a_request_has_so_many_values(void **state)
{
    static char text[3 * JSON_MAX_VALUES + 8];
    json_t *value = NULL;
    struct err e;
    size_t n = 0;

    text[n++] = '[';
    while (n < 3 * (size_t)(JSON_MAX_VALUES - 2) / 2)
        n += (size_t)sprintf(text + n, "{},");
    text[n - 1] = ']';
    assert_int_equal(json_parse_request(text, n, false, &value, &e), ERR_OK);
    assert_in_range(json_array_size(value), JSON_MAX_VALUES / 2 - 8, json_values(text, n));
    json_decref(value);
    while (n < 3 * (size_t)JSON_MAX_VALUES) {
        text[n - 1] = ',';
        n += (size_t)sprintf(text + n, "{}]");
    }
    assert_int_equal(json_parse_request(text, n, false, &value, &e), ERR_TOO_LARGE);
    assert_int_equal(json_parse(text, n, false, &value, &e), ERR_OK);
    json_decref(value);
    text[0] = text[n - 1] = '"'; /* in a text they are none */
    assert_int_equal(json_values(text, n), 1);
}

/* A sandbox makes them up: dense ones would take some eighty times their length. */
/* Its values are given back one by one: where each was searched for among all others, this one
 * took hours. */
static void a_long_text_is_refused_at_its_end(void **state)
{
    const size_t n = 1000000, len = 2 * n + 2;
    char *text = malloc(len);
    json_t *value = NULL;
    struct err e;

    assert_non_null(text);
    text[0] = '[';
    for (size_t i = 0; i < n; i++)
        memcpy(text + 1 + 2 * i, "1,", 2);
    text[len - 1] = 'x';
    assert_int_equal(json_parse(text, len, false, &value, &e), ERR_INVALID);
    free(text);
}

static void test_json_of_a_sandbox_is_not_dense(void **state)
{
    static char text[3 * 2 * JSON_MAX_VALUES + 8];
    static const char with_nul[] = "{\"text\":\"a\\u0000b\"}";
    json_t *value;
    size_t n = 0;

    text[n++] = '[';
    while (n < 3 * 2 * (size_t)JSON_MAX_VALUES)
        n += (size_t)sprintf(text + n, "{},");
    text[n - 1] = ']';
    assert_null(json_load_answer(text, n));
    assert_null(json_load_output(text, n));
    memset(text + 1, ' ', n - 2);
    assert_non_null(value = json_load_output(text, n));
    json_decref(value);
    assert_null(json_load_answer(with_nul, strlen(with_nul)));
    assert_non_null(value = json_load_output(with_nul, strlen(with_nul)));
    assert_int_equal(json_string_length(json_object_get(value, "text")), 3);
    json_decref(value);
}

static void test_json_env(void **state)
{
    static const struct {
        const char *text;
        enum err_code code;
    } maps[] = {{"{}", ERR_OK},
                {"{\"A\":\"b=c\",\"PATH\":\"\"}", ERR_OK},
                {"{\"\":\"b\"}", ERR_INVALID},
                {"{\"A\":\"b\",\"A=B\":\"c\"}", ERR_INVALID},
                {"{\"=\":\"\"}", ERR_INVALID},
                {"{\"A\":1}", ERR_INVALID},
                {"[]", ERR_INVALID}};
    struct err e;

    for (size_t i = 0; i < ARRAY_SIZE(maps); i++) {
        json_t *map = json_loads(maps[i].text, 0, NULL);

        assert_int_equal(json_check_env(map, "env", 2, 20, &e), maps[i].code);
        json_decref(map);
    }
}

static void test_json_fields(void **state)
{
    static const char text[] =
        "{\"s\":\"text\",\"i\":7,\"r\":3.0,\"f\":3.5,\"b\":true,\"n\":null,"
        "\"o\":{\"k\":\"v\"},\"a\":[],\"snake_case\":\"alt\",\"m\":{\"k\":1}}";
    const char *s = "kept";
    json_t *obj, *sub = NULL;
    int64_t i = -1;
    bool b = false;
    struct err e;

    assert_int_equal(json_parse(text, strlen(text), false, &obj, &e), ERR_OK);
    assert_int_equal(json_get_str(obj, "s", NULL, JSON_REQUIRED, 4, &s, &e), ERR_OK);
    assert_string_equal(s, "text");
    assert_int_equal(json_get_str(obj, "s", NULL, JSON_REQUIRED, 3, &s, &e), ERR_INVALID);
    assert_int_equal(json_get_str(obj, "snakeCase", "snake_case", JSON_REQUIRED, 9, &s, &e),
                     ERR_OK);
    assert_string_equal(s, "alt");
    s = "kept";
    assert_int_equal(json_get_str(obj, "n", NULL, JSON_OPTIONAL, 9, &s, &e), ERR_OK);
    assert_int_equal(json_get_str(obj, "none", NULL, JSON_OPTIONAL, 9, &s, &e), ERR_OK);
    assert_string_equal(s, "kept");
    assert_int_equal(json_get_str(obj, "none", NULL, JSON_REQUIRED, 9, &s, &e), ERR_INVALID);
    assert_non_null(strstr(e.text, "\"none\""));
    assert_int_equal(json_get_str(obj, "i", NULL, JSON_OPTIONAL, 9, &s, &e), ERR_INVALID);
    assert_int_equal(json_get_int(obj, "i", NULL, JSON_REQUIRED, 0, 7, &i, &e), ERR_OK);
    assert_int_equal(i, 7);
    assert_int_equal(json_get_int(obj, "i", NULL, JSON_REQUIRED, 0, 6, &i, &e), ERR_INVALID);
    assert_int_equal(json_get_int(obj, "r", NULL, JSON_REQUIRED, 0, 6, &i, &e), ERR_OK);
    assert_int_equal(i, 3);
    assert_int_equal(json_get_int(obj, "f", NULL, JSON_REQUIRED, 0, 6, &i, &e), ERR_INVALID);
    assert_int_equal(json_get_int(obj, "s", NULL, JSON_REQUIRED, 0, 6, &i, &e), ERR_INVALID);
    assert_int_equal(json_get_bool(obj, "b", NULL, JSON_REQUIRED, &b, &e), ERR_OK);
    assert_true(b);
    assert_int_equal(json_get_bool(obj, "i", NULL, JSON_REQUIRED, &b, &e), ERR_INVALID);
    assert_int_equal(json_get_obj(obj, "o", NULL, JSON_REQUIRED, &sub, &e), ERR_OK);
    assert_int_equal(json_check_str_map(sub, "o", 1, 2, &e), ERR_OK);
    assert_int_equal(json_check_str_map(sub, "o", 0, 2, &e), ERR_INVALID);
    assert_int_equal(json_check_str_map(sub, "o", 1, 1, &e), ERR_INVALID);
    assert_int_equal(json_get_obj(obj, "m", NULL, JSON_REQUIRED, &sub, &e), ERR_OK);
    assert_int_equal(json_check_str_map(sub, "m", 1, 9, &e), ERR_INVALID);
    assert_int_equal(json_get_arr(obj, "a", NULL, JSON_REQUIRED, &sub, &e), ERR_OK);
    assert_int_equal(json_get_arr(obj, "o", NULL, JSON_REQUIRED, &sub, &e), ERR_INVALID);
    assert_int_equal(json_get_str(sub, "s", NULL, JSON_REQUIRED, 4, &s, &e), ERR_INVALID);
    json_decref(obj);
    assert_int_equal(json_parse(" \n", 2, true, &obj, &e), ERR_OK);
    assert_int_equal(json_object_size(obj), 0);
    json_decref(obj);
}

/* Whatever the bytes are, the output is JSON again; good UTF-8 comes back as it was. */
static void test_json_text(void **state)
{
    static const char *const same[] = {
        "",
        "plain",
        "q\"b\\",
        "\x01\n\t\x1f",
        "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10",
        "\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f",
        "\xc3\xa9\xf0\x9f\x8f\x9d"};
    struct buf b CLEANUP_BUF;
    struct err e;
    json_t *value;

    buf_init(&b, 100000);
    for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
        buf_clear(&b);
        assert_int_equal(json_append_text(&b, same[i], strlen(same[i])), 0);
        assert_int_equal(json_parse(b.data, b.len, false, &value, &e), ERR_OK);
        assert_string_equal(json_string_value(value), same[i]);
        json_decref(value);
    }
    for (int i = 0; i < 300; i++) {
        char bytes[64];

        ids_random_bytes(bytes, sizeof(bytes));
        for (size_t k = 0; k < sizeof(bytes); k++)
            if (bytes[k] == '\0')
                bytes[k] = 'x';
        buf_clear(&b);
        assert_int_equal(json_append_text(&b, bytes, sizeof(bytes)), 0);
        assert_int_equal(json_parse(b.data, b.len, false, &value, &e), ERR_OK);
        json_decref(value);
    }
    buf_clear(&b);
    assert_int_equal(json_append_text(&b, "a\xed\xa0\x80z", 5), 0); /* a surrogate */
    assert_string_equal(b.data, "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbdz\"");
    buf_clear(&b);
    assert_int_equal(json_append_text(&b, "\0\x1b\x7f", 3), 0);
    assert_string_equal(b.data, "\"\\u0000\\u001b\x7f\"");
}

/* Cut anywhere, a text's pieces are whole but for the beginning of the next character. */
static void pieces_of_text_end_with_characters(void **state)
{
    static const char text[] = "a\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80z";
    static const size_t whole[] = {0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 11};

    for (size_t n = 0; n < ARRAY_SIZE(whole); n++)
        assert_int_equal(json_whole_text(text, n), whole[n]);
    assert_int_equal(json_whole_text("\xff\xfe", 2),
                     1); /* may be a beginning, as far as this looks */
    assert_int_equal(json_whole_text("\x80\x80\x80\x80", 4), 4);
    assert_int_equal(json_whole_text("\xc3z", 2), 2);
}

/* -- multipart ----------------------------------------------------------------------------------- */

struct parts {
    struct buf log; /* "<name|filename|type>contents;" per part */
    int stop_after;
};

static int on_part(void *arg, const struct multipart_part *p)
{
    struct parts *s = arg;

    return buf_printf(&s->log, "<%s|%s|%s>", p->name, p->filename ? p->filename : "-",
                      p->content_type);
}

static int on_data(void *arg, const char *data, size_t len)
{
    struct parts *s = arg;

    if (s->stop_after > 0 && --s->stop_after == 0)
        return -ENOSPC;
    return buf_append(&s->log, data, len);
}

static int on_part_end(void *arg)
{
    struct parts *s = arg;

    return buf_append(&s->log, ";", 1);
}

static const struct multipart_callbacks callbacks = {on_part, on_data, on_part_end};

/* Feeds in pieces of n bytes (0: all at once). */
static int feed(struct parts *s, const char *type, const char *text, size_t len, size_t n,
                bool *complete)
{
    struct multipart *m;
    int r = multipart_new(type, 5, &callbacks, s, &m);

    if (r < 0)
        return r;
    buf_clear(&s->log);
    for (size_t at = 0; at < len && r == 0;) {
        size_t take = n == 0 ? len : MIN(n, len - at);

        r = multipart_feed(m, text + at, take);
        at += take;
    }
    *complete = multipart_complete(m);
    multipart_free(m);
    return r;
}

#define TYPE "multipart/form-data; boundary=AaB"

static void test_multipart(void **state)
{
    static const struct {
        const char *text, *want;
    } cases[] = {
        {"--AaB\r\nContent-Disposition: form-data; name=\"f\"; filename=\"/a b\"\r\n"
         "Content-Type: text/plain\r\n\r\nhello\r\n--AaB--\r\n",
         "<f|/a b|text/plain>hello;"},
        {"preamble\r\n--AaB  \r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n--AaB\r\n"
         "content-disposition:form-data;name=\"b\"\r\n\r\nx\r\n\r\n--Aa\r\n-\r--\r\n--AaB--"
         "epilogue",
         "<a|-|>;<b|-|>x\r\n\r\n--Aa\r\n-\r--;"},
        {"--AaB\r\n\r\n\r\r\n\r\r\n--AaC\r\n--AaB--", "<|-|>\r\r\n\r\r\n--AaC;"},
        {"--AaB\r\nContent-Disposition: form-data; name=\"a\\\"b%22c\"; "
         "filename=\"C:\\dir\\\\x\"\r\n"
         "\r\n1\r\n--AaB--",
         "<a\"b\"c|C:\\dir\\x|>1;"},
        {"--AaB\r\nContent-Disposition: form-data; filename=\"plain\"; "
         "filename*=UTF-8''na%C3%AFve.txt\r\n\r\n1\r\n--AaB--",
         "<|na\xc3\xafve.txt|>1;"},
    };
    struct parts s = {0};
    bool complete;

    buf_init(&s.log, 1 << 16);
    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        for (size_t n = 0; n < 40; n++) {
            assert_int_equal(feed(&s, TYPE, cases[i].text, strlen(cases[i].text), n, &complete), 0);
            assert_true(complete);
            assert_string_equal(s.log.data, cases[i].want);
        }
    }
    buf_free(&s.log);
}

static void test_multipart_refused(void **state)
{
    static const char *const bad[] = {
        "--AaBx\r\n\r\n",
        "--AaB\n\n",
        "--AaB-x",
        "--AaB\r\nNo colon\r\n\r\n",
        "--AaB\r\nA : b\r\n\r\n",
        "--AaB\r\nA: b\r\n c\r\n\r\n",
        "--AaB\r\nA: b\n\r\n",
        "--AaB\r\nContent-Disposition: attachment; name=\"f\"\r\n\r\n",
        "--AaB\r\nContent-Disposition: form-data; name=\"f\r\n\r\n",
        "--AaB\r\nContent-Disposition: form-data; filename*=latin1''x\r\n\r\n",
        "--AaB\r\nContent-Disposition: form-data; filename*=UTF-8''%00\r\n\r\n",
    };
    static const char *const bad_types[] = {
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/mixed; boundary=a",
        "multipart/form-data; boundary=\"a\r\"",
        "multipart/form-data; boundary=a; boundary=b",
        ("multipart/form-data; boundary="
         "00000000001111111111222222222233333333334444444444555555555566666666667"),
    };
    static char large[10000] = "--AaB\r\nA: ";
    struct parts s = {0};
    bool complete;

    buf_init(&s.log, 1 << 16);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (feed(&s, TYPE, bad[i], strlen(bad[i]), 0, &complete) != -EINVAL)
            fail_msg("%s", bad[i]);
    for (size_t i = 0; i < ARRAY_SIZE(bad_types); i++)
        assert_int_equal(feed(&s, bad_types[i], "", 0, 0, &complete), -EINVAL);
    memset(large + 10, 'x', sizeof(large) - 10);
    assert_int_equal(feed(&s, TYPE, large, sizeof(large), 100, &complete), -EMSGSIZE);
    s.stop_after = 1;
    assert_int_equal(feed(&s, TYPE, "--AaB\r\n\r\nx\r\n--AaB--", 21, 0, &complete), -ENOSPC);
    assert_int_equal(feed(&s, TYPE,
                          "--AaB\r\n\r\n\r\n--AaB\r\n\r\n\r\n--AaB\r\n\r\n\r\n--AaB\r\n\r\n\r\n"
                          "--AaB\r\n\r\n\r\n--AaB\r\n\r\n\r\n--AaB--",
                          69, 0, &complete),
                     -EMSGSIZE); /* six parts where five are allowed */
    assert_int_equal(feed(&s, TYPE, "--AaB\r\n\r\nabc", 12, 0, &complete), 0);
    assert_false(complete);
    buf_free(&s.log);
}

/* Contents made to look like the boundary, in random pieces, against the whole at once. */
static void test_multipart_random(void **state)
{
    static const char alphabet[] = "\r\r\n\n--AAaaBBx";
    struct parts whole = {0}, cut = {0};
    char text[400];

    buf_init(&whole.log, 1 << 16);
    buf_init(&cut.log, 1 << 16);
    for (int round = 0; round < 3000; round++) {
        unsigned char dice[300];
        bool a, b;
        int ra, rb;
        size_t len;

        ids_random_bytes(dice, sizeof(dice));
        len = (size_t)sprintf(text, "--AaB\r\n\r\n");
        for (size_t i = 0; i < dice[0]; i++)
            text[len++] = alphabet[dice[i + 1] % (sizeof(alphabet) - 1)];
        len += (size_t)sprintf(text + len, "\r\n--AaB--");
        ra = feed(&whole, TYPE, text, len, 0, &a);
        rb = feed(&cut, TYPE, text, len, 1 + dice[299] % 9, &b);
        assert_int_equal(ra, rb);
        assert_int_equal(a, b);
        assert_string_equal(whole.log.data ? whole.log.data : "", cut.log.data ? cut.log.data : "");
    }
    buf_free(&whole.log);
    buf_free(&cut.log);
}

/* -- ranges, dates, types ------------------------------------------------------------------------ */

static void test_range(void **state)
{
    static const struct {
        const char *value;
        uint64_t size;
        int r;
        uint64_t first, len;
    } cases[] = {
        {"bytes=0-0", 10, 0, 0, 1},
        {"bytes=0-", 10, 0, 0, 10},
        {"bytes=5-100", 10, 0, 5, 5},
        {"bytes=-3", 10, 0, 7, 3},
        {"bytes=-30", 10, 0, 0, 10},
        {"Bytes= 2-3 ", 10, 0, 2, 2},
        {"bytes=10-", 10, -ERANGE, 0, 0},
        {"bytes=-0", 10, -ERANGE, 0, 0},
        {"bytes=0-0", 0, -ERANGE, 0, 0},
        {"bytes=-1", 0, -ERANGE, 0, 0},
        {"bytes=5-4", 10, -ENOENT, 0, 0},
        {"bytes=-", 10, -ENOENT, 0, 0},
        {"bytes=0-1,3-4", 10, -ENOENT, 0, 0},
        {"lines=0-1", 10, -ENOENT, 0, 0},
        {"bytes=a-b", 10, -ENOENT, 0, 0},
        {"bytes=0-1x", 10, -ENOENT, 0, 0},
        {"bytes=99999999999999999999-", 10, -ERANGE, 0, 0},
        {"bytes=0-99999999999999999999", 10, 0, 0, 10},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct range got = {0};

        if (range_parse(cases[i].value, cases[i].size, &got) != cases[i].r ||
            got.first != cases[i].first || got.len != cases[i].len)
            fail_msg("%s of %d: %d+%d", cases[i].value, (int)cases[i].size, (int)got.first,
                     (int)got.len);
    }
}

static void test_dates(void **state)
{
    static const char *const same[] = {"Sun, 06 Nov 1994 08:49:37 GMT",
                                       "Sunday, 06-Nov-94 08:49:37 GMT",
                                       "Sun Nov  6 08:49:37 1994"};
    static const char *const bad[] = {"",
                                      "now",
                                      "Sun, 06 Foo 1994 08:49:37 GMT",
                                      "Sun, 32 Nov 1994 08:49:37 GMT",
                                      "Sun, 06 Nov 1994 25:49:37 GMT",
                                      "Sun, 06 Nov 1994 08:49:37 GMTx",
                                      "Sun, 06 Nov 1994 -1:49:37 GMT",
                                      "Sun, 06 Nov 1994 08:49:37"};
    char text[HTTP_DATE_SIZE];
    time_t t;

    for (size_t i = 0; i < ARRAY_SIZE(same); i++) {
        t = 0;
        assert_int_equal(http_date_parse(same[i], &t), 0);
        assert_int_equal(t, 784111777);
    }
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_int_equal(http_date_parse(bad[i], &t), -EINVAL);
    http_date_format(784111777, text);
    assert_string_equal(text, same[0]);
    http_date_format(INT64_MAX, text);
    http_date_format(INT64_MIN, text);
}

static void test_mime(void **state)
{
    assert_string_equal(mime_by_name("/a.d/b.TXT"), "text/plain; charset=utf-8");
    assert_null(mime_by_name("/a.txt/b"));
    assert_null(mime_by_name("x."));
    assert_string_equal(mime_by_contents("", 0), "text/plain; charset=utf-8");
    assert_string_equal(mime_by_contents("h\xc3\xa9", 3), "text/plain; charset=utf-8");
    assert_string_equal(mime_by_contents("h\xc3", 2), "text/plain; charset=utf-8"); /* cut */
    assert_string_equal(mime_by_contents("h\xc3x", 3), "application/octet-stream");
    assert_string_equal(mime_by_contents("a\0b", 3), "application/octet-stream");
    assert_string_equal(mime_by_contents("\x89PNG\r\n\x1a\n", 8), "image/png");
}

/* -- gzip ---------------------------------------------------------------------------------------- */

struct sink {
    struct buf b;
    size_t pieces;
    bool balk; /* answers full each time */
};

static int on_bytes(void *arg, const void *data, size_t len)
{
    struct sink *s = arg;

    assert_true(len > 0 && len <= GZIP_PIECE_BYTES);
    s->pieces++;
    assert_int_equal(buf_append(&s->b, data, len), 0);
    return s->balk ? 1 : 0;
}

/* Feeds all, going on after each "full". */
static int pump(struct gzip *z, const char *data, size_t n, size_t piece)
{
    int r = 0;

    for (size_t at = 0; at < n;) {
        size_t used = 0;

        r = gzip_feed(z, data + at, MIN(piece, n - at), &used);
        if (r < 0)
            return r;
        at += used;
    }
    for (int i = 0; i < 100000; i++) {
        r = gzip_finish(z);
        if (r != 1)
            return r;
    }
    return -ELOOP;
}

static void test_gzip(void **state)
{
    static char text[1000000];
    struct sink packed = {0}, out = {0};
    struct gzip *z;

    for (size_t i = 0; i < sizeof(text); i++)
        text[i] = (char)(i % 7 ? i / 1000 : i * i);
    for (int balk = 0; balk < 2; balk++) {
        packed.balk = out.balk = balk;
        buf_init(&packed.b, 1 << 21);
        buf_init(&out.b, 1 << 21);
        assert_int_equal(gzip_deflate_new(1, on_bytes, &packed, &z), 0);
        assert_int_equal(pump(z, text, sizeof(text), 77777), 0);
        gzip_free(z);
        assert_true(packed.b.len < sizeof(text));
        assert_int_equal(gzip_inflate_new(sizeof(text), on_bytes, &out, &z), 0);
        assert_int_equal(pump(z, packed.b.data, packed.b.len, 333), 0);
        gzip_free(z);
        assert_int_equal(out.b.len, sizeof(text));
        assert_memory_equal(out.b.data, text, sizeof(text));
        buf_clear(&out.b); /* one byte less than it takes */
        assert_int_equal(gzip_inflate_new(sizeof(text) - 1, on_bytes, &out, &z), 0);
        assert_int_equal(pump(z, packed.b.data, packed.b.len, 1 << 20), -EMSGSIZE);
        gzip_free(z);
        buf_clear(&out.b);
        assert_int_equal(gzip_inflate_new(UINT64_MAX, on_bytes, &out, &z), 0); /* cut */
        assert_int_equal(pump(z, packed.b.data, packed.b.len - 9, 4096), -EBADMSG);
        gzip_free(z);
        buf_clear(&out.b);
        packed.b.data[packed.b.len - 5] ^= 1; /* its checksum */
        assert_int_equal(gzip_inflate_new(UINT64_MAX, on_bytes, &out, &z), 0);
        assert_int_equal(pump(z, packed.b.data, packed.b.len, 4096), -EBADMSG);
        gzip_free(z);
        buf_free(&packed.b);
        buf_free(&out.b);
    }
}

static void test_gzip_members(void **state)
{
    struct sink packed = {0}, out = {0};
    struct gzip *z;

    buf_init(&packed.b, 4096);
    buf_init(&out.b, 4096);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(gzip_deflate_new(6, on_bytes, &packed, &z), 0);
        assert_int_equal(pump(z, "twice ", 6, 6), 0);
        gzip_free(z);
    }
    for (size_t piece = 1; piece < 60; piece++) {
        buf_clear(&out.b);
        assert_int_equal(gzip_inflate_new(100, on_bytes, &out, &z), 0);
        assert_int_equal(pump(z, packed.b.data, packed.b.len, piece), 0);
        gzip_free(z);
        assert_string_equal(out.b.data, "twice twice ");
    }
    assert_int_equal(buf_append(&packed.b, "junk", 4), 0);
    assert_int_equal(gzip_inflate_new(100, on_bytes, &out, &z), 0);
    assert_int_equal(pump(z, packed.b.data, packed.b.len, 10), -EBADMSG);
    gzip_free(z);
    buf_free(&packed.b);
    buf_free(&out.b);
}

static void test_accept(void **state)
{
    assert_true(gzip_accepted("gzip, deflate"));
    assert_true(gzip_accepted("br;q=1.0, GZIP;q=0.5"));
    assert_true(gzip_accepted("*"));
    assert_false(gzip_accepted(NULL));
    assert_false(gzip_accepted(""));
    assert_false(gzip_accepted("deflate"));
    assert_false(gzip_accepted("gzip;q=0"));
    assert_false(gzip_accepted("gzip;q=0.000, *"));
    assert_true(gzip_accepted("gzip;q=0.001"));
    assert_false(gzip_accepted("identity;q=1, gzip;q=0.5"));
    assert_true(gzip_identity_refused("gzip, identity;q=0"));
    assert_true(gzip_identity_refused("*;q=0"));
    assert_false(gzip_identity_refused("*;q=0, identity"));
    assert_false(gzip_identity_refused("gzip"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_percent),
        cmocka_unit_test(test_query),
        cmocka_unit_test(test_authority),
        cmocka_unit_test(test_json_refused),
        cmocka_unit_test(pieces_of_text_end_with_characters),
        cmocka_unit_test(test_json_of_a_request_has_so_many_values),
        cmocka_unit_test(a_long_text_is_refused_at_its_end),
        cmocka_unit_test(test_json_of_a_sandbox_is_not_dense),
        cmocka_unit_test(test_json_env),
        cmocka_unit_test(test_json_fields),
        cmocka_unit_test(test_json_text),
        cmocka_unit_test(test_multipart),
        cmocka_unit_test(test_multipart_refused),
        cmocka_unit_test(test_multipart_random),
        cmocka_unit_test(test_range),
        cmocka_unit_test(test_dates),
        cmocka_unit_test(test_mime),
        cmocka_unit_test(test_gzip),
        cmocka_unit_test(test_gzip_members),
        cmocka_unit_test(test_accept),
    };

    json_wipe_frees();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
