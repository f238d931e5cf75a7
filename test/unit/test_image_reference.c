/* Names of images as clients write them, the operator's lists, and the policy that comes of both. */
#include "base/util.h"
#include "image/reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#define DIGEST "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void names_are_read(void **state)
{
    static const struct {
        const char *text, *source;
    } good[] = {
        {"debian", "docker://docker.io/library/debian:latest"},
        {"debian:12", "docker://docker.io/library/debian:12"},
        {"team/tools", "docker://docker.io/team/tools:latest"},
        {"docker.io/debian:12", "docker://docker.io/library/debian:12"},
        {"index.docker.io/team/tools:1", "docker://docker.io/team/tools:1"},
        {"ghcr.io/a/b/c:V1.2_x-y", "docker://ghcr.io/a/b/c:V1.2_x-y"},
        {"registry.example.com:5000/a@" DIGEST, "docker://registry.example.com:5000/a@" DIGEST},
        {"ghcr.io/a:v1@" DIGEST, "docker://ghcr.io/a@" DIGEST},
        {"localhost:5000/a__b", "docker://localhost:5000/a__b:latest"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(good); i++) {
        char source[IMAGE_SOURCE_SIZE];
        struct image_reference r;
        struct err e;

        if (image_reference_parse(good[i].text, &r, &e) != ERR_OK)
            fail_msg("%s: %s", good[i].text, e.text);
        image_reference_source(&r, NULL, source);
        assert_string_equal(source, good[i].source);
        image_reference_source(&r, DIGEST, source);
        assert_string_equal(strchr(source, '@'), "@" DIGEST);
    }
}

static void what_is_no_name_is_refused(void **state)
{
    static const char *const bad[] = {"",
                                      ":",
                                      "@",
                                      "/",
                                      "a/",
                                      "/a",
                                      "a//b",
                                      "Debian",
                                      "a b",
                                      "a\nb",
                                      "-a",
                                      "a-/b",
                                      "a/../b",
                                      "..",
                                      "127.0.0.1/a",
                                      "127.0.0.1:5000/a",
                                      "10.1/a",
                                      "0x7f.1/a:b/c",
                                      "[::1]:5000/a",
                                      "a.b:/c",
                                      "a.b:0/c",
                                      "a.b:65536/c",
                                      "a.b:1x/c",
                                      "a..b/c",
                                      ".a.b/c",
                                      "user@a.b/c",
                                      "user:x@a.b/c",
                                      "docker://a",
                                      "http://a.b/c",
                                      "a:",
                                      "a:.b",
                                      "a: b",
                                      "a:b:c",
                                      "a@",
                                      "a@sha256:12",
                                      "a@md5:0123",
                                      "a@" DIGEST "0",
                                      "a.b:5000/c:--x y",
                                      "A.B/c",
                                      "a%2f/b"};
    char longest[600];

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        struct image_reference r = {.host = "untouched"};
        struct err e;

        if (image_reference_parse(bad[i], &r, &e) != ERR_INVALID)
            fail_msg("\"%s\" was taken", bad[i]);
        assert_string_equal(r.host, "untouched");
    }
    for (size_t n = 100; n < sizeof(longest); n += 20) {
        struct image_reference r;
        struct err e;

        memset(longest, 'a', n);
        longest[n] = '\0';
        if (n > IMAGE_REPOSITORY_SIZE)
            assert_int_equal(image_reference_parse(longest, &r, &e), ERR_INVALID);
        longest[1] = ':';
        if (n > IMAGE_REFERENCE_TAG_SIZE + 2)
            assert_int_equal(image_reference_parse(longest, &r, &e), ERR_INVALID);
    }
}

static bool allowed(const char *list, const char *name)
{
    struct image_reference r;
    struct err e;

    assert_int_equal(image_reference_parse(name, &r, &e), ERR_OK);
    return image_reference_is_allowed(list, &r);
}

static void lists_allow_what_they_name(void **state)
{
    static const char list[] = "docker.io/library, ghcr.io ,registry.example.com:5000/team";

    assert_true(allowed(list, "debian:12"));
    assert_false(allowed(list, "team/tools"));
    assert_true(allowed(list, "ghcr.io/any/thing"));
    assert_false(allowed(list, "ghcr.io:443/any/thing"));
    assert_true(allowed(list, "registry.example.com:5000/team"));
    assert_true(allowed(list, "registry.example.com:5000/team/tools"));
    assert_false(allowed(list, "registry.example.com:5000/teams"));
    assert_false(allowed(list, "registry.example.com/team/tools"));
    assert_false(allowed(list, "ghcr.io.example.net/a"));
    assert_false(allowed(NULL, "debian"));
    assert_false(allowed("", "debian"));
    assert_false(allowed(" , ,", "debian"));
    assert_null(image_registries_wrong(list));
    assert_null(image_registries_wrong(NULL));
    assert_null(image_hosts_wrong("a.example.com, b.example.com:8443"));
    assert_non_null(image_hosts_wrong("a.example.com/b"));
    assert_non_null(image_registries_wrong("https://ghcr.io"));
    assert_non_null(image_registries_wrong("10.0.0.1:5000"));
    assert_non_null(image_registries_wrong("ghcr.io/"));
    assert_non_null(image_registries_wrong("*.example.com"));
}

static void a_policy_has_these_hosts_alone(void **state)
{
    struct image_reference r;
    json_t *policy;
    char *text;
    struct err e;

    assert_int_equal(image_reference_parse("registry.example.com:5000/a", &r, &e), ERR_OK);
    policy = image_reference_policy(&r, "cdn.example.com, tokens.example.com:8443",
                                    "10.1.0.0/16 , fd00::/8");
    text = json_dumps(policy, JSON_COMPACT);
    assert_string_equal(
        text, "{\"rules\":[{\"action\":\"allow\",\"domains\":[\"registry.example.com\"],\"ports\":["
              "5000]},"
              "{\"action\":\"allow\",\"domains\":[\"cdn.example.com\"],\"ports\":[443]},"
              "{\"action\":\"allow\",\"domains\":[\"tokens.example.com\"],\"ports\":[8443]},"
              "{\"action\":\"allow\",\"addresses\":[\"10.1.0.0/16\",\"fd00::/8\"],\"ports\":["
              "5000,443,8443]}]}");
    free(text);
    json_decref(policy);
    assert_int_equal(image_reference_parse("debian", &r, &e), ERR_OK);
    policy = image_reference_policy(&r, NULL, NULL);
    assert_int_equal(json_array_size(json_object_get(policy, "rules")), 2);
    json_decref(policy);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_read),
        cmocka_unit_test(what_is_no_name_is_refused),
        cmocka_unit_test(lists_allow_what_they_name),
        cmocka_unit_test(a_policy_has_these_hosts_alone),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
