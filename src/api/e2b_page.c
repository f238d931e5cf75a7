/* Two texts of E2B's lists: the token by which a client asks for the next page (base64url of
 * "MILLISECONDS__ID__asc|desc", the last item that was shown), and the metadata by which a list is
 * filtered (key=value pairs, percent-encoded twice). Both come from clients and may be anything.
 * Pure. */

#include "api/e2b.h"
#include "http/message.h"

#include <errno.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <string.h>

void e2b_page_token_make(int64_t started_ms, const char *id, bool ascending,
                         char out[static E2B_PAGE_TOKEN_SIZE])
{
    char text[64], coded[E2B_PAGE_TOKEN_SIZE];
    int n = snprintf(text, sizeof(text), "%lld__%s__%s", (long long)started_ms, id,
                     ascending ? "asc" : "desc");
    size_t len;

    len = (size_t)EVP_EncodeBlock((unsigned char *)coded, (const unsigned char *)text, n);
    for (size_t i = 0; i < len; i++)
        if (coded[i] == '+')
            coded[i] = '-';
        else if (coded[i] == '/')
            coded[i] = '_';
    snprintf(out, E2B_PAGE_TOKEN_SIZE, "%s", coded);
}

/* base64url with padding into text. */
static int decode(const char *token, char text[static E2B_PAGE_TOKEN_SIZE])
{
    char coded[E2B_PAGE_TOKEN_SIZE];
    size_t len = strlen(token);
    int n;

    if (len == 0 || len % 4 || len >= sizeof(coded))
        return -EINVAL;
    for (size_t i = 0; i <= len; i++)
        coded[i] = token[i] == '-' ? '+' : token[i] == '_' ? '/' : token[i];
    n = EVP_DecodeBlock((unsigned char *)text, (const unsigned char *)coded, (int)len);
    if (n < 0)
        return -EINVAL;
    text[n] = '\0';
    return 0;
}

int e2b_page_token_parse(const char *token, bool ascending, int64_t *started_ms,
                         char id[static IDS_SANDBOX_SIZE])
{
    char text[E2B_PAGE_TOKEN_SIZE], *at, *end;
    long long ms;

    if (decode(token, text) < 0)
        return -EINVAL;
    errno = 0;
    ms = strtoll(text, &end, 10);
    if (errno || end == text || ms < 0 || strncmp(end, "__", 2) != 0)
        return -EINVAL;
    at = end + 2;
    end = strstr(at, "__");
    if (!end || strcmp(end + 2, ascending ? "asc" : "desc") != 0)
        return -EINVAL;
    *end = '\0';
    if (!ids_is_sandbox(at))
        return -EINVAL;
    *started_ms = ms;
    memcpy(id, at, IDS_SANDBOX_SIZE);
    return 0;
}

/* An escaped piece as a string; NULL when it is malformed. */
static char *unescape(const char *text, size_t n)
{
    char *out = malloc(n + 1);

    if (out && http_percent_decode(text, n, true, out, n + 1) < 0) {
        free(out);
        return NULL;
    }
    return out;
}

static bool add_pair(json_t *filter, const char *pair, size_t n)
{
    const char *eq = memchr(pair, '=', n);
    size_t key_len = eq ? (size_t)(eq - pair) : n;
    CLEANUP_FREE char *key = unescape(pair, key_len);
    CLEANUP_FREE char *value = eq ? unescape(eq + 1, n - key_len - 1) : strdup("");

    return key && value && json_object_set_new(filter, key, json_string(value)) == 0;
}

json_t *e2b_metadata_filter(const char *value, struct err *e)
{
    CLEANUP_FREE char *whole = unescape(value, strlen(value));
    json_t *filter = json_object();

    for (const char *at = whole; at && *at;) {
        size_t n = strcspn(at, "&");

        if (n > 0 && (!add_pair(filter, at, n) || json_object_size(filter) > API_MAP_MAX_COUNT)) {
            json_decref(filter);
            err_set(e, ERR_INVALID,
                    "the query parameter \"metadata\" is not key=value pairs joined by &, "
                    "percent-encoded");
            return NULL;
        }
        at += n + (at[n] == '&');
    }
    if (!whole) {
        json_decref(filter);
        err_set(e, ERR_INVALID, "the query parameter \"metadata\" is not validly percent-encoded");
        return NULL;
    }
    return filter;
}
