/* Credentials: sealed and opened, placeholders, signatures, secrets in answers, and what a request
 * gets. */
#include "base/base64.h"
#include "egress/credential/credential.h"
#include "egress/credential/credential_read.h"
#include "egress/credential/placeholder.h"
#include "egress/credential/redact.h"
#include "egress/credential/renew_message.h"
#include "egress/http/frames.h"
#include "egress/http/rewrite.h"
#include "egress/http/sigv4.h"
#include "policy/https_url.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cmocka.h>

static struct sealer *sealer;
static char state_dir[] = "/tmp/cay-test-credential-XXXXXX";

static int set_up(void **state)
{
    struct err e;

    assert_non_null(mkdtemp(state_dir));
    assert_int_equal(sealer_new(state_dir, -1, &sealer, &e), ERR_OK);
    return 0;
}

static int tear_down(void **state)
{
    char command[128];

    sealer_free(sealer);
    snprintf(command, sizeof(command), "rm -r %s", state_dir);
    return system(command);
}

static json_t *json(const char *text)
{
    json_error_t error;
    json_t *o = json_loads(text, 0, &error);

    if (!o)
        fail_msg("%s: %s", error.text, text);
    return o;
}

static char *seal(const char *tenant, const char *name, const char *value, const char *bind)
{
    json_t *r = json_pack("{s:s, s:s, s:o, s:o}", "tenant", tenant, "name", name, "value",
                          json_loads(value, JSON_DECODE_ANY, NULL), "bind", json(bind));
    char *sealed = NULL;
    struct err e = {0};

    if (credential_seal(sealer, r, &sealed, &e) != ERR_OK)
        fail_msg("%s", e.text);
    json_decref(r);
    return sealed;
}

static enum err_code open_one(const struct sealer *s, const char *tenant, const char *name,
                              const char *sealed, const char *bind, struct credentials **out,
                              struct err *e)
{
    json_t *list = json_pack("[{s:s, s:s, s:o}]", "name", name, "sealed", sealed, "bind",
                             json(bind));
    enum err_code code = credentials_new(s, tenant, list, out, e);

    json_decref(list);
    return code;
}

/* -- OAuth ------------------------------------------------------------------------------------- */

static void test_oauth_urls(void **state)
{
    static const char *const bad[] = {"http://a.example/t",
                                      "https://",
                                      "https:///t",
                                      "https://u@a.example/t",
                                      "https://a.example:0/t",
                                      "https://a.example:70000/t",
                                      "https://a.example:/t",
                                      "https://a.example?x",
                                      "https://a.example/t#f",
                                      "https://a.example/t t",
                                      "https://192.0.2.1/t",
                                      "https://[2001:db8::1]/t",
                                      "https://a.example:44 3/t",
                                      "https://a..example/t"};
    struct https_url url;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        assert_false(https_url_parse(bad[i], &url));
    assert_true(https_url_parse("HTTPS://Login.Example:443/t?x=1", &url));
    assert_string_equal(url.authority, "login.example");
    assert_string_equal(url.target, "/t?x=1");
    assert_true(https_url_parse("https://login.example:8443", &url));
    assert_string_equal(url.authority, "login.example:8443");
    assert_string_equal(url.target, "/");
    assert_int_equal(url.port, 8443);
    assert_true(https_url_is_host("login.example:8443"));
    assert_false(https_url_is_host("login.example:443"));
    assert_false(https_url_is_host("Login.example"));
}

#define OAUTH_BIND \
    "{\"kind\":\"oauth2\",\"domains\":[\"api.example.com\"],\"token_host\":\"login.example\"}"
#define OAUTH_VALUE                                                                                \
    "{\"token_url\":\"https://login.example/t\",\"client_id\":\"me\",\"client_secret\":\"a b+c\"," \
    "\"refresh_token\":\"refresh-0123\"}"

/* An access token is sealed for its credential, and is no value; a value is no token. */
static void test_oauth_token_is_bound(void **state)
{
    char *sealed = seal("acme", "mail", OAUTH_VALUE, OAUTH_BIND), *token_text = NULL;
    json_t *item = json_pack("{s:s, s:s, s:o}", "name", "mail", "sealed", sealed, "bind",
                             json(OAUTH_BIND));
    json_t *token = json_pack("{s:s, s:I, s:I}", "access_token", "access-0123", "serial",
                              (json_int_t)7, "end_ms", (json_int_t)INT64_MAX);
    json_t *list = json_pack("[O]", item);
    struct credentials *c = NULL;
    struct err e;

    assert_int_equal(credential_seal_token(sealer, "acme", item, token, &token_text, &e), ERR_OK);
    assert_int_equal(credentials_new(sealer, "acme", list, &c, &e), ERR_OK);
    assert_null(c->list[0].value);
    credentials_unref(c);
    json_object_set_new(item, "token", json_string(token_text));
    assert_int_equal(credentials_new(sealer, "acme", list, &c, &e), ERR_OK);
    assert_string_equal(c->list[0].value, "access-0123");
    assert_int_equal(c->list[0].oauth.serial, 7);
    credentials_unref(c);
    assert_int_equal(credentials_new(sealer, "other", list, &c, &e), ERR_DENIED);
    json_object_set_new(item, "token", json_string(sealed));
    assert_int_equal(credentials_new(sealer, "acme", list, &c, &e), ERR_DENIED);
    json_object_set_new(item, "sealed", json_string(token_text));
    json_object_del(item, "token");
    assert_int_equal(credentials_new(sealer, "acme", list, &c, &e), ERR_DENIED);
    json_decref(list);
    json_decref(item);
    json_decref(token);
    free(sealed);
    free(token_text);
}

static void test_oauth_request(void **state)
{
    json_t *value = json(OAUTH_VALUE);
    char *authorization = NULL;
    struct buf b;

    buf_init(&b, 4096);
    assert_int_equal(renew_request(value, &b, &authorization), 0);
    assert_string_equal(b.data, "grant_type=refresh_token&refresh_token=refresh-0123");
    assert_string_equal(authorization, "Basic bWU6YSUyMGIlMkJj"); /* me:a%20b%2Bc */
    free(authorization);
    buf_clear(&b);
    json_object_set_new(value, "client_auth", json_string("body"));
    assert_int_equal(renew_request(value, &b, &authorization), 0);
    assert_string_equal(b.data, "grant_type=refresh_token&refresh_token=refresh-0123&client_id=me"
                                "&client_secret=a%20b%2Bc");
    assert_null(authorization);
    buf_free(&b);
    json_decref(value);
}

static void test_oauth_answers(void **state)
{
    static const struct {
        int status;
        const char *body;
        enum err_code code;
        int64_t life_s;
    } answers[] = {
        {200, "{\"access_token\":\"abcdefgh\",\"token_type\":\"Bearer\",\"expires_in\":60}", ERR_OK,
         60},
        {200, "{\"access_token\":\"abcdefgh==\",\"token_type\":\"bearer\",\"expires_in\":\"9\"}",
         ERR_OK, 9},
        {200, "{\"access_token\":\"abcdefgh\",\"token_type\":\"bearer\"}", ERR_OK, 3600},
        {200, "{\"access_token\":\"abcdefgh\",\"token_type\":\"bearer\",\"expires_in\":-1}", ERR_OK,
         1},
        {200, "{\"access_token\":\"abcdefgh\",\"token_type\":\"bearer\",\"expires_in\":1e300}",
         ERR_OK, 31536000},
        {200, "{\"access_token\":\"abcdefgh\",\"token_type\":\"bearer\",\"expires_in\":-1e300}",
         ERR_OK, 1},
        {200, "{\"access_token\":\"abc defg\",\"token_type\":\"bearer\"}", ERR_UNAVAILABLE, 0},
        {200, "{\"access_token\":\"========\",\"token_type\":\"bearer\"}", ERR_UNAVAILABLE, 0},
        {200, "{\"access_token\":\"short\",\"token_type\":\"bearer\"}", ERR_UNAVAILABLE, 0},
        {200, "{\"access_token\":\"abcdefgh\",\"token_type\":\"mac\"}", ERR_UNAVAILABLE, 0},
        {200, "{\"access_token\":\"abcdefgh\"}", ERR_UNAVAILABLE, 0},
        {200, "{\"access_token\":\"abcdefgh\",\"token_type\":\"bearer\",\"refresh_token\":7}",
         ERR_UNAVAILABLE, 0},
        {200, "[]", ERR_UNAVAILABLE, 0},
        {200, "", ERR_UNAVAILABLE, 0},
        {302, "{\"access_token\":\"abcdefgh\",\"token_type\":\"bearer\"}", ERR_UNAVAILABLE, 0},
        {400, "{\"error\":\"invalid_grant\"}", ERR_DENIED, 0},
        {401, "{\"error\":\"invalid_client\"}", ERR_DENIED, 0},
        {400, "{\"error\":\"temporarily_unavailable\"}", ERR_UNAVAILABLE, 0},
        {400, "{\"error\":\"else\"}", ERR_UNAVAILABLE, 0},
        {429, "{\"error\":\"invalid_request\"}", ERR_UNAVAILABLE, 0},
        {503, "{\"error\":\"invalid_grant\"}", ERR_UNAVAILABLE, 0},
        {503, "", ERR_UNAVAILABLE, 0},
    };

    for (size_t i = 0; i < ARRAY_SIZE(answers); i++) {
        struct renew_answer a;
        struct err e = {0};

        assert_int_equal(
            renew_answer(answers[i].status, answers[i].body, strlen(answers[i].body), &a, &e),
            answers[i].code);
        if (answers[i].code == ERR_OK)
            assert_int_equal(a.life_s, answers[i].life_s);
        else
            assert_true(e.text[0] && !strstr(e.text, "abcdefgh"));
        renew_answer_free(&a);
    }
}

/* -- sealing ----------------------------------------------------------------------------------- */

static bool fits(const struct credential *c, const char *host, uint16_t port, const char *method,
                 const char *path)
{
    return credential_fits(c, host, port, (struct policy_transport){.tls = true}, method, path) ==
           POLICY_FITS;
}

/* Whatever condition an injection of a policy may have, a binding has, with the same meaning; a new one needs its sample
 * here. */
static void test_each_condition_binds(void **state)
{
    static const struct {
        const char *key, *list, *host, *method, *path;
        uint16_t port;
    } missed[] = {
        {"domains", "[\"api.example.com\"]", "b.example.com", "POST", "/v1", 443},
        {"ports", "[443]", "api.example.com", "POST", "/v1", 8443},
        {"methods", "[\"POST\"]", "api.example.com", "GET", "/v1", 443},
        {"paths", "[\"/v1*\"]", "api.example.com", "POST", "/v2", 443},
    };
    const char *key;
    size_t i;

    for (i = 0; (key = policy_binding_key(i)); i++) {
        struct credential c = {.name = "key"};
        json_t *bind = json("{\"kind\":\"bearer\",\"domains\":[\"*.example.com\"]}");
        struct err e;

        if (i >= ARRAY_SIZE(missed) || strcmp(missed[i].key, key) != 0)
            fail_msg("no sample of \"%s\": every condition of a binding is tested", key);
        json_object_set_new(bind, key, json(missed[i].list));
        if (credential_read_bind(&c, bind, &e) != ERR_OK)
            fail_msg("%s: %s", key, e.text);
        assert_true(fits(&c, "api.example.com", 443, "POST", "/v1"));
        if (fits(&c, missed[i].host, missed[i].port, missed[i].method, missed[i].path))
            fail_msg("%s: the binding does not hold", key);
        credential_clear(&c);
        json_decref(bind);
    }
    assert_int_equal(i, ARRAY_SIZE(missed));
}

#define BIND   "{\"kind\":\"bearer\",\"domains\":[\"api.example.com\"],\"paths\":[\"/v1*\"]}"
#define SECRET "sk-0123456789abcdef"

static void test_seal_and_open(void **state)
{
    char *sealed = seal("acme", "key", "\"" SECRET "\"", BIND), raw[4096];
    struct credentials *c = NULL;
    const struct credential *one;
    struct err e;
    ssize_t n = base64_decode(sealed, strlen(sealed), raw);

    assert_true(n > 0);
    assert_null(memmem(raw, (size_t)n, "0123456789abcdef", 16));
    assert_int_equal(open_one(sealer, "acme", "key", sealed, BIND, &c, &e), ERR_OK);
    one = credentials_find(c, "key", 3);
    assert_string_equal(one->value, SECRET);
    assert_true(fits(one, "api.example.com", 443, "POST", "/v1/chat"));
    assert_false(fits(one, "api.example.com", 443, "POST", "/v2"));
    assert_false(fits(one, "example.com", 443, "POST", "/v1/chat"));
    assert_false(fits(one, "api.example.com.evil", 443, "POST", "/v1/chat"));
    assert_false(fits(one, "api.example.com", 443, "POST", "/x/%2e%2e/v1/chat"));
    assert_true(credential_knows(one, "api.example.com", 443));
    assert_false(credential_knows(one, "b.example.com", 443));
    assert_null(credentials_find(c, "ke", 2));
    credentials_unref(c);
    free(sealed);
}

/* The order of keys is not part of what bind means; everything else is. */
static void test_what_is_bound(void **state)
{
    char *sealed = seal("acme", "key", "\"" SECRET "\"", BIND);
    struct credentials *c = NULL;
    struct err e;
    static const char *const other[] = {
        "{\"kind\":\"bearer\",\"domains\":[\"evil.example.com\"],\"paths\":[\"/v1*\"]}",
        "{\"kind\":\"bearer\",\"domains\":[\"api.example.com\",\"evil\"],\"paths\":[\"/v1*\"]}",
        "{\"kind\":\"bearer\",\"domains\":[\"api.example.com\"]}",
        "{\"kind\":\"bearer\",\"domains\":[\"api.example.com\"],\"paths\":[\"/*\"]}",
        "{\"kind\":\"placeholder\",\"domains\":[\"api.example.com\"],\"paths\":[\"/v1*\"]}",
        "{\"kind\":\"bearer\",\"domains\":[\"api.example.com\"],\"insecure\":true}",
    };

    assert_int_equal(open_one(sealer, "acme", "key", sealed,
                              "{\"paths\":[\"/v1*\"],\"domains\":[\"api.example.com\"],"
                              "\"kind\":\"bearer\"}",
                              &c, &e),
                     ERR_OK);
    credentials_unref(c);
    c = NULL;
    for (size_t i = 0; i < ARRAY_SIZE(other); i++)
        assert_int_equal(open_one(sealer, "acme", "key", sealed, other[i], &c, &e), ERR_DENIED);
    assert_int_equal(open_one(sealer, "other", "key", sealed, BIND, &c, &e), ERR_DENIED);
    assert_int_equal(open_one(sealer, "acme", "key2", sealed, BIND, &c, &e), ERR_DENIED);
    assert_null(strstr(e.text, "sk-"));
    free(sealed);
}

static void test_changed_record(void **state)
{
    char *sealed = seal("acme", "key", "\"" SECRET "\"", BIND);
    struct credentials *c = NULL;
    unsigned char raw[4096];
    struct err e;
    ssize_t n = base64_decode(sealed, strlen(sealed), raw);

    for (ssize_t i = 0; i < n; i++) {
        char text[8192];

        raw[i] ^= 1;
        base64_encode(raw, (size_t)n, text);
        assert_int_not_equal(open_one(sealer, "acme", "key", text, BIND, &c, &e), ERR_OK);
        raw[i] ^= 1;
    }
    for (ssize_t i = 0; i < n; i += 7) {
        char text[8192];

        base64_encode(raw, (size_t)i, text);
        assert_int_not_equal(open_one(sealer, "acme", "key", text, BIND, &c, &e), ERR_OK);
    }
    assert_int_equal(open_one(sealer, "acme", "key", sealed, BIND, &c, &e), ERR_OK);
    credentials_unref(c);
    free(sealed);
}

static int key_fd(const void *bytes, size_t n)
{
    int fd = memfd_create("key", MFD_CLOEXEC);

    assert_int_equal(write(fd, bytes, n), n);
    return fd;
}

static void test_keys(void **state)
{
    char *sealed = seal("acme", "key", "\"" SECRET "\"", BIND), path[128];
    struct sealer *again = NULL, *other = NULL;
    struct credentials *c = NULL;
    struct stat st;
    struct err e;
    int fd;

    snprintf(path, sizeof(path), "%s/seal.key", state_dir);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0600);
    assert_int_equal(st.st_size, 32);
    assert_int_equal(sealer_new(state_dir, -1, &again, &e), ERR_OK);
    assert_int_equal(open_one(again, "acme", "key", sealed, BIND, &c, &e), ERR_OK);
    credentials_unref(c);
    fd = key_fd("0123456789abcdef0123456789abcdef\n", 33);
    assert_int_equal(sealer_new(state_dir, fd, &other, &e), ERR_OK);
    assert_int_equal(open_one(other, "acme", "key", sealed, BIND, &c, &e), ERR_DENIED);
    close(fd);
    fd = key_fd("short", 5);
    assert_int_equal(sealer_new(state_dir, fd, &other, &e), ERR_INVALID);
    close(fd);
    sealer_free(again);
    sealer_free(other);
    free(sealed);
}

static void test_bad_requests(void **state)
{
    static const struct {
        const char *body, *says;
    } bad[] = {
        {"[]", "must be"},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":\"12345678\",\"bind\":{},\"x\":1}", "\"x\""},
        {"{\"name\":\"k\",\"value\":\"12345678\",\"bind\":{}}", "tenant"},
        {"{\"tenant\":\"a\",\"name\":\"k k\",\"value\":\"12345678\",\"bind\":{}}", "name"},
        {"{\"tenant\":\"a\",\"name\":\"k.\",\"value\":\"12345678\",\"bind\":{}}", "name"},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":\"12345678\"}", "bind: must be an object"},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":\"12345678\",\"bind\":{}}", "bind.kind"},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":\"12345678\",\"bind\":{\"kind\":\"bearer\"}}",
         "bind.domains"},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":\"12345678\",\"bind\":{\"kind\":\"bearer\","
         "\"domains\":[]}}",
         "bind.domains"},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":\"12345678\",\"bind\":{\"kind\":\"bearer\","
         "\"domains\":[\"*\"]}}",
         "bind.domains[0]"},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":\"12345678\",\"bind\":{\"kind\":\"bearer\","
         "\"domains\":[\"a.example\"],\"header\":\"x\"}}",
         "bind.header: belongs to kind header"},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":\"12345678\",\"bind\":{\"kind\":\"header\","
         "\"domains\":[\"a.example\"]}}",
         "bind.header: is needed"},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":\"12345678\",\"bind\":{\"kind\":\"header\","
         "\"domains\":[\"a.example\"],\"header\":\"Host\"}}",
         "bind.header: must be"},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":\"12345678\",\"bind\":{\"kind\":\"header\","
         "\"domains\":[\"a.example\"],\"header\":\"Content_Length\"}}",
         "bind.header: must be"},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":\"12345678\",\"bind\":{\"kind\":\"header\","
         "\"domains\":[\"a.example\"],\"header\":\"X-Original-URL\"}}",
         "bind.header: must be"},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":\"12345678\",\"bind\":{\"kind\":\"header\","
         "\"domains\":[\"a.example\"],\"header\":\"Transfer.Encoding\"}}",
         "bind.header: must be"},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":\"12345678\",\"bind\":{\"kind\":\"bearer\","
         "\"domains\":[\"a.example\"],\"insecure\":1}}",
         "bind.insecure"},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":\"12345678\",\"bind\":{\"kind\":\"bearer\","
         "\"domains\":[\"a.example\"],\"domain\":1}}",
         "\"domain\""},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":\"1234567\",\"bind\":{\"kind\":\"bearer\","
         "\"domains\":[\"a.example\"]}}",
         "value: must be"},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":\"1234567\\r\\nX: y\",\"bind\":{\"kind\":"
         "\"bearer\",\"domains\":[\"a.example\"]}}",
         "value: must be"},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":\"12345678\",\"bind\":{\"kind\":\"basic\","
         "\"domains\":[\"a.example\"]}}",
         "user:password"},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":{\"Host\":\"12345678\"},\"bind\":{\"kind\":"
         "\"headers\",\"domains\":[\"a.example\"]}}",
         "\"Host\""},
        {"{\"tenant\":\"a\",\"name\":\"k\",\"value\":{\"access_key_id\":\"AKIAEXAMPLE\"},\"bind\":{"
         "\"kind\":\"aws-sigv4\",\"domains\":[\"a.example\"]}}",
         "secret_access_key"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++) {
        json_t *r = json(bad[i].body);
        struct err e = {0};
        char *sealed = NULL;

        assert_int_equal(credential_seal(sealer, r, &sealed, &e), ERR_INVALID);
        if (!strstr(e.text, bad[i].says))
            fail_msg("\"%s\" is not in \"%s\"", bad[i].says, e.text);
        assert_null(strstr(e.text, "1234567")); /* never the value */
        json_decref(r);
    }
}

static void test_all_kinds(void **state)
{
    static const char *const kinds[][2] = {
        {"\"user:pass word\"", "{\"kind\":\"basic\",\"domains\":[\"a.example\"]}"},
        {"\"12345678\"",
         "{\"kind\":\"header\",\"domains\":[\"*.a.example\"],\"header\":\"X-Api-Key\",\"prefix\":"
         "\"Token \",\"ports\":[443,\"8000-8100\"],\"methods\":[\"GET\"]}"},
        {"{\"X-A\":\"1\",\"X-B\":\"Bearer ${e2b.secrets.k}\"}",
         "{\"kind\":\"headers\",\"domains\":[\"a.example\"]}"},
        {"\"12345678\"", "{\"kind\":\"query\",\"domains\":[\"a.example\"],\"parameter\":\"key\"}"},
        {"{\"access_key_id\":\"AKIAEXAMPLE\",\"secret_access_key\":\"0123456789abcdef\"}",
         "{\"kind\":\"aws-sigv4\",\"domains\":[\"a.example\"],\"region\":\"eu-west-1\","
         "\"service\":\"s3\"}"},
        {"\"12345678\"", "{\"kind\":\"placeholder\",\"domains\":[\"a.example\"]}"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++) {
        char *sealed = seal("acme", "k", kinds[i][0], kinds[i][1]);
        struct credentials *c = NULL;
        struct err e;

        assert_int_equal(open_one(sealer, "acme", "k", sealed, kinds[i][1], &c, &e), ERR_OK);
        credentials_unref(c);
        free(sealed);
    }
}

/* -- placeholders ------------------------------------------------------------------------------ */

static void test_places(void **state)
{
    static const struct {
        const char *text, *name; /* NULL: none */
    } cases[] = {
        {"cay-secret:key", "key"},
        {"Bearer cay-secret:my_key-2.x, and", "my_key-2.x"},
        {"see cay-secret:key.", "key"},
        {"${e2b.secrets.KEY}", "KEY"},
        {"a ${e2b.secrets.KEY} cay-secret:b", "KEY"},
        {"cay-secret: key", NULL},
        {"cay-secret:", NULL},
        {"cay-secret:-x", NULL},
        {"cay-secret:- cay-secret:y", "y"},
        {"${e2b.secrets.KEY", NULL},
        {"${e2b.secrets.}", NULL},
        {"CAY-SECRET:x", NULL},
        {"", NULL},
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
        struct placeholder at;
        bool found = placeholder_find(cases[i].text, strlen(cases[i].text), &at);

        assert_int_equal(found, cases[i].name != NULL);
        if (found) {
            assert_int_equal(at.name_len, strlen(cases[i].name));
            assert_memory_equal(at.name, cases[i].name, at.name_len);
        }
    }
}

/* -- redacting --------------------------------------------------------------------------------- */

/* text in pieces of every size gives the same. */
static void check_redact(const char *const *secrets, const char *text, const char *expected)
{
    for (size_t piece = 1; piece <= strlen(text); piece++) {
        struct redact *r = redact_new();
        struct buf out;

        buf_init(&out, 65536);
        for (size_t i = 0; secrets[i]; i++)
            assert_int_equal(redact_add(r, secrets[i], strlen(secrets[i])), 0);
        for (size_t at = 0; at < strlen(text); at += piece) {
            size_t n = MIN(piece, strlen(text) - at);

            assert_int_equal(redact_feed(r, text + at, n, true), 0);
            assert_int_equal(redact_take(r, false, &out), 0);
        }
        assert_int_equal(redact_take(r, true, &out), 0);
        assert_string_equal(out.data, expected);
        buf_free(&out);
        redact_free(r);
    }
}

static void test_redact(void **state)
{
    static const char *const one[] = {"secret-value", NULL}, *const self[] = {"aabaab", NULL},
                             *const nested[] = {"abcdefgh", "cdef", "defghij", NULL};

    check_redact(one, "say secret-value twice: secret-valuesecret-value.",
                 "say [redacted]** twice: [redacted]**[redacted]**.");
    check_redact(one, "secret-valu secret-valuX secret-secret-value", //
                 "secret-valu secret-valuX secret-[redacted]**");
    check_redact(self, "aabaabaab aabaab", "[redacted [redac");
    check_redact(nested, "xabcdefghijx", "x[redacted]x");
    check_redact(nested, "abcdefg cdefghi", "ab[redg [redghi");
}

/* Chunk lines may stand in a secret. */
static void test_redact_framing(void **state)
{
    struct redact *r = redact_new();
    struct buf out;

    buf_init(&out, 65536);
    assert_int_equal(redact_add(r, "secret-value", 12), 0);
    for (const char *p = "secret-value"; *p; p++) {
        assert_int_equal(redact_feed(r, "1\r\n", 3, false), 0);
        assert_int_equal(redact_feed(r, p, 1, true), 0);
        assert_int_equal(redact_feed(r, "\r\n", 2, false), 0);
        assert_int_equal(redact_take(r, false, &out), 0);
    }
    assert_int_equal(redact_take(r, true, &out), 0);
    assert_string_equal(out.data, "1\r\n[\r\n1\r\nr\r\n1\r\ne\r\n1\r\nd\r\n1\r\na\r\n1\r\nc\r\n"
                                  "1\r\nt\r\n1\r\ne\r\n1\r\nd\r\n1\r\n]\r\n1\r\n*\r\n1\r\n*\r\n");
    buf_free(&out);
    redact_free(r);
}

/* Framing without end inside of what may be a secret is not held for ever. */
static void test_redact_window(void **state)
{
    struct redact *r = redact_new();
    static char noise[65536];
    int rc = 0;

    assert_int_equal(redact_add(r, "secret-value", 12), 0);
    assert_int_equal(redact_feed(r, "secret", 6, true), 0);
    for (int i = 0; i < 100 && rc == 0; i++)
        rc = redact_feed(r, noise, sizeof(noise), false);
    assert_int_equal(rc, -EMSGSIZE);
    redact_free(r);
}

/* How much of a text is held back after each of its bytes. */
static void kept_after_each(const char *text, size_t n, size_t *kept)
{
    struct redact *r = redact_new();
    struct buf out;

    buf_init(&out, 65536);
    assert_int_equal(redact_add(r, "secret-value", 12), 0);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(redact_feed(r, text + i, 1, true), 0);
        assert_int_equal(redact_take(r, false, &out), 0);
        kept[i] = i + 1 - out.len;
    }
    buf_free(&out);
    redact_free(r);
}

/* The rule that gives a secret away: bytes that could be its beginning are kept back. */
static size_t matching_end(const char *text, size_t n)
{
    static const char secret[] = "secret-value";
    size_t most = MIN(n, sizeof(secret) - 2);

    while (most > 0 && memcmp(text + n - most, secret, most) != 0)
        most--;
    return most;
}

/* Whether a guess is right does not show in what is kept back, however long it is and wherever it stands. */
static void test_redact_is_no_oracle(void **state)
{
    static const char secret[] = "secret-value";
    enum { TEXT = 300 };

    for (size_t n = 1; n < sizeof(secret); n++) {
        for (size_t at = 0; at + n <= TEXT; at += 7) {
            char right[TEXT], wrong[TEXT];
            size_t kept_right[TEXT], kept_wrong[TEXT];

            memset(right, '~', TEXT);
            memset(wrong, '~', TEXT);
            memcpy(right + at, secret, n);
            memcpy(wrong + at, secret, n);
            wrong[at + n - 1] = '!';
            if (n < sizeof(secret) - 1) /* the control: by that rule it would */
                assert_true(matching_end(right, at + n) == n && matching_end(wrong, at + n) == 0);
            kept_after_each(right, TEXT, kept_right);
            kept_after_each(wrong, TEXT, kept_wrong);
            assert_memory_equal(kept_right, kept_wrong, sizeof(kept_right));
            assert_true(kept_right[TEXT - 1] >= sizeof(secret) - 1);
        }
    }
}

/* Released, and searched on: its rest is still written over. Lines pass by themselves, unless a
 * secret has several. */
static void test_redact_release(void **state)
{
    struct redact *r = redact_new();
    struct buf out;

    buf_init(&out, 65536);
    assert_int_equal(redact_add(r, "secret-value", 12), 0);
    assert_int_equal(redact_feed(r, "secret-value\nthis is sec", 24, true), 0);
    assert_int_equal(redact_take(r, false, &out), 0);
    assert_string_equal(out.data, "[redacted]**\n");
    assert_true(redact_holds(r));
    redact_release(r);
    assert_int_equal(redact_take(r, false, &out), 0);
    assert_false(redact_holds(r));
    assert_string_equal(out.data, "[redacted]**\nthis is sec");
    assert_int_equal(redact_feed(r, "ret-value!", 10, true), 0);
    assert_int_equal(redact_take(r, true, &out), 0);
    assert_string_equal(out.data, "[redacted]**\nthis is secdacted]**!");
    buf_clear(&out);
    redact_free(r);
    r = redact_new();
    assert_int_equal(redact_add(r, "of two\nlines", 12), 0);
    assert_int_equal(redact_feed(r, "of two\n", 7, true), 0);
    assert_int_equal(redact_take(r, false, &out), 0);
    assert_int_equal(out.len, 0);
    buf_free(&out);
    redact_free(r);
}

static uint32_t next_random(uint32_t *x)
{
    *x ^= *x << 13;
    *x ^= *x >> 17;
    *x ^= *x << 5;
    return *x;
}

/* The marks of a secret, found by looking at every place; '\0' elsewhere. */
static void mark(char *marks, const char *text, size_t n, const char *secret, size_t len)
{
    for (size_t at = 0; at + len <= n; at++)
        if (memcmp(text + at, secret, len) == 0)
            memset(marks + at, 1, len);
}

/* Of two letters (which are not in the cover), so that secrets begin, contain and overlap each other: exactly what stands in one is
 * written over, whatever the pieces, also by a stream that shares them or has one more. */
static void test_redact_evaluated(void **state)
{
    uint32_t x = 12345;

    for (int round = 0; round < 300; round++) {
        struct redact *first = redact_new(), *r;
        char text[200], marks[200] = {0}, secret[16];
        struct buf out;

        buf_init(&out, 65536);
        for (size_t i = 0; i < sizeof(text); i++)
            text[i] = next_random(&x) % 4 ? 'x' : 'y';
        for (int k = 0; k < 6; k++) {
            size_t len = 3 + next_random(&x) % 8;

            for (size_t i = 0; i < len; i++)
                secret[i] = next_random(&x) % 3 ? 'x' : 'y';
            mark(marks, text, sizeof(text), secret, len);
            if (k == 5) /* the shared ones are built by now */
                redact_free(redact_share(first));
            assert_int_equal(redact_add(first, secret, len), 0);
        }
        r = redact_share(first);
        redact_free(first);
        for (size_t at = 0, n; at < sizeof(text); at += n) {
            n = 1 + next_random(&x) % 20; /* not in MIN, which reads it twice */
            n = MIN(n, sizeof(text) - at);
            assert_int_equal(redact_feed(r, text + at, n, true), 0);
            assert_int_equal(redact_take(r, false, &out), 0);
        }
        assert_int_equal(redact_take(r, true, &out), 0);
        assert_int_equal(out.len, sizeof(text));
        for (size_t i = 0; i < sizeof(text); i++)
            assert_int_equal(out.data[i] != text[i], marks[i]);
        buf_free(&out);
        redact_free(r);
    }
}

/* As many secrets as there may be, with one beginning: one automaton of few nodes, and none is missed. */
static void test_redact_common_beginning(void **state)
{
    struct redact *r = redact_new();
    char secret[1024];
    struct buf out;

    buf_init(&out, 1 << 20);
    memset(secret, 'k', sizeof(secret));
    for (int i = 0; i < 256; i++) {
        if (i == 'k') /* it would be the beginning of the others, too */
            continue;
        secret[sizeof(secret) - 1] = (char)i;
        assert_int_equal(redact_add(r, secret, sizeof(secret)), 0);
    }
    for (unsigned i = 256; i < REDACT_SECRETS_MAX; i++) {
        char other[16];

        snprintf(other, sizeof(other), "other-%04u", i);
        assert_int_equal(redact_add(r, other, strlen(other)), 0);
    }
    assert_int_equal(redact_add(r, "the-last", 8), 0);
    assert_int_equal(redact_count(r), REDACT_SECRETS_MAX);
    assert_int_equal(redact_add(r, "the-last", 8), 0); /* the same */
    assert_int_equal(redact_add(r, "one-more", 8), -EMSGSIZE);
    for (int i = 0; i < 256; i++) {
        if (i == 'k') /* it would be the beginning of the others, too */
            continue;
        secret[sizeof(secret) - 1] = (char)i;
        assert_int_equal(redact_feed(r, secret, sizeof(secret), true), 0);
        assert_int_equal(redact_feed(r, ".", 1, true), 0);
        redact_release(r);
        assert_int_equal(redact_take(r, false, &out), 0);
        assert_memory_equal(out.data, "[redacted]***", 13);
        assert_memory_equal(out.data + sizeof(secret) - 2, "**.", 3);
        buf_consume(&out, out.len);
    }
    redact_free(r);
    buf_free(&out);
}

/* -- signatures -------------------------------------------------------------------------------- */

/* Made by botocore 1.44 of the same requests, with its clock set to the date. */
static void check_signature(const char *service, const char *method, const char *path,
                            const char *query, const char *body, const struct http_header *headers,
                            size_t n, const char *expected)
{
    char hash[SIGV4_HASH_SIZE];
    struct sigv4 s = {.access_key_id = "AKIDEXAMPLE",
                      .secret_access_key = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                      .region = "us-east-1",
                      .service = service,
                      .method = method,
                      .path = path,
                      .query = query,
                      .payload_hash = hash,
                      .date = "20150830T123600Z",
                      .headers = headers,
                      .header_count = n};
    struct buf out;

    assert_int_equal(sigv4_hash(body, strlen(body), hash), 0);
    buf_init(&out, 65536);
    assert_int_equal(sigv4_authorize(&s, &out), 0);
    if (!strstr(out.data, expected))
        fail_msg("%s is not in %s", expected, out.data);
    buf_free(&out);
}
static void test_signatures(void **state)
{
    const struct http_header h0[] = {{"x-amz-target", "DynamoDB_20120810.DescribeTable"},
                                     {"x-amz-date", "20150830T123600Z"},
                                     {"host", "dynamodb.example.com"},
                                     {"content-type", "application/x-amz-json-1.0"}};
    const struct http_header h1[] = {{"x-amz-date", "20150830T123600Z"},
                                     {"host", "iam.example.com"}};
    const struct http_header h2[] = {{"x-amz-meta", "  two   blanks  "},
                                     {"x-amz-date", "20150830T123600Z"},
                                     {"host", "execute-api.example.com"}};
    const struct http_header h3[] = {
        {"x-amz-date", "20150830T123600Z"},
        {"x-amz-content-sha256",
         "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"},
        {"host", "s3.example.com"},
        {"content-type", "text/plain"}};
    const struct http_header h4[] = {
        {"x-amz-date", "20150830T123600Z"},
        {"x-amz-content-sha256",
         "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"host", "s3.example.com"}};

    check_signature("dynamodb", "POST", "/", "", "{\"TableName\":\"t\"}", h0, 4,
                    "SignedHeaders=content-type;host;x-amz-date;x-amz-target, "
                    "Signature=a68ec379e9c81b4796e0630b93b620a6c675d903f6e5ed4f3a6150aae2280ede");
    check_signature("iam", "GET", "/", "Action=ListUsers&Version=2010-05-08", "", h1, 2,
                    "SignedHeaders=host;x-amz-date, "
                    "Signature=1beb818f30bfbf712bac87490980f3cf8756dc814ce1dfc81b84da9ef47780fa");
    check_signature("execute-api", "GET", "/a%20b/c%2Fd/~x", "b=2&a=%20%2F&a=1&c", "", h2, 3,
                    "SignedHeaders=host;x-amz-date;x-amz-meta, "
                    "Signature=e80b37a9c136593cab420825f2c9a62cc200b9c3848ddc70fa69f09c17952a7d");
    check_signature("s3", "PUT", "/bucket/a%20b%2Bc/%C3%A4", "partNumber=1&uploadId=x%2By", "hello",
                    h3, 4,
                    "SignedHeaders=content-type;host;x-amz-content-sha256;x-amz-date, "
                    "Signature=87506172445425956a3805d1c68b69a53b4b6a7b153097945cf9af5ac8cff0f3");
    check_signature("s3", "GET", "/bucket", "list-type=2&prefix=a%2Fb&delimiter=%2F", "", h4, 3,
                    "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
                    "Signature=f97b9e0d600f23c47e7cb5f8913a337bb706b5176049cd2a819abb753a2f9486");
}

static void test_scope(void **state)
{
    char region[65], service[65];

    assert_int_equal(
        sigv4_scope("AWS4-HMAC-SHA256 Credential=cay/20260101/eu-west-1/s3/aws4_request"
                    ", SignedHeaders=host, Signature=00",
                    region, service, sizeof(region)),
        0);
    assert_string_equal(region, "eu-west-1");
    assert_string_equal(service, "s3");
    assert_int_equal(sigv4_scope("Bearer x", region, service, sizeof(region)), -EINVAL);
    assert_int_equal(sigv4_scope("AWS4-HMAC-SHA256 Credential=a/b/c", region, service, 65),
                     -EINVAL);
    assert_int_equal(sigv4_scope("AWS4-HMAC-SHA256 Credential=a/b/c d/e/f", region, service, 65),
                     -EINVAL);
}

/* -- what leaves and what comes back ----------------------------------------------------------- */

static struct rewrite_job *job_with(const char *lines)
{
    struct rewrite_job *job = rewrite_job_new();

    assert_int_equal(buf_append_str(&job->lines, lines), 0);
    return job;
}

static struct redact *looking_for(const char *secret)
{
    struct redact *r = redact_new();

    assert_int_equal(redact_add(r, secret, strlen(secret)), 0);
    return r;
}

static int put_twice(struct rewrite_job *job, struct buf *body)
{
    size_t n = body->len;

    assert_int_equal(buf_append_str(&job->lines, "X-Late: yes\r\n"), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(buf_append(body, body->data + i, 1), 0);
    return 0;
}

/* All of data through one side, in pieces. The first negative answer, or 0. */
static int pour(int (*side)(struct rewrite *, const char *, size_t, struct buf *),
                struct rewrite *w, const char *data, size_t piece, struct buf *out)
{
    size_t len = strlen(data);
    int rc = 0;

    for (size_t at = 0; at < len && rc == 0; at += piece)
        rc = side(w, data + at, MIN(piece, len - at), out);
    return rc;
}

static void test_rewrite_request(void **state)
{
    static const char request[] = "POST /x?y HTTP/1.1\r\nHost: a\r\nX: 1\r\n\r\nabc";

    for (size_t piece = 1; piece < sizeof(request); piece++) {
        struct rewrite *w = rewrite_new();
        struct rewrite_job *job = job_with("A: b\r\n");
        struct buf out;

        buf_init(&out, 65536);
        job->target = strdup("/z");
        rewrite_set(w, job, looking_for("secret-value"));
        assert_int_equal(pour(rewrite_outward, w, request, piece, &out), 0);
        assert_string_equal(out.data, "POST /z HTTP/1.1\r\nHost: a\r\nX: 1\r\nA: b\r\n\r\nabc");
        buf_clear(&out);
        job = job_with("A: b\r\n");
        job->collect = true;
        job->body_bytes = 3;
        job->finish = put_twice;
        rewrite_set(w, job, NULL);
        assert_int_equal(pour(rewrite_outward, w, request, piece, &out), 0);
        assert_string_equal(out.data, "POST /x?y HTTP/1.1\r\nHost: a\r\nX: 1\r\nA: b\r\n"
                                      "X-Late: yes\r\nContent-Length: 6\r\n\r\nabcabc");
        assert_false(rewrite_is_active(w));
        rewrite_free(w);
        buf_free(&out);
    }
}

/* A server that answers before it has all of the request: the rest of the body is a body, whatever
 * it looks like, and goes on as it comes. */
static void test_rewrite_early_answer(void **state)
{
    static const char *const rest[] = {" no request", "no end", "GET / HTTP/1.1\r\n\r\n"};
    static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
    struct rewrite *w = rewrite_new();
    struct buf out;

    buf_init(&out, 65536);
    rewrite_set(w, job_with("A: b\r\n"), looking_for("secret-value"));
    assert_int_equal(
        pour(rewrite_outward, w, "PUT / HTTP/1.1\r\nContent-Length: 999\r\n\r\n", 999, &out), 0);
    buf_clear(&out);
    assert_int_equal(pour(rewrite_inward, w, answer, 999, &out), 0);
    assert_string_equal(out.data, answer);
    for (size_t i = 0; i < ARRAY_SIZE(rest); i++) {
        buf_clear(&out);
        assert_int_equal(pour(rewrite_outward, w, rest[i], 999, &out), 0);
        assert_string_equal(out.data, rest[i]);
    }
    assert_int_equal(rewrite_inward(w, answer, sizeof(answer) - 1, &out), -EBADMSG);
    rewrite_free(w);
    buf_free(&out);
}

/* Answers to a request of this method, in all pieces: the output, and whether it is refused. */
static void check_answer(const char *method, const char *answer, const char *expected, bool good)
{
    char request[64];

    snprintf(request, sizeof(request), "%s / HTTP/1.1\r\n\r\n", method);
    for (size_t piece = 1; piece <= strlen(answer); piece++) {
        struct rewrite *w = rewrite_new();
        struct buf out;
        int rc;

        buf_init(&out, 65536);
        rewrite_set(w, job_with("A: b\r\n"), looking_for("secret-value"));
        assert_int_equal(pour(rewrite_outward, w, request, 100, &out), 0);
        buf_clear(&out);
        rc = pour(rewrite_inward, w, answer, piece, &out);
        if (rc == 0)
            rc = rewrite_inward_end(w, &out);
        assert_int_equal(rc == 0, good);
        if (good)
            assert_string_equal(out.data ? out.data : "", expected);
        else
            assert_null(out.data ? strstr(out.data, "secret-value") : NULL);
        rewrite_free(w);
        buf_free(&out);
    }
}

static void test_rewrite_answers(void **state)
{
    check_answer("GET",
                 "HTTP/1.1 200 OK\r\nX: secret-value\r\nContent-Length: 14\r\n\r\n"
                 "=secret-value.",
                 "HTTP/1.1 200 OK\r\nX: [redacted]**\r\nContent-Length: 14\r\n\r\n"
                 "=[redacted]**.",
                 true);
    check_answer("GET",
                 "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked"
                 "\r\n\r\n7\r\n-secret\r\n6;x=y\r\n-value\r\n0\r\n\r\n",
                 "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked"
                 "\r\n\r\n7\r\n-[redac\r\n6;x=y\r\nted]**\r\n0\r\n\r\n",
                 true);
    check_answer(
        "GET",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=secret-value\r\n.\r\n0\r\n"
        "Trailer: secret-value\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;x=[redacted]**\r\n.\r\n0\r\n"
        "Trailer: [redacted]**\r\n\r\n",
        true);
    check_answer("GET", "HTTP/1.1 200 OK\r\n\r\nuntil the end: secret-value",
                 "HTTP/1.1 200 OK\r\n\r\nuntil the end: [redacted]**", true);
    check_answer("HEAD", "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nX: secret-value\r\n\r\n",
                 "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nX: [redacted]**\r\n\r\n", true);
}

/* A conversation: bytes that only might begin a secret are not waited for. */
static void test_rewrite_tunnel(void **state)
{
    struct rewrite *w = rewrite_new();
    struct buf out;

    buf_init(&out, 65536);
    rewrite_set(w, job_with("A: b\r\n"), looking_for("secret-value"));
    assert_int_equal(pour(rewrite_outward, w, "GET / HTTP/1.1\r\n\r\n", 99, &out), 0);
    buf_clear(&out);
    assert_int_equal(pour(rewrite_inward, w,
                          "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n"
                          "Connection: upgrade\r\n\r\nyes",
                          999, &out),
                     0);
    assert_null(strstr(out.data, "yes"));
    assert_int_equal(rewrite_inward_pause_ms(w, false), REDACT_TUNNEL_PAUSE_MS);
    assert_int_equal(rewrite_inward_pause(w, &out), 0);
    assert_non_null(strstr(out.data, "\r\n\r\nyes"));
    assert_int_equal(rewrite_inward_pause_ms(w, false), 0);
    buf_clear(&out);
    assert_int_equal(pour(rewrite_inward, w, "a secret-value.", 999, &out), 0);
    assert_int_equal(pour(rewrite_inward, w, "secret-value.", 1, &out), 0);
    assert_int_equal(out.len, 0);
    assert_int_equal(rewrite_inward_pause(w, &out), 0);
    assert_string_equal(out.data, "a [redacted]**.[redacted]**.");
    buf_clear(&out);
    assert_int_equal(pour(rewrite_outward, w, "GET is no request now", 5, &out), 0);
    assert_string_equal(out.data, "GET is no request now");
    rewrite_free(w);
    buf_free(&out);
}

/* Its server has agreed to a WebSocket. */
static struct rewrite *new_websocket(void)
{
    struct rewrite *w = rewrite_new();
    struct buf out;

    buf_init(&out, 65536);
    rewrite_set(w, NULL, looking_for("secret-value"));
    assert_int_equal(pour(rewrite_outward, w, "GET / HTTP/1.1\r\n\r\n", 99, &out), 0);
    assert_int_equal(pour(rewrite_inward, w,
                          "HTTP/1.1 101 Switching Protocols\r\nUpgrade: WebSocket\r\n"
                          "Connection: upgrade\r\n\r\n",
                          999, &out),
                     0);
    buf_free(&out);
    return w;
}

/* Secrets that messages are framed in the middle of, or whose first bytes are a head; bytes in pieces
 * of every size give the same. Ends where it cannot be read. */
static void test_conversations(void **state)
{
    static const struct {
        bool grpc;
        const char *said, *shown;
        size_t n;
        int rc;
    } cases[] = {
#define CASE(grpc, said, shown) {grpc, said, shown, sizeof(said) - 1, 0}
#define HIDDEN(grpc, said)                         \
    {                                              \
        grpc, said, "", sizeof(said) - 1, -EBADMSG \
    }
        CASE(false,
             "\x01\x01s\x00\x02"
             "ec\x00\x00\x80\x09ret-value",
             "\x01\x01[\x00\x02re\x00\x00\x80\x09"
             "dacted]**"),
        CASE(false, "\x89\x0csecret-value", "\x89\x0c[redacted]**"),
        CASE(false, "\x01\x07secret-\x89\x0csecret-value\x80\x05value",
             "\x01\x07[redact\x89\x0c[redacted]**\x80\x05"
             "ed]**"),
        /* A length is the beginning of it, to a reader who takes heads for text. */
        CASE(false, "\x81\x7fsecret-value", "\x81\x7f[redacted]**"),
        CASE(false, "\x01\x01x\x00secret-value", "\x01\x01x\x00[redacted]**"),
        CASE(true, "\x00secret-value", "\x00[redacted]**"),
        CASE(true, "\x00\x00\x00\x00\x0csecret-value", "\x00\x00\x00\x00\x0c[redacted]**"),
        CASE(true, "\x02\x00\x00\x00%secret-value and more than that 012345",
             "\x02\x00\x00\x00%[redacted]** and more than that 012345"),
        CASE(true, "\x00\x00\x00\x00\x00\x80\x00\x00\x00\x0csecret-value",
             "\x00\x00\x00\x00\x00\x80\x00\x00\x00\x0c[redacted]**"),
        HIDDEN(false, "\x81\x8c\x01\x02\x03\x04rgg"),
        HIDDEN(false, "\xc1\x05value"),
        HIDDEN(false, "\x91\x05value"),
        HIDDEN(true, "\x01\x00\x00\x00\x05value"),
        HIDDEN(true, "\x00\x00\x00\x00\x01x\x05\x00\x00\x00\x05value"),
#undef CASE
#undef HIDDEN
    };

    for (size_t i = 0; i < ARRAY_SIZE(cases); i++)
        for (size_t piece = 1; piece <= cases[i].n; piece++) {
            struct frames f = {.kind = cases[i].grpc ? FRAMES_GRPC : FRAMES_WEBSOCKET};
            struct redact *r = looking_for("secret-value");
            struct buf out;
            int rc = 0;

            buf_init(&out, 65536);
            for (size_t at = 0; rc == 0 && at < cases[i].n; at += piece)
                rc = frames_redact(&f, r, cases[i].said + at, MIN(piece, cases[i].n - at));
            assert_int_equal(rc, cases[i].rc);
            if (rc == 0) {
                assert_int_equal(redact_take(r, true, &out), 0);
                assert_int_equal(out.len, cases[i].n);
                assert_memory_equal(out.data, cases[i].shown, cases[i].n);
            }
            redact_free(r);
            buf_free(&out);
        }
}

/* Of two messages the first passes before the second is there; what then comes of a secret does not.
 */
static void test_a_secret_in_two_messages(void **state)
{
    static const char first[] = "\x81\x07secret-", second[] = "\x81\x06value!";
    struct rewrite *w = new_websocket();
    struct buf out;

    buf_init(&out, 65536);
    assert_int_equal(rewrite_inward(w, first, sizeof(first) - 1, &out), 0);
    assert_string_equal(out.data, first);
    buf_clear(&out);
    assert_int_equal(rewrite_inward(w, second, sizeof(second) - 1, &out), 0);
    assert_string_equal(out.data, "\x81\x06"
                                  "ed]**!");
    rewrite_free(w);
    buf_free(&out);
}

/* The body is compressed as a whole, and a message in it once more. The control: one that is not. */
static void test_a_conversation_in_a_compressed_body(void **state)
{
    static const char head[] = "HTTP/1.1 200 OK\r\nContent-Type: application/grpc\r\n"
                               "Content-Encoding: deflate\r\nConnection: close\r\n\r\n";
    static const char
        good[] = "\x78\x01\x01\x11\x00\xee\xff\x00\x00\x00\x00\x0c\x73\x65\x63\x72\x65\x74\x2d\x76"
                 "\x61\x6c\x75\x65\x20\x0f\x04\xdd",
        bad[] =
            "\x78\x01\x01\x0a\x00\xf5\xff\x01\x00\x00\x00\x05\x76\x61\x6c\x75\x65\x06\x97\x02\x24";

    for (int i = 0; i < 2; i++) {
        const char *body = i ? bad : good;
        size_t n = i ? sizeof(bad) - 1 : sizeof(good) - 1;
        struct rewrite *w = rewrite_new();
        struct buf out;
        int rc;

        buf_init(&out, 65536);
        rewrite_set(w, NULL, looking_for("secret-value"));
        assert_int_equal(pour(rewrite_outward, w, "GET / HTTP/1.1\r\n\r\n", 99, &out), 0);
        buf_clear(&out);
        assert_int_equal(rewrite_inward(w, head, sizeof(head) - 1, &out), 0);
        rc = rewrite_inward(w, body, n, &out);
        if (rc == 0)
            rc = rewrite_inward_end(w, &out);
        assert_int_equal(rc, i ? -EBADMSG : 0);
        if (i == 0)
            assert_non_null(memmem(out.data, out.len, "\0\0\0\0\x0c[redacted]**", 17));
        rewrite_free(w);
        buf_free(&out);
    }
}

/* None was offered: an answer that has chosen one is not carried. */
static void test_an_extension_is_refused(void **state)
{
    struct rewrite *w = rewrite_new();
    struct buf out;

    buf_init(&out, 65536);
    rewrite_set(w, NULL, looking_for("secret-value"));
    assert_int_equal(pour(rewrite_outward, w, "GET / HTTP/1.1\r\n\r\n", 99, &out), 0);
    buf_clear(&out);
    assert_int_equal(pour(rewrite_inward, w,
                          "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n"
                          "Sec-WebSocket-Extensions: permessage-deflate\r\n"
                          "Connection: upgrade\r\n\r\n\xc1\x05value",
                          999, &out),
                     0);
    assert_memory_equal(out.data, "HTTP/1.1 502 ", 13);
    assert_null(memmem(out.data, out.len, "value", 5));
    rewrite_free(w);
    buf_free(&out);
}

/* Each message passes when it is whole, whatever stands in it; also one of several frames with a ping between. */
static void test_rewrite_websocket(void **state)
{
    static const char first[] = "\x81\x06secret", parts[] = "\x01\x07secret-\x89\x01!\x80\x05value",
                      clean[] = "\x01\x07[redact\x89\x01!\x80\x05"
                                "ed]**",
                      whole[] = "\x81\x0csecret-value", shown[] = "\x81\x0c[redacted]**";
    struct rewrite *w = new_websocket();
    struct buf out;

    buf_init(&out, 65536);
    for (size_t i = 0; i < 8; i++) {
        assert_int_equal(out.len, 0);
        assert_int_equal(rewrite_inward(w, first + i, 1, &out), 0);
    }
    assert_string_equal(out.data, first);
    buf_clear(&out);
    assert_int_equal(rewrite_inward(w, "\x82\x01~", 3, &out), 0);
    assert_string_equal(out.data, "\x82\x01~");
    buf_clear(&out);
    for (size_t i = 0; i < sizeof(parts) - 1; i++) {
        assert_int_equal(out.len, 0);
        assert_int_equal(rewrite_inward(w, parts + i, 1, &out), 0);
    }
    assert_int_equal(out.len, sizeof(parts) - 1);
    assert_memory_equal(out.data, clean, sizeof(parts) - 1);
    buf_clear(&out);
    assert_int_equal(rewrite_inward(w, whole, sizeof(whole) - 1, &out), 0);
    assert_string_equal(out.data, shown);
    rewrite_free(w);
    buf_free(&out);
}

static void test_rewrite_refuses(void **state)
{
    struct rewrite *w = rewrite_new();
    struct buf out;

    check_answer("GET", "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nxHTTP/1.1 200 OK\r\n\r\n", "",
                 false);
    check_answer("GET",
                 "HTTP/1.1 200 OK\r\nContent-Length: 12\r\nTransfer-Encoding: chunked\r\n\r\n"
                 "secret-value",
                 "", false);
    check_answer("GET", "HTTP/1.1 200 OK\nX: secret-value\n\n", "", false);
    check_answer("GET", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "", false);
    /* An answer that cannot be searched does not pass, and the client learns why. */
    buf_init(&out, 65536);
    rewrite_set(w, job_with("A: b\r\n"), looking_for("secret-value"));
    assert_int_equal(pour(rewrite_outward, w, "GET / HTTP/1.1\r\n\r\n", 99, &out), 0);
    buf_clear(&out);
    assert_int_equal(pour(rewrite_inward, w,
                          "HTTP/1.1 200 OK\r\nContent-Encoding: br\r\nContent-Length: 5\r\n"
                          "\r\nxxxxx",
                          7, &out),
                     0);
    assert_non_null(strstr(out.data, "HTTP/1.1 502"));
    assert_non_null(strstr(out.data, "compressed"));
    assert_null(strstr(out.data, "xxxxx"));
    rewrite_free(w);
    buf_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_oauth_urls),
        cmocka_unit_test(test_oauth_token_is_bound),
        cmocka_unit_test(test_oauth_request),
        cmocka_unit_test(test_oauth_answers),
        cmocka_unit_test(test_seal_and_open),
        cmocka_unit_test(test_what_is_bound),
        cmocka_unit_test(test_each_condition_binds),
        cmocka_unit_test(test_changed_record),
        cmocka_unit_test(test_keys),
        cmocka_unit_test(test_bad_requests),
        cmocka_unit_test(test_all_kinds),
        cmocka_unit_test(test_places),
        cmocka_unit_test(test_redact),
        cmocka_unit_test(test_redact_framing),
        cmocka_unit_test(test_redact_window),
        cmocka_unit_test(test_redact_is_no_oracle),
        cmocka_unit_test(test_redact_release),
        cmocka_unit_test(test_redact_evaluated),
        cmocka_unit_test(test_redact_common_beginning),
        cmocka_unit_test(test_signatures),
        cmocka_unit_test(test_scope),
        cmocka_unit_test(test_rewrite_request),
        cmocka_unit_test(test_rewrite_early_answer),
        cmocka_unit_test(test_rewrite_answers),
        cmocka_unit_test(test_rewrite_refuses),
        cmocka_unit_test(test_rewrite_tunnel),
        cmocka_unit_test(test_rewrite_websocket),
        cmocka_unit_test(test_conversations),
        cmocka_unit_test(test_a_secret_in_two_messages),
        cmocka_unit_test(test_a_conversation_in_a_compressed_body),
        cmocka_unit_test(test_an_extension_is_refused),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
