#include "egress/credential/client_keys.h"

#include "base/util.h"
#include "egress/credential/credential.h"
#include "egress/credential/placeholder.h"
#include "http/gate.h"
#include "http/message.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define NAME_SIZE 64 /* of a decoded parameter; a longer one is none that is known */

static bool is_one_of(const char *name, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (http_name_like(name, list[i]))
            return true;
    return false;
}

/* Beside those that replacing knows: services' own, and sessions. */
static const char *const headers[] = {
    "cookie",
    "cookie2",
    "x-goog-iam-authorization-token",
    "xi-api-key",
    "x-api-token",
    "x-auth",
    "x-authorization",
    "x-access-key",
    "x-secret-key",
    "x-app-key",
    "x-client-secret",
    "x-functions-key",
    "x-rapidapi-key",
    "x-figma-token",
    "x-subscription-token",
    "x-session-token",
    "x-jwt",
    "x-forwarded-authorization",
    "dd-api-key",
    "dd-application-key",
    "x-algolia-api-key",
    "x-honeycomb-team",
    "circle-token",
    "fastly-key",
    "x-github-token",
    "x-amz-credential",
    "x-amz-signature",
    "x-user-token",
    "x-token",
    "token",
    "x-original-authorization",
};

/* `openai-insecure-api-key.sk-...`, `base64url.bearer.authorization.k8s.io...`: what browsers use,
 * which set no headers. */
static bool is_key_protocol(const char *name, const char *value)
{
    static const char *const words[] = {"key", "token", "auth", "bearer", "secret", "jwt"};

    if (strcasecmp(name, "sec-websocket-protocol") != 0)
        return false;
    for (size_t i = 0; i < ARRAY_SIZE(words); i++)
        if (strcasestr(value, words[i]))
            return true;
    return false;
}

bool client_keys_header(const char *name, const char *value)
{
    return credential_is_key_header(name) || is_one_of(name, headers, ARRAY_SIZE(headers)) ||
           is_key_protocol(name, value);
}

/* '_', '-' and '.' are left away: api_key, api-key and apiKey are one. */
static const char *const parameters[] = {
    "key",
    "apikey",
    "apitoken",
    "accesstoken",
    "accesskey",
    "accesskeyid",
    "authtoken",
    "authkey",
    "auth",
    "authorization",
    "oauthtoken",
    "bearertoken",
    "bearer",
    "token",
    "jwt",
    "idtoken",
    "clientsecret",
    "secret",
    "secretkey",
    "password",
    "passwd",
    "sig",
    "signature",
    "xamzcredential",
    "xamzsignature",
    "xamzsecuritytoken",
    "xgoogcredential",
    "xgoogsignature",
    "awsaccesskeyid",
    "googleaccessid",
    "privatetoken",
    "jobtoken",
    "subscriptionkey",
    "sessiontoken",
    "sessionid",
    "usertoken",
    "appkey",
    "xapikey",
};

bool client_keys_parameter(const char *text, size_t n)
{
    const char *eq = memchr(text, '=', n);
    char decoded[NAME_SIZE], plain[NAME_SIZE];
    size_t used = 0;

    if (http_percent_decode(text, eq ? (size_t)(eq - text) : n, true, decoded, sizeof(decoded)) < 0)
        return false;
    for (const char *c = decoded; *c; c++)
        if (isalnum((unsigned char)*c))
            plain[used++] = *c;
    plain[used] = '\0';
    return is_one_of(plain, parameters, ARRAY_SIZE(parameters));
}

/* "", "Bearer ", "token=\"", "Token token=": one scheme and one name at most. */
static bool is_lead(const char *s, size_t n)
{
    size_t i = 0;

    while (i < n && gate_is_token((unsigned char)s[i]))
        i++;
    if (i < n && s[i] == ' ' && i > 0) {
        i += strspn(s + i, " ");
        while (i < n && gate_is_token((unsigned char)s[i]))
            i++;
    }
    if (i > 0 && i < n && s[i] == '=')
        i++;
    else if (i > 0 && s[i - 1] != ' ')
        return false; /* a word right before it */
    if (i < n && s[i] == '"')
        i++;
    return i == n;
}

static bool is_alone(const char *s, size_t n)
{
    struct placeholder at;
    size_t end;

    if (!placeholder_find(s, n, &at) || !is_lead(s, at.at))
        return false;
    end = at.at + at.len;
    return end == n || (end + 1 == n && s[end] == '"');
}

bool client_keys_alone(const char *name, const char *value)
{
    if (strcasecmp(name, "cookie") != 0)
        return is_alone(value, strlen(value));
    for (;;) {
        size_t n = strcspn(value, ";");

        if (!is_alone(value, n))
            return false;
        if (!value[n])
            return true;
        value += n + 1;
        value += strspn(value, " ");
    }
}
