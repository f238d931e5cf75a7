#include "base/bucket.h"

#include "base/port.h"
#include "base/util.h"

#include <stdbool.h>
#include <string.h>

static bool is_of(const char *text, const char *marks)
{
    for (; *text; text++)
        if (!(*text >= 'a' && *text <= 'z') && !(*text >= '0' && *text <= '9') &&
            !strchr(marks, *text))
            return false;
    return true;
}

/* S3's own rule: it becomes a part of the path. */
static bool is_name(const char *name)
{
    size_t n = strlen(name);

    return n >= 3 && n <= 63 && is_of(name, ".-") && !strchr(".-", name[0]) &&
           !strchr(".-", name[n - 1]) && !strstr(name, "..");
}

/* A host's name or an address in digits, with or without a port; never a user or a path. */
static bool is_host(const char *text)
{
    size_t n = text[0] == '[' ? strspn(text + 1, "0123456789abcdef:.") + 1
                              : strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789.-");

    if (text[0] == '[' && text[n++] != ']')
        return false;
    return n > 0 && (!text[n] || (text[n] == ':' && port_from_text(text + n + 1)));
}

static bool is_loopback(const char *host)
{
    static const char *const those[] = {"127.0.0.1", "localhost", "[::1]"};

    for (size_t i = 0; i < ARRAY_SIZE(those); i++) {
        size_t n = strlen(those[i]);

        if (strncmp(host, those[i], n) == 0 && (!host[n] || host[n] == ':'))
            return true;
    }
    return false;
}

/* Contents of sandboxes and a signature go there: in plain text to this machine alone. */
static bool is_endpoint(const char *url)
{
    if (strncmp(url, "https://", 8) == 0)
        return is_host(url + 8);
    return strncmp(url, "http://", 7) == 0 && is_host(url + 7) && is_loopback(url + 7);
}

static bool is_path(const char *path)
{
    for (const char *p = path; *p; p++)
        if (*p < ' ' || *p > '~')
            return false;
    return path[0] == '/' && strlen(path) <= BUCKET_TEXT_MAX;
}

const char *bucket_check(const struct bucket *b, const char **key)
{
    *key = "bucket";
    if (!b->name)
        return NULL;
    if (!is_name(b->name))
        return "allowed are 3 to 63 small letters, digits, dots and hyphens";
    *key = "endpoint";
    if (!b->endpoint)
        return "it is needed with a bucket, as https://s3.eu-central-1.amazonaws.com";
    if (strlen(b->endpoint) > BUCKET_TEXT_MAX || !is_endpoint(b->endpoint))
        return "allowed is https://HOST or https://HOST:PORT in small letters, without a path, and "
               "http:// to a loopback address";
    *key = "region";
    if (!b->region || !b->region[0] || strlen(b->region) > 63 || !is_of(b->region, "-"))
        return "allowed are small letters, digits and hyphens";
    *key = "credentials";
    if (!b->credentials || !is_path(b->credentials))
        return "the absolute path of a file is needed with a bucket, with aws_access_key_id and "
               "aws_secret_access_key";
    *key = "ca_file";
    return b->ca_file && !is_path(b->ca_file) ? "allowed is an absolute path" : NULL;
}
