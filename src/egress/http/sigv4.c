/* In the order of AWS's description: canonical request (method, path, query, headers, payload
 * hash), its hash, the string to sign, the key of the day, the signature, the header. Each
 * function appends one part to a buffer that the caller gave. Pure but for memory. */

#include "egress/http/sigv4.h"

#include "base/ids.h"

#include <ctype.h>
#include <errno.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define ALGORITHM      "AWS4-HMAC-SHA256"
#define HASH_BYTES     32
#define HEADERS_MAX    HTTP_MAX_HEADERS
#define PARAMETERS_MAX 256
#define CANONICAL_MAX  ((size_t)256 * 1024)

void sigv4_date(time_t at, char out[static SIGV4_DATE_SIZE])
{
    struct tm tm;

    gmtime_r(&at, &tm);
    strftime(out, SIGV4_DATE_SIZE, "%Y%m%dT%H%M%SZ", &tm);
}

int sigv4_hash(const void *bytes, size_t n, char out[static SIGV4_HASH_SIZE])
{
    unsigned char hash[HASH_BYTES];
    unsigned len = 0;

    if (EVP_Digest(bytes, n, hash, &len, EVP_sha256(), NULL) != 1)
        return -ENOMEM;
    ids_hex(hash, sizeof(hash), out);
    return 0;
}

/* -- canonical parts --------------------------------------------------------------------------- */

/* Everything but letters, digits, '-', '_', '.' and '~' as %XX; a slash stays in paths. */
static int put_encoded(struct buf *b, const char *s, size_t n, bool keep_slash)
{
    int rc = 0;

    for (size_t i = 0; i < n && rc == 0; i++) {
        unsigned char c = (unsigned char)s[i];

        if (isalnum(c) || strchr("-_.~", c) || (keep_slash && c == '/'))
            rc = c ? buf_append(b, &s[i], 1) : buf_append_str(b, "%00");
        else
            rc = buf_printf(b, "%%%02X", c);
    }
    return rc;
}

/* Decoded and encoded again, so that each text has one form. */
static int put_normal(struct buf *b, const char *s, size_t n)
{
    CLEANUP_FREE char *raw = malloc(n + 1);
    ssize_t len = raw ? http_percent_decode(s, n, true, raw, n + 1) : -ENOMEM;

    return len < 0 ? (int)len : put_encoded(b, raw, (size_t)len, false);
}

/* S3's paths are taken as they are sent, those of all other services encoded once more. */
static int put_path(struct buf *b, const struct sigv4 *s)
{
    if (strcmp(s->service, "s3") == 0)
        return buf_append_str(b, s->path);
    return put_encoded(b, s->path, strlen(s->path), true);
}

struct parameter {
    char *name, *value;
};

static int compare_parameters(const void *a, const void *b)
{
    const struct parameter *x = a, *y = b;
    int by_name = strcmp(x->name, y->name);

    return by_name != 0 ? by_name : strcmp(x->value, y->value);
}

static char *normal(const char *s, size_t n)
{
    struct buf b;

    buf_init(&b, CANONICAL_MAX);
    if (buf_append(&b, "", 0) < 0 || put_normal(&b, s, n) < 0) {
        buf_free(&b);
        return NULL;
    }
    return b.base ? buf_take(&b) : strdup("");
}

static int split_query(const char *query, struct parameter *list, size_t *count)
{
    for (const char *p = query; *p; p += *p == '&') {
        size_t n = strcspn(p, "&"), eq = strcspn(p, "=&");
        struct parameter *one = &list[*count];

        if (n == 0)
            continue;
        if (*count == PARAMETERS_MAX)
            return -EINVAL;
        (*count)++;
        one->name = normal(p, eq);
        one->value = eq < n ? normal(p + eq + 1, n - eq - 1) : strdup("");
        if (!one->name || !one->value)
            return -EINVAL;
        p += n;
    }
    return 0;
}

static int put_query(struct buf *b, const char *query)
{
    struct parameter list[PARAMETERS_MAX] = {{NULL, NULL}};
    size_t count = 0;
    int rc = split_query(query, list, &count);

    if (rc == 0)
        qsort(list, count, sizeof(list[0]), compare_parameters);
    for (size_t i = 0; i < count; i++) {
        if (rc == 0)
            rc = buf_printf(b, "%s%s=%s", i ? "&" : "", list[i].name, list[i].value);
        free(list[i].name);
        free(list[i].value);
    }
    return rc;
}

/* White space around it goes, and runs of it become one blank. */
static int put_value(struct buf *b, const char *value)
{
    bool gap = false, any = false;
    int rc = 0;

    for (; *value && rc == 0; value++) {
        if (*value == ' ' || *value == '\t') {
            gap = any;
            continue;
        }
        rc = gap ? buf_append(b, " ", 1) : 0;
        if (rc == 0)
            rc = buf_append(b, value, 1);
        gap = false;
        any = true;
    }
    return rc;
}

static int put_lower(struct buf *b, const char *s)
{
    int rc = 0;

    for (; *s && rc == 0; s++) {
        char c = (char)tolower((unsigned char)*s);

        rc = buf_append(b, &c, 1);
    }
    return rc;
}

static int compare_headers(const void *a, const void *b)
{
    return strcasecmp((*(const struct http_header *const *)a)->name,
                      (*(const struct http_header *const *)b)->name);
}

/* `name:value` lines, and the list of names. */
static int put_headers(const struct sigv4 *s, struct buf *lines, struct buf *names)
{
    const struct http_header *sorted[HEADERS_MAX];
    int rc = s->header_count > HEADERS_MAX ? -EINVAL : 0;

    for (size_t i = 0; rc == 0 && i < s->header_count; i++)
        sorted[i] = &s->headers[i];
    if (rc == 0)
        qsort(sorted, s->header_count, sizeof(sorted[0]), compare_headers);
    for (size_t i = 0; rc == 0 && i < s->header_count; i++) {
        if (i > 0)
            rc = buf_append(names, ";", 1);
        if (rc == 0)
            rc = put_lower(names, sorted[i]->name);
        if (rc == 0)
            rc = put_lower(lines, sorted[i]->name);
        if (rc == 0)
            rc = buf_append(lines, ":", 1);
        if (rc == 0)
            rc = put_value(lines, sorted[i]->value);
        if (rc == 0)
            rc = buf_append(lines, "\n", 1);
    }
    return rc;
}

/* The canonical request's hash; names gets the signed headers. */
static int hash_request(const struct sigv4 *s, struct buf *names, char out[static SIGV4_HASH_SIZE])
{
    CLEANUP_BUF struct buf b;
    int rc;

    buf_init(&b, CANONICAL_MAX);
    rc = buf_printf(&b, "%s\n", s->method);
    if (rc == 0)
        rc = put_path(&b, s);
    if (rc == 0)
        rc = buf_append(&b, "\n", 1);
    if (rc == 0)
        rc = put_query(&b, s->query);
    if (rc == 0)
        rc = buf_append(&b, "\n", 1);
    if (rc == 0)
        rc = put_headers(s, &b, names);
    if (rc == 0)
        rc = buf_printf(&b, "\n%s\n%s", names->data, s->payload_hash);
    if (rc == 0)
        rc = sigv4_hash(b.data, b.len, out);
    if (b.base)
        explicit_bzero(b.base, b.cap); /* a session token is among the headers */
    return rc;
}

/* -- the signature ----------------------------------------------------------------------------- */

static bool hmac(const void *key, size_t key_len, const char *text, unsigned char *out)
{
    return HMAC(EVP_sha256(), key, (int)key_len, (const unsigned char *)text, strlen(text), out,
                NULL) != NULL;
}

/* False: memory is out. */
static bool sign(const struct sigv4 *s, const char *day, const char *text,
                 unsigned char out[static HASH_BYTES])
{
    char first[256];
    unsigned char key[HASH_BYTES];
    size_t n = (size_t)snprintf(first, sizeof(first), "AWS4%s", s->secret_access_key);
    bool good = hmac(first, MIN(n, sizeof(first) - 1), day, key) &&
                hmac(key, sizeof(key), s->region, key) && hmac(key, sizeof(key), s->service, key) &&
                hmac(key, sizeof(key), "aws4_request", key) && hmac(key, sizeof(key), text, out);

    explicit_bzero(first, sizeof(first));
    explicit_bzero(key, sizeof(key));
    return good;
}

int sigv4_authorize(const struct sigv4 *s, struct buf *out)
{
    char hash[SIGV4_HASH_SIZE], day[9], scope[160], text[512], hex[SIGV4_HASH_SIZE];
    unsigned char signature[HASH_BYTES];
    CLEANUP_BUF struct buf names;
    int rc;

    if (strlen(s->secret_access_key) > 200)
        return -EINVAL;
    buf_init(&names, CANONICAL_MAX);
    rc = hash_request(s, &names, hash);
    if (rc < 0)
        return rc;
    snprintf(day, sizeof(day), "%.8s", s->date);
    snprintf(scope, sizeof(scope), "%s/%s/%s/aws4_request", day, s->region, s->service);
    snprintf(text, sizeof(text), ALGORITHM "\n%s\n%s\n%s", s->date, scope, hash);
    if (!sign(s, day, text, signature))
        return -ENOMEM;
    ids_hex(signature, sizeof(signature), hex);
    return buf_printf(out, ALGORITHM " Credential=%s/%s, SignedHeaders=%s, Signature=%s",
                      s->access_key_id, scope, names.data, hex);
}

/* Takes a part of a scope, up to '/'. */
static const char *take_part(const char *p, char *out, size_t size)
{
    size_t n = strcspn(p, "/, ");

    if (p[n] != '/' || n == 0 || n >= size)
        return NULL;
    for (size_t i = 0; i < n; i++)
        if (!isalnum((unsigned char)p[i]) && p[i] != '-')
            return NULL;
    memcpy(out, p, n);
    out[n] = '\0';
    return p + n + 1;
}

int sigv4_scope(const char *authorization, char *region, char *service, size_t size)
{
    static const char start[] = ALGORITHM " Credential=";
    const char *p = authorization;

    if (strncmp(p, start, sizeof(start) - 1) != 0)
        return -EINVAL;
    p += sizeof(start) - 1;
    for (int i = 0; i < 2; i++) { /* its key id and the day */
        p += strcspn(p, "/, ");
        if (*p++ != '/')
            return -EINVAL;
    }
    p = take_part(p, region, size);
    return p && take_part(p, service, size) ? 0 : -EINVAL;
}
