/* A token server's answer to a refresh (RFC 6749 section 5), and the next request, made with what it gave. The first
 * byte chooses the status; the rest is the body. */
#include "egress/credential/credential.h"
#include "egress/credential/renew_message.h"

#include "fuzz.h"

#include <ctype.h>

static const int statuses[] = {200, 200, 200, 200, 400, 401, 302, 429, 500, 201};

static bool is_printable(const char *text)
{
    for (; *text; text++)
        if (!isprint((unsigned char)*text))
            return false;
    return true;
}

/* Nothing of the server's own words: they could be the token that it refuses, or a line of the log. */
static void check_error(enum err_code code, const struct renew_answer *a, const struct err *e)
{
    static const char begin[] = "the token server has answered";

    FUZZ_CHECK(code == ERR_DENIED || code == ERR_UNAVAILABLE);
    FUZZ_CHECK(!a->access_token && !a->refresh_token);
    FUZZ_CHECK(strncmp(e->text, begin, sizeof(begin) - 1) == 0 && strlen(e->text) < 100);
    FUZZ_CHECK(is_printable(e->text));
}

static unsigned count(const char *text, char c)
{
    unsigned n = 0;

    for (; *text; text++)
        n += *text == c;
    return n;
}

/* A refresh token adds no field to the form, and nothing but what a form has. */
static void check_request(const char *refresh_token, const char *how)
{
    json_t *value = json_pack("{s:s, s:s, s:s, s:s}", "client_id", "us & them", "client_secret",
                              "a=b:c", "client_auth", how, "refresh_token", refresh_token);
    char *authorization = NULL;
    struct buf body;

    buf_init(&body, 1 << 20);
    FUZZ_CHECK(value && renew_request(value, &body, &authorization) == 0);
    FUZZ_CHECK(buf_append(&body, "", 1) == 0);
    FUZZ_CHECK(strlen(body.data) + 1 == body.len && is_printable(body.data));
    FUZZ_CHECK(count(body.data, '&') == (authorization ? 1 : 3));
    FUZZ_CHECK(count(body.data, '=') == (authorization ? 2 : 4));
    FUZZ_CHECK(!strpbrk(body.data, " \"<>#"));
    FUZZ_CHECK(!authorization == (strcmp(how, "body") == 0));
    FUZZ_CHECK(!authorization || is_printable(authorization));
    credential_wipe(authorization);
    buf_free(&body);
    json_decref(value);
}

static void check_answer(const struct renew_answer *a)
{
    FUZZ_CHECK(a->access_token && strlen(a->access_token) >= CREDENTIAL_VALUE_MIN);
    FUZZ_CHECK(strlen(a->access_token) <= RENEW_TOKEN_MAX && is_printable(a->access_token));
    FUZZ_CHECK(!strpbrk(a->access_token, " ,;\"\\"));
    FUZZ_CHECK(a->life_s >= 1 && a->life_s <= RENEW_LIFE_MAX_S);
    if (!a->refresh_token)
        return;
    FUZZ_CHECK(strlen(a->refresh_token) >= CREDENTIAL_VALUE_MIN);
    FUZZ_CHECK(strlen(a->refresh_token) <= RENEW_TOKEN_MAX && is_printable(a->refresh_token));
    check_request(a->refresh_token, "basic");
    check_request(a->refresh_token, "body");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct renew_answer a;
    enum err_code code;
    struct err e;
    int status;

    if (size == 0 || size > 100000)
        return 0;
    status = statuses[data[0] % (sizeof(statuses) / sizeof(*statuses))];
    code = renew_answer(status, (const char *)data + 1, size - 1, &a, &e);
    FUZZ_CHECK(code != ERR_OK || status == 200);
    if (code != ERR_OK) {
        check_error(code, &a, &e);
        return 0;
    }
    check_answer(&a);
    renew_answer_free(&a);
    return 0;
}
