/* Requests to a token server, and its answers: RFC 6749 sections 2.3, 5 and 6. Pure:
 * egress/flow/renew.c makes the call. Of an answer only fields with the grammar of their RFC are
 * taken, since a token becomes a header's value later; of an error its code alone is repeated, as a
 * description may hold what the provider was sent. Both directions are secrets: the caller wipes
 * them. */

#include "egress/credential/renew_message.h"

#include "base/base64.h"
#include "egress/credential/credential.h"
#include "egress/credential/placeholder.h"
#include "http/json.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

/* -- asked ------------------------------------------------------------------------------------- */

static int put_field(struct buf *b, const char *key, const char *value)
{
    int rc = buf_printf(b, "&%s=", key);

    return rc == 0 ? placeholder_put(b, value, PLACEHOLDER_FORM) : rc;
}

/* Both parts as in a form, RFC 6749 section 2.3.1. */
static int make_basic(const char *id, const char *secret, char **out)
{
    CLEANUP_BUF struct buf b;
    size_t n = 3 * (strlen(id) + strlen(secret)) + 2;
    char *text = malloc(sizeof("Basic ") + base64_encoded_len(n));
    int rc;

    buf_init(&b, n + 1);
    rc = text ? buf_reserve(&b, n) : -ENOMEM; /* one that grows leaves copies behind */
    if (rc == 0)
        rc = placeholder_put(&b, id, PLACEHOLDER_FORM);
    if (rc == 0)
        rc = buf_append(&b, ":", 1);
    if (rc == 0)
        rc = placeholder_put(&b, secret, PLACEHOLDER_FORM);
    if (rc == 0) {
        memcpy(text, "Basic ", 6);
        base64_encode(b.data, b.len, text + 6);
        *out = TAKE_PTR(text);
    }
    if (b.base)
        explicit_bzero(b.base, b.cap);
    free(text);
    return rc;
}

int renew_request(const json_t *value, struct buf *body, char **authorization)
{
    const char *id = json_string_value(json_object_get(value, "client_id"));
    const char *secret = json_string_value(json_object_get(value, "client_secret"));
    const char *how = json_string_value(json_object_get(value, "client_auth"));
    const char *token = json_string_value(json_object_get(value, "refresh_token"));
    const char *scope = json_string_value(json_object_get(value, "scope"));
    bool in_body = !secret || (how && strcmp(how, "body") == 0);
    int rc = buf_reserve(body, 3 * (strlen(id) + strlen(token) + (secret ? strlen(secret) : 0) +
                                    (scope ? strlen(scope) : 0)) +
                                   128);

    *authorization = NULL;
    if (rc == 0)
        rc = buf_append_str(body, "grant_type=refresh_token");
    if (rc == 0)
        rc = put_field(body, "refresh_token", token);
    if (rc == 0 && scope)
        rc = put_field(body, "scope", scope);
    if (rc == 0 && in_body)
        rc = put_field(body, "client_id", id);
    if (rc == 0 && in_body && secret)
        rc = put_field(body, "client_secret", secret);
    return rc == 0 && !in_body ? make_basic(id, secret, authorization) : rc;
}

/* -- answered ---------------------------------------------------------------------------------- */

/* RFC 6750 section 2.1: characters that a header may have. */
static bool is_token(const json_t *json)
{
    static const char letters[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~+/";
    const char *text = json_string_value(json);
    size_t n = text ? strlen(text) : 0, used = n ? strspn(text, letters) : 0;

    return n >= CREDENTIAL_VALUE_MIN && n <= RENEW_TOKEN_MAX && n == json_string_length(json) &&
           used > 0 && strspn(text + used, "=") == n - used;
}

/* RFC 6749 appendix A.17: any printable ASCII. */
static bool is_refresh_token(const json_t *json)
{
    const char *text = json_string_value(json);
    size_t n = text ? strlen(text) : 0;

    for (size_t i = 0; i < n; i++)
        if (text[i] < 0x20 || text[i] > 0x7e)
            return false;
    return n >= CREDENTIAL_VALUE_MIN && n <= RENEW_TOKEN_MAX && n == json_string_length(json) &&
           text[0] != ' ' && text[n - 1] != ' ';
}

static int64_t life_of(const json_t *o)
{
    const json_t *said = json_object_get(o, "expires_in");
    int64_t s = RENEW_LIFE_DEFAULT_S;

    if (json_is_number(said)) /* any: a double that an int64_t has no room for is not converted */
        s = (int64_t)MIN(MAX(json_number_value(said), 1.0), (double)RENEW_LIFE_MAX_S);
    else if (json_is_string(said)) /* as some servers send it */
        s = strtoll(json_string_value(said), NULL, 10);
    return MIN(MAX(s, (int64_t)1), (int64_t)RENEW_LIFE_MAX_S);
}

static enum err_code take_tokens(const json_t *o, struct renew_answer *out, struct err *e)
{
    const json_t *access = json_object_get(o, "access_token"),
                 *refresh = json_object_get(o, "refresh_token");
    const char *type = json_string_value(json_object_get(o, "token_type"));

    if (!type || strcasecmp(type, "bearer") != 0)
        return err_set(e, ERR_UNAVAILABLE,
                       "the token server has answered with no token of type Bearer");
    if (!is_token(access))
        return err_set(e, ERR_UNAVAILABLE,
                       "the token server has answered with no access token that a header can hold");
    if (refresh && !json_is_null(refresh) && !is_refresh_token(refresh))
        return err_set(e, ERR_UNAVAILABLE,
                       "the token server has answered with a refresh token that is none");
    out->access_token = strdup(json_string_value(access));
    out->refresh_token = json_is_string(refresh) ? strdup(json_string_value(refresh)) : NULL;
    out->life_s = life_of(o);
    if (out->access_token && (!json_is_string(refresh) || out->refresh_token))
        return ERR_OK;
    renew_answer_free(out);
    return err_set(e, ERR_EXHAUSTED, "out of memory");
}

/* RFC 6749 section 5.2, whose names are the only thing that is told on. */
static enum err_code take_error(int status, const json_t *o, struct err *e)
{
    static const char *const names[] = {
        "invalid_grant", "invalid_client",  "unauthorized_client",    "unsupported_grant_type",
        "invalid_scope", "invalid_request", "temporarily_unavailable"};
    const char *name = json_string_value(json_object_get(o, "error"));

    for (size_t i = 0; name && i < ARRAY_SIZE(names); i++)
        if (strcmp(name, names[i]) == 0)
            return err_set(
                e, status / 100 == 4 && status != 429 && i < 6 ? ERR_DENIED : ERR_UNAVAILABLE,
                "the token server has answered %d %s", status, name);
    if (status / 100 == 3)
        return err_set(e, ERR_UNAVAILABLE,
                       "the token server has answered %d: redirects are not followed", status);
    return err_set(e, ERR_UNAVAILABLE, "the token server has answered %d", status);
}

enum err_code renew_answer(int status, const char *body, size_t len, struct renew_answer *out,
                           struct err *e)
{
    struct err inner;
    json_t *o = NULL;
    enum err_code code = json_parse(body, len, false, &o, &inner);

    *out = (struct renew_answer){.access_token = NULL};
    if (status != 200)
        code = take_error(status, o, e);
    else if (code != ERR_OK || !json_is_object(o))
        code = err_set(e, ERR_UNAVAILABLE, "the token server has answered with no JSON object");
    else
        code = take_tokens(o, out, e);
    json_decref(o);
    return code;
}

void renew_answer_free(struct renew_answer *a)
{
    credential_wipe(a->access_token);
    credential_wipe(a->refresh_token);
    *a = (struct renew_answer){.access_token = NULL};
}
