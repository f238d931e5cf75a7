/* The texts that answers are searched for: a secret in the forms in which servers give back what
 * they were sent. */
#include "base/base64.h"
#include "egress/credential/credential.h"
#include "egress/credential/response_secrets.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define SECRET "sk-1b/Zq+9 \"x\\y&=f0"
#define HOST   "api.example.com"

static struct redact *searched_for(enum credential_kind kind, const char *value)
{
    struct credentials *all = calloc(1, sizeof(*all) + sizeof(all->list[0]));
    json_t *bind = json_pack("{s:[{s:s, s:[s]}]}", "rules", "action", "allow", "domains", HOST);
    struct redact *r = NULL;
    struct err e = {0};

    all->refs = 1;
    all->count = 1;
    all->searched = response_secrets_cache_new();
    all->list[0].kind = kind;
    all->list[0].value = strdup(value);
    if (policy_new(bind, &all->list[0].bound, &e) != ERR_OK)
        fail_msg("%s", e.text);
    json_decref(bind);
    assert_int_equal(response_secrets_for(all, HOST, 443, &r), 0);
    credentials_unref(all);
    return r;
}

/* The output of an answer that comes in pieces of that size; malloc'd. */
static char *pass(struct redact *shared, const char *text, size_t n, size_t piece)
{
    struct redact *r = redact_share(shared);
    struct buf out;

    buf_init(&out, 1 << 20);
    for (size_t at = 0; at < n; at += piece) {
        assert_int_equal(redact_feed(r, text + at, MIN(piece, n - at), true), 0);
        assert_int_equal(redact_take(r, false, &out), 0);
    }
    assert_int_equal(redact_take(r, true, &out), 0);
    redact_free(r);
    assert_int_equal(out.len, n);
    return buf_take(&out);
}

/* The text between two marks is written over, whole, in pieces of every size; the text around it
 * stays. */
static void check_found(struct redact *r, const char *before, const char *secret, const char *after)
{
    char text[4096];
    size_t from = strlen(before), to = from + strlen(secret);
    size_t n = (size_t)snprintf(text, sizeof(text), "%s%s%s", before, secret, after);

    for (size_t piece = 1; piece <= n; piece += piece < 12 ? 1 : 37) {
        char *out = pass(r, text, n, piece);

        if (strncmp(out + from, "[redacted]", 10) != 0 && !strstr(before, "%") &&
            !strstr(before, "\\") && !strstr(before, "&"))
            fail_msg("%s -> %s", text, out);
        for (size_t i = from + 10; i < to; i++)
            if (out[i] != '*' && !strchr("[redacted]", out[i]))
                fail_msg("%s -> %s (pieces of %zu)", text, out, piece);
        assert_string_equal(out + to, after);
        free(out);
    }
}

static void check_not_found(struct redact *r, const char *text)
{
    char *out = pass(r, text, strlen(text), 7);

    assert_string_equal(out, text);
    free(out);
}

/* A character as a server may write it. */
static void write_escaped(char c, int how, char *out)
{
    unsigned u = (unsigned char)c;

    switch (how) {
    case 1: snprintf(out, 16, "%%%02x", u); break;
    case 2: snprintf(out, 16, "%%%02X", u); break;
    case 3: snprintf(out, 16, "\\u%04x", u); break;
    case 4: snprintf(out, 16, "\\u%04X", u); break;
    case 5: snprintf(out, 16, "\\x%02x", u); break;
    case 6: snprintf(out, 16, "&#%u;", u); break;
    case 7: snprintf(out, 16, "&#x%x;", u); break;
    case 8: snprintf(out, 16, "&#x%04X;", u); break;
    case 10: snprintf(out, 16, "&#%u", u); break;
    case 11: snprintf(out, 16, "\\%o", u); break;
    case 12: snprintf(out, 16, "\\u{%x}", u); break;
    default: snprintf(out, 16, how == 9 && strchr("\"'\\/`$&<>", c) ? "\\%c" : "%c", c);
    }
}

static void escape(const char *secret, int (*how)(size_t i), char *out)
{
    *out = '\0';
    for (size_t i = 0; secret[i]; i++)
        write_escaped(secret[i], how(i), out + strlen(out));
}

static int all_same = 0;

static int same(size_t i)
{
    return all_same;
}

static int mixed(size_t i)
{
    return (int)((i * 7 + 3) % 10);
}

static int few(size_t i)
{
    return i % 5 == 2 ? (int)(i % 10) : 0;
}

/* Whatever stands before it, also what looks like the beginning of an escape. */
static const char *const leads[] = {
    "say ",   "%4",   "%",         "%%",   "\\",
    "\\u00",  "\\\\", "&#",        "&#x4", "&amp;&",
    "sk-1b/", "%73",  "\\u0073k-", "",     "sk-1b%2fZq%2B9sk-1b\\/"};

static void test_escaped_characters(void **state)
{
    struct redact *r = searched_for(CREDENTIAL_BEARER, SECRET);
    char text[1024];

    for (size_t b = 0; b < ARRAY_SIZE(leads); b++) {
        for (all_same = 0; all_same < 13; all_same++) {
            escape(SECRET, same, text);
            check_found(r, leads[b], text, " and on");
        }
        escape(SECRET, mixed, text);
        check_found(r, leads[b], text, "\", \"more\": 1}");
        escape(SECRET, few, text);
        check_found(r, leads[b], text, "");
    }
    redact_free(r);
}

/* The control: a text that is no escape is no secret, and a part of one stays. */
static void test_what_is_none(void **state)
{
    struct redact *r = searched_for(CREDENTIAL_BEARER, "sk-0123456789");

    check_not_found(r, "sk-012345678%3");
    check_not_found(r, "sk-0123%4g56789 sk-0123\\u00g456789 sk-0123&#34567;89");
    check_not_found(r, "100% of {\"a\": \"b\\n\\u00e4\"} &nbsp; &lt;sk-&gt; %zz %");
    check_not_found(r, "%2573k-0123456789"); /* of %73k..., which is none of the usual forms */
    redact_free(r);
}

static char *base64_of(const char *before, const char *secret, const char *after)
{
    char raw[512], *out = malloc(1024);

    base64_encode(raw, (size_t)snprintf(raw, sizeof(raw), "%s%s%s", before, secret, after), out);
    return out;
}

/* `curl -u user:cay-secret:NAME`, and the same in a text of any kind: the characters that hold nothing but
 * the secret are gone, whatever stands before and after. */
static void test_base64(void **state)
{
    static const char *const users[] = {"", "a", "ab", "user:", "someone:", "x-access-token:"};
    struct redact *r = searched_for(CREDENTIAL_PLACEHOLDER, SECRET);

    for (size_t i = 0; i < ARRAY_SIZE(users); i++) {
        char *text = base64_of(users[i], SECRET, i % 2 ? "" : "tail"), *out, raw[512];
        size_t n = strlen(text);

        for (int url = 0; url < 2; url++) {
            out = pass(r, text, n, 5);
            assert_non_null(strstr(out, "[redacted]"));
            for (size_t k = 0; k < n; k++)
                out[k] = strchr("[]*", out[k]) ? 'A' : out[k] == '-' ? '+' : out[k];
            memset(raw, 0, sizeof(raw));
            base64_decode(out, n, raw);
            assert_null(memmem(raw, sizeof(raw), &SECRET[1], 3));
            assert_null(memmem(raw, sizeof(raw), &SECRET[8], 3));
            free(out);
            for (size_t k = 0; k < n; k++)
                text[k] = text[k] == '+' ? '-' : text[k] == '/' ? '_' : text[k];
        }
        free(text);
    }
    redact_free(r);
}

static void test_other_forms(void **state)
{
    struct redact *r = searched_for(CREDENTIAL_PLACEHOLDER, "Key of/a+b=12345");

    check_found(r, "hex ", "4b6579206f662f612b623d3132333435", ".");
    check_found(r, "HEX ", "4B6579206F662F612B623D3132333435", ".");
    check_found(r, "mail: ", "Key of/a+b=3D12345", "=3D");
    check_found(r, "form=", "Key+of%2Fa%2Bb%3D12345", "&b=c");
    check_found(r, "form in JSON: ", "Key+of%2Fa%2Bb%3D12345", "\\n");
    check_found(r, "form in a query: ", "Key%2Bof%252Fa%252Bb%253D12345", "\\n");
    redact_free(r);
    r = searched_for(CREDENTIAL_PLACEHOLDER, "Key\"of\\12345");
    check_found(r, "JSON in JSON: \\\"", "Key\\\\\\\"of\\\\\\\\12345", "\\\"");
    redact_free(r);
}

/* A key that only signs is not sent: there is nothing to look for, and files can be read in ranges. */
static void test_signing_key_is_not_sent(void **state)
{
    struct redact *r = searched_for(CREDENTIAL_SIGV4, "");

    assert_null(r);
}

/* Credentials for hosts of their own, each with a value of that length. */
static struct credentials *of_hosts(size_t count, size_t length)
{
    struct credentials *all = calloc(1, sizeof(*all) + count * sizeof(all->list[0]));
    struct err e = {0};

    all->refs = 1;
    all->count = count;
    all->searched = response_secrets_cache_new();
    for (size_t i = 0; i < count; i++) {
        char host[32];
        json_t *bind;

        snprintf(host, sizeof(host), "host%zu.example.com", i);
        bind = json_pack("{s:[{s:s, s:[s]}]}", "rules", "action", "allow", "domains", host);
        all->list[i].kind = CREDENTIAL_BEARER;
        all->list[i].value = malloc(length + 1);
        for (size_t k = 0; k < length; k++)
            all->list[i].value[k] = (char)('a' + (k * 7 + i * (k % 13 + 1)) % 26);
        all->list[i].value[length] = '\0';
        assert_int_equal(policy_new(bind, &all->list[i].bound, &e), ERR_OK);
        json_decref(bind);
    }
    return all;
}

static void ask_for(const struct credentials *all, size_t i)
{
    struct redact *r = NULL;
    char host[32], *out;

    snprintf(host, sizeof(host), "host%zu.example.com", i);
    assert_int_equal(response_secrets_for(all, host, 443, &r), 0);
    out = pass(r, all->list[i].value, strlen(all->list[i].value), 1000);
    assert_memory_equal(out, "[redacted]*", 11);
    free(out);
    redact_free(r);
}

/* Hosts in turn cost one making each, not one for each connection. */
static void test_hosts_in_turn(void **state)
{
    struct credentials *all = of_hosts(RESPONSE_SECRETS_SETS_MAX, 40);

    for (size_t i = 0; i < 20 * all->count; i++)
        ask_for(all, i % all->count);
    assert_int_equal(response_secrets_cache_made(all->searched), all->count);
    credentials_unref(all);
}

/* More of them than are kept: those that are used stay, and their number is bounded. */
static void test_hosts_that_go(void **state)
{
    struct credentials *all = of_hosts(CREDENTIALS_MAX, 40), *large = of_hosts(20, 8000);

    for (size_t i = 0; i < all->count; i++) {
        ask_for(all, i);
        ask_for(all, 0);
    }
    assert_int_equal(response_secrets_cache_made(all->searched), all->count);
    credentials_unref(all);
    for (size_t i = 0; i < large->count; i++) {
        ask_for(large, i);
        assert_in_range(response_secrets_cache_bytes(large->searched), 1,
                        RESPONSE_SECRETS_CACHE_BYTES);
    }
    ask_for(large, large->count - 2);
    assert_int_equal(response_secrets_cache_made(large->searched), large->count);
    ask_for(large, 0);
    assert_int_equal(response_secrets_cache_made(large->searched), large->count + 1);
    credentials_unref(large);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_escaped_characters),
        cmocka_unit_test(test_what_is_none),
        cmocka_unit_test(test_base64),
        cmocka_unit_test(test_other_forms),
        cmocka_unit_test(test_signing_key_is_not_sent),
        cmocka_unit_test(test_hosts_in_turn),
        cmocka_unit_test(test_hosts_that_go),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
