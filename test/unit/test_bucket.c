/* The operator's bucket: which settings and which files with keys are taken. */
#include "base/bucket.h"
#include "base/bucket_credentials.h"
#include "skip.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const struct bucket good = {.name = "cay-archives",
                                   .endpoint = "https://s3.eu-central-1.amazonaws.com",
                                   .region = "eu-central-1",
                                   .credentials = "/etc/cay/s3"};

static void is_refused(const struct bucket *b, const char *setting)
{
    const char *key, *wrong = bucket_check(b, &key);

    assert_non_null(wrong);
    assert_string_equal(key, setting);
}

static void is_taken(const struct bucket *b)
{
    const char *key;

    assert_null(bucket_check(b, &key));
}

static void names_and_regions(void **state)
{
    static const char *const bad[] = {"",     "ab",  "Cay", "a_b", "a/b",
                                      "a..b", "-ab", "ab-", "a b", ".ab"};
    struct bucket b = good;

    is_taken(&b);
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        b.name = bad[i];
        is_refused(&b, "bucket");
    }
    b = (struct bucket){.region = "\"", .endpoint = "x"}; /* without a name nothing is looked at */
    is_taken(&b);
    b = good;
    b.region = "eu\"";
    is_refused(&b, "region");
}

static void endpoints(void **state)
{
    static const char *const bad[] = {"s3.example.com",
                                      "https://",
                                      "https://s3.example.com/path",
                                      "https://user@s3.example.com",
                                      "https://s3.example.com:0",
                                      "https://s3.example.com:65536",
                                      "https://s3.example.com\"",
                                      "https://[::1",
                                      "http://s3.example.com",
                                      "http://127.0.0.1.example.com",
                                      "http://10.0.0.1:9000"};
    static const char *const fine[] = {
        "https://s3.example.com:9000", "https://10.0.0.1", "https://[2001:db8::1]:9000",
        "http://127.0.0.1:9000",       "http://localhost", "http://[::1]:9000"};
    struct bucket b = good;

    b.endpoint = NULL;
    is_refused(&b, "endpoint");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        b.endpoint = bad[i];
        is_refused(&b, "endpoint");
    }
    for (size_t i = 0; i < ARRAY_SIZE(fine); i++) {
        b.endpoint = fine[i];
        is_taken(&b);
    }
}

static void paths(void **state)
{
    struct bucket b = good;

    b.credentials = NULL;
    is_refused(&b, "credentials");
    b.credentials = "s3";
    is_refused(&b, "credentials");
    b = good;
    b.ca_file = "ca.pem";
    is_refused(&b, "ca_file");
    b.ca_file = "/etc/cay/ca.pem";
    is_taken(&b);
}

/* -- the file ---------------------------------------------------------------------------------- */

static int read_text(const char *text, mode_t mode, struct bucket_credentials *out,
                     const char **why)
{
    char path[] = "/tmp/cay-test-bucket-XXXXXX";
    int fd = mkstemp(path), rc;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    rc = bucket_credentials_read(path, out, why);
    unlink(path);
    return rc;
}

static void keys_are_read(void **state)
{
    struct bucket_credentials c;
    const char *why;

    if (geteuid() != 0)
        SKIP("root owns the file");
    assert_int_equal(read_text("# mine\n[default]\naws_access_key_id = AKIA1\n"
                               "aws_secret_access_key=se/cr+et=\r\nregion = x\n",
                               0600, &c, &why),
                     0);
    assert_string_equal(c.key_id, "AKIA1");
    assert_string_equal(c.secret, "se/cr+et=");
    assert_string_equal(c.token, "");
    assert_int_equal(read_text("aws_secret_access_key = s\naws_access_key_id = k\n"
                               "aws_session_token = t",
                               0400, &c, &why),
                     0);
    assert_string_equal(c.token, "t");
}

/* None of them may end a line of curl's configuration, or a text in it. */
static void files_that_are_refused(void **state)
{
    static const char *const bad[] = {"",
                                      "aws_access_key_id = k\n",
                                      "aws_secret_access_key = s\n",
                                      "aws_access_key_id = \naws_secret_access_key = s\n",
                                      "aws_access_key_id = k:k\naws_secret_access_key = s\n",
                                      "aws_access_key_id = k\naws_secret_access_key = \"s\"\n",
                                      "aws_access_key_id = k\naws_secret_access_key = s\\\n",
                                      "aws_access_key_id = k\naws_secret_access_key = s s\n"};
    struct bucket_credentials c;
    const char *why;

    if (geteuid() != 0)
        SKIP("root owns the file");
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_true(read_text(bad[i], 0600, &c, &why) < 0);
    assert_true(read_text("aws_access_key_id = k\naws_secret_access_key = s\n", 0640, &c, &why) <
                0);
    assert_non_null(strstr(why, "600"));
    assert_true(bucket_credentials_read("/nonexistent/keys", &c, &why) < 0);
    assert_true(bucket_credentials_read("/dev", &c, &why) < 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_and_regions),
        cmocka_unit_test(endpoints),
        cmocka_unit_test(paths),
        cmocka_unit_test(keys_are_read),
        cmocka_unit_test(files_that_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
