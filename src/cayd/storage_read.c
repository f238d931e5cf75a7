#include "cayd/storage_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* "TENANT/MD5" and the text that has to follow it. */
static bool read_name(const char *text, const char *after, struct core_storage_call *out)
{
    size_t n = strcspn(text, "/");

    if (n == 0 || n >= sizeof(out->tenant) || text[n] != '/' || strchr(text, '%') ||
        strcspn(text + n + 1, "/") != CORE_STORAGE_DIGITS ||
        strcmp(text + n + 1 + CORE_STORAGE_DIGITS, after) != 0)
        return false;
    (void)snprintf(out->tenant, sizeof(out->tenant), "%.*s", (int)n, text);
    (void)snprintf(out->digits, sizeof(out->digits), "%s", text + n + 1);
    return strspn(out->digits, "0123456789abcdef") == CORE_STORAGE_DIGITS;
}

/* The list of what begins with a prefix, which has to be an archive's. */
static int read_list(const struct http_head *h, struct core_storage_call *out, const char **why)
{
    char type[4], prefix[CORE_TENANT_SIZE + CORE_STORAGE_DIGITS + 8];
    const char *query = h->query ? h->query : "";

    out->op = STORAGE_STAT;
    *why = "a list is ListObjectsV2, of the prefix TENANT/MD5/";
    if (strcmp(h->method, "GET") != 0)
        return 405;
    return http_query_get(query, "list-type", type, sizeof(type)) > 0 && strcmp(type, "2") == 0 &&
                   http_query_get(query, "prefix", prefix, sizeof(prefix)) > 0 &&
                   read_name(prefix, "/", out)
               ? 0
               : 400;
}

static bool has_query(const char *query, const char *name)
{
    char value[1];

    return http_query_get(query, name, value, sizeof(value)) != -ENOENT;
}

/* The call on an archive, by method and query. */
static int read_op(const struct http_head *h, struct core_storage_call *out, const char **why)
{
    const char *query = h->query ? h->query : "";
    bool of_upload = http_query_get(query, "uploadId", out->upload, sizeof(out->upload)) > 0;
    bool put = strcmp(h->method, "PUT") == 0, post = strcmp(h->method, "POST") == 0;
    char part[8] = "";

    *why = "there are HEAD, PUT and uploads in parts of an archive";
    if (of_upload && strspn(out->upload, "0123456789abcdef") != CORE_STORAGE_UPLOAD_SIZE - 1)
        return 404;
    if (put && of_upload && http_query_get(query, "partNumber", part, sizeof(part)) > 0 &&
        strspn(part, "0123456789") == strlen(part)) {
        out->op = STORAGE_PART;
        out->part = (unsigned)strtoul(part, NULL, 10);
    } else if (put && !has_query(query, "uploadId") && !has_query(query, "partNumber")) {
        out->op = STORAGE_PUT;
    } else if (strcmp(h->method, "HEAD") == 0) {
        out->op = STORAGE_STAT;
    } else if (post && of_upload) {
        out->op = STORAGE_COMPLETE;
    } else if (post && has_query(query, "uploads")) {
        out->op = STORAGE_BEGIN;
    } else if (strcmp(h->method, "DELETE") == 0 && of_upload) {
        out->op = STORAGE_ABORT;
    } else {
        return put || post ? 400 : 405;
    }
    return 0;
}

/* A body that is wrapped in chunks of S3's own would be kept with its wrapping. */
static bool is_wrapped(const struct http_head *h)
{
    const char *sum = http_head_get(h, "x-amz-content-sha256"),
               *coding = http_head_get(h, "Content-Encoding");

    return (sum && strncmp(sum, "STREAMING-", 10) == 0) ||
           (coding && strcasecmp(coding, "identity") != 0);
}

int storage_read(const struct http_head *h, struct core_storage_call *out, const char **why)
{
    static const char bucket[] = DAYTONA_STORAGE_PATH "/" DAYTONA_STORAGE_BUCKET;
    const char *token = http_head_get(h, "x-amz-security-token"), *rest;

    *out = (struct core_storage_call){.file = {.fd = -1}};
    if (strncmp(h->path, bucket, sizeof(bucket) - 1) != 0 ||
        (h->path[sizeof(bucket) - 1] && h->path[sizeof(bucket) - 1] != '/')) {
        *why = "there is one bucket: " DAYTONA_STORAGE_BUCKET;
        return 404;
    }
    if (!token || strlen(token) >= sizeof(out->token)) {
        *why = "x-amz-security-token: the session token of push-access is missing";
        return 403;
    }
    (void)snprintf(out->token, sizeof(out->token), "%s", token);
    rest = h->path + sizeof(bucket) - 1;
    if (!*rest || strcmp(rest, "/") == 0)
        return read_list(h, out, why);
    if (!read_name(rest + 1, STORAGE_OBJECT, out)) {
        *why = "an archive is TENANT/MD5" STORAGE_OBJECT;
        return 404;
    }
    if (is_wrapped(h)) {
        *why = "bodies in chunks of their own (aws-chunked), or compressed, are not taken";
        return 501;
    }
    return read_op(h, out, why);
}
