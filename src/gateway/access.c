#include "gateway/access.h"

#include "http/digest.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define PATH_MAX_BYTES 16384u
#define USER_MAX_BYTES 256u
#define FILE_URL_PATH  4096u /* PATH_MAX: NUL included */
#define EXPIRES_DIGITS 15    /* some 30 million years */

#define FILE_URL_SIGNATURE_SIZE 47 /* "v1_", 43 characters, NUL */

int access_sign(const char *subject, const char *token, bool has_expiry, int64_t expiry_s,
                char out[static ACCESS_SIGNATURE_SIZE])
{
    CLEANUP_FREE char *text = NULL;
    unsigned char digest[DIGEST_SHA256_SIZE];
    char coded[48];
    int len = has_expiry ? asprintf(&text, "%s:%s:%lld", subject, token, (long long)expiry_s)
                         : asprintf(&text, "%s:%s", subject, token);

    if (len < 0) {
        text = NULL;
        return -ENOMEM;
    }
    digest_sha256(text, (size_t)len, digest);
    EVP_EncodeBlock((unsigned char *)coded, digest, sizeof(digest));
    snprintf(out, ACCESS_SIGNATURE_SIZE, "v1_%.43s", coded); /* without the one '=' */
    return 0;
}

static void copy_header(const struct http_head *h, const char *name, char *out, size_t size)
{
    const char *value = http_head_get(h, name);

    snprintf(out, size, "%s", value ? value : "");
}

static int read_expiry(const struct http_head *h, struct access *out)
{
    char text[32], *end;
    ssize_t n = http_query_get(h->query, "signature_expiration", text, sizeof(text));

    if (n == -ENOENT)
        return 0;
    out->has_expiry = true;
    errno = 0;
    out->expiry_s = n > 0 ? strtoll(text, &end, 10) : 0;
    out->bad_expiry = n <= 0 || errno || *end || text[0] == ' ';
    return 0;
}

/* The subject of a signature; NULL pieces count as empty. -ENOMEM, or 0; a malformed one leaves
 * has_signature false or the subject such that nothing matches it. */
static int read_subject(const struct http_head *h, struct access *out)
{
    CLEANUP_FREE char *path = malloc(PATH_MAX_BYTES);
    char user[USER_MAX_BYTES];
    const char *operation = strcmp(h->method, "GET") == 0 ? "read" : "write";

    if (!path)
        return -ENOMEM;
    if (http_query_get(h->query, "path", path, PATH_MAX_BYTES) < 0)
        path[0] = '\0';
    if (http_query_get(h->query, "username", user, sizeof(user)) < 0)
        user[0] = '\0';
    if (asprintf(&out->subject, "%s:%s:%s", path, operation, user) < 0) {
        out->subject = NULL;
        return -ENOMEM;
    }
    return read_expiry(h, out);
}

int access_read(const struct http_head *h, struct access *out)
{
    bool get = strcmp(h->method, "GET") == 0, post = strcmp(h->method, "POST") == 0;
    ssize_t n;

    memset(out, 0, sizeof(*out));
    out->exempt = strcmp(h->path, "/health") == 0 && (get || strcmp(h->method, "HEAD") == 0);
    out->may_sign = strcmp(h->path, "/files") == 0 && (get || post);
    copy_header(h, ACCESS_TOKEN_HEADER, out->token, sizeof(out->token));
    copy_header(h, ACCESS_TRAFFIC_HEADER, out->traffic, sizeof(out->traffic));
    if (!out->traffic[0])
        copy_header(h, ACCESS_PREVIEW_HEADER, out->traffic, sizeof(out->traffic));
    if (!out->traffic[0] &&
        http_query_get(h->query, ACCESS_PREVIEW_QUERY, out->traffic, sizeof(out->traffic)) < 0)
        out->traffic[0] = '\0';
    out->has_token = out->token[0] != '\0';
    if (!out->may_sign)
        return 0;
    n = http_query_get(h->query, "signature", out->signature, sizeof(out->signature));
    out->has_signature = n != -ENOENT;
    if (n < 0)
        out->signature[0] = '\0';
    return out->has_signature ? read_subject(h, out) : 0;
}

static const char *bearer_token(const struct http_head *h)
{
    const char *value = http_head_get(h, "Authorization");

    if (!value || strncasecmp(value, "Bearer ", 7) != 0)
        return "";
    return value + 7 + strspn(value + 7, " ");
}

const char *access_api_key(const struct http_head *h)
{
    const char *key = http_head_get(h, "X-API-Key");

    return key && *key ? key : bearer_token(h);
}

void access_read_bearer(const struct http_head *h, struct access *out)
{
    memset(out, 0, sizeof(*out));
    (void)snprintf(out->token, sizeof(out->token), "%s", bearer_token(h));
    out->has_token = out->token[0] != '\0';
}

/* Digits alone, as it is part of what was signed; "0": never. */
static bool read_expires(const struct http_head *h, struct access *out)
{
    char text[EXPIRES_DIGITS + 1];
    ssize_t n = http_query_get(h->query, "expires", text, sizeof(text));

    if (n <= 0 || strspn(text, "0123456789") != (size_t)n || (text[0] == '0' && n > 1))
        return false;
    out->expiry_s = strtoll(text, NULL, 10);
    out->has_expiry = out->expiry_s > 0;
    return true;
}

/* The text that is signed; without a path there is none, and no signature is right. */
static int read_file_subject(const struct http_head *h, struct access *out)
{
    CLEANUP_FREE char *path = malloc(FILE_URL_PATH);

    if (!path)
        return -ENOMEM;
    if (http_query_get(h->query, "path", path, FILE_URL_PATH) <= 0)
        return 0;
    if (asprintf(&out->subject, "v1:files:%s:%s:%lld", h->method, path, (long long)out->expiry_s) <
        0) {
        out->subject = NULL;
        return -ENOMEM;
    }
    return 0;
}

int access_read_file_url(const struct http_head *h, struct access *out)
{
    ssize_t n;

    memset(out, 0, sizeof(*out));
    n = http_query_get(h->query, "signature", out->signature, sizeof(out->signature));
    if (n == -ENOENT)
        return -ENOENT;
    out->has_signature = true;
    if (n < 0)
        out->signature[0] = '\0';
    out->bad_expiry = !read_expires(h, out);
    return out->bad_expiry ? 0 : read_file_subject(h, out);
}

void access_free(struct access *a)
{
    free(a->subject);
    a->subject = NULL;
    if (a->key)
        explicit_bzero(a->key, strlen(a->key));
    free(a->key);
    a->key = NULL;
}

static bool equal(const char *given, const char *right)
{
    size_t n = strlen(right);

    return strlen(given) == n && ids_equal_secret(given, right, n);
}

bool access_signature_matches(const struct access *a, const char *token)
{
    char right[ACCESS_SIGNATURE_SIZE];

    return a->subject && !a->bad_expiry &&
           access_sign(a->subject, token, a->has_expiry, a->expiry_s, right) == 0 &&
           equal(a->signature, right);
}

static bool refuse(char message[static ACCESS_MESSAGE_SIZE], const char *text)
{
    snprintf(message, ACCESS_MESSAGE_SIZE, "%s", text);
    return false;
}

bool access_check_agent(const struct access *a, const char *token, int64_t now_s,
                        char message[static ACCESS_MESSAGE_SIZE])
{
    if (a->exempt)
        return true;
    if (a->has_token && equal(a->token, token))
        return true;
    if (!a->may_sign)
        return refuse(message, "unauthorized access, please provide a valid access token or method "
                               "signing if supported");
    if (a->has_token)
        return refuse(message, "access token present in header but does not match");
    if (!a->has_signature)
        return refuse(message, "missing signature query parameter");
    if (!access_signature_matches(a, token))
        return refuse(message, "invalid signature");
    if (a->has_expiry && a->expiry_s < now_s)
        return refuse(message, "signature is already expired");
    return true;
}

bool access_check_traffic(const struct access *a, const char *token,
                          char message[static ACCESS_MESSAGE_SIZE])
{
    char right[CORE_TOKEN_SIZE + 1];

    ingress_traffic_token(token, right);
    if (equal(a->traffic, right))
        return true;
    snprintf(message, ACCESS_MESSAGE_SIZE,
             "Sandbox is secured with traffic access token. %s '%s' is %s (Daytona's preview token "
             "goes into 'x-daytona-preview-token')",
             a->traffic[0] ? "Provided token in header" : "Token header",
             "e2b-traffic-access-token", a->traffic[0] ? "invalid" : "missing");
    return false;
}

bool access_check_signed(const struct access *a, const char *token, uint16_t port, int64_t now_s,
                         char message[static ACCESS_MESSAGE_SIZE])
{
    int rc = ingress_check_signed(token, port, a->signed_until, now_s);

    if (rc == -ETIMEDOUT)
        return refuse(message, "the signed address is over its time: ask for a new one");
    return rc == 0 ||
           refuse(message, "the signature of the address is not that of this sandbox's port");
}

/* "v1_" and HMAC-SHA256 over subject in base64url without padding. subject:
 * "v1:files:METHOD:PATH:EXPIRES", of which METHOD and EXPIRES have no colon (source: Daytona's
 * Python SDK 0.226.1, _utils/file_url_signing.py). */
static void sign_file_url(const char *key, const char *subject,
                          char out[static FILE_URL_SIGNATURE_SIZE])
{
    unsigned char digest[DIGEST_SHA256_SIZE];
    char coded[48];

    digest_hmac_sha256(key, strlen(key), subject, strlen(subject), digest);
    EVP_EncodeBlock((unsigned char *)coded, digest, sizeof(digest));
    for (char *at = coded; *at; at++)
        *at = (char)(*at == '+' ? '-' : *at == '/' ? '_' : *at);
    snprintf(out, FILE_URL_SIGNATURE_SIZE, "v1_%.43s", coded); /* without the one '=' */
}

bool access_check_file_url(const struct access *a, const char *key, int64_t now_s,
                           char message[static ACCESS_MESSAGE_SIZE])
{
    char right[FILE_URL_SIGNATURE_SIZE];

    sign_file_url(key, a->subject ? a->subject : "", right);
    if (!equal(a->signature, right) || !a->subject || a->bad_expiry)
        return refuse(message, "the signature is not that of this file, method, time and sandbox, "
                               "or its key was replaced: ask for a new URL");
    if (a->has_expiry && a->expiry_s < now_s)
        return refuse(message, "the signed URL is over its time: ask for a new one");
    return true;
}
