#include "egress/reflect.h"

#include "base/base64.h"
#include "egress/place.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

/* -- the forms of a secret --------------------------------------------------------------------- */

/* Single characters that are escaped are the finder's (finder.h). These are what it cannot see: forms that
 * change all of a text, and those that another escape may stand around. */

static int add(struct redact *r, const char *text, size_t n)
{
    return n >= CREDENTIAL_VALUE_MIN ? redact_add(r, text, n) : 0;
}

static int add_placed(struct redact *r, const char *secret, enum place_escape how)
{
    CLEANUP_BUF struct buf b;
    int rc;

    buf_init(&b, REDACT_SECRET_MAX);
    rc = buf_reserve(&b, strlen(secret) * 3 + 1);
    if (rc == 0)
        rc = place_put(&b, secret, how);
    if (rc == 0)
        rc = add(r, b.data, b.len);
    if (b.base)
        explicit_bzero(b.base, b.cap);
    return rc;
}

static int add_hex(struct redact *r, const char *secret, const char digits[static 16])
{
    size_t n = strlen(secret);
    char *text = malloc(2 * n + 1);
    int rc;

    if (!text)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        text[2 * i] = digits[(unsigned char)secret[i] >> 4];
        text[2 * i + 1] = digits[secret[i] & 15];
    }
    rc = add(r, text, 2 * n);
    explicit_bzero(text, 2 * n);
    free(text);
    return rc;
}

/* text with base64url's two characters (RFC 4648 section 5). */
static void to_url_alphabet(char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        text[i] = text[i] == '+' ? '-' : text[i] == '/' ? '_' : text[i];
}

/* What base64 of any text has where the secret stands `before` bytes after a multiple of three in it: the
 * characters that the secret alone determines. */
static int add_base64_at(struct redact *r, const char *secret, size_t before)
{
    static const size_t shared[] = {0, 2, 3};
    size_t n = strlen(secret), from = shared[before], to = (before + n) * 8 / 6;
    char *raw = calloc(1, n + 3), *text = malloc(base64_encoded_len(n + 3) + 1);
    int rc = -ENOMEM;

    if (raw && text) {
        memcpy(raw + before, secret, n);
        base64_encode(raw, before + n, text);
        rc = add(r, text + from, to - from);
        to_url_alphabet(text, to);
        if (rc == 0)
            rc = add(r, text + from, to - from);
        explicit_bzero(raw, n + 3);
        explicit_bzero(text, to);
    }
    free(raw);
    free(text);
    return rc;
}

/* In Basic's, with whatever user stands before it, and in any other. */
static int add_base64(struct redact *r, const char *secret)
{
    int rc = 0;

    for (size_t before = 0; before < 3 && rc == 0; before++)
        rc = add_base64_at(r, secret, before);
    return rc;
}

static int look_for(struct redact *r, const char *secret)
{
    int rc;

    if (!secret || strlen(secret) < CREDENTIAL_VALUE_MIN)
        return 0;
    rc = add_placed(r, secret, PLACE_PLAIN);
    if (rc == 0)
        rc = add_placed(r, secret, PLACE_JSON);
    if (rc == 0)
        rc = add_placed(r, secret, PLACE_FORM);
    if (rc == 0)
        rc = add_placed(r, secret, PLACE_PLUS);
    if (rc == 0)
        rc = add_base64(r, secret);
    if (rc == 0)
        rc = add_hex(r, secret, "0123456789abcdef");
    return rc == 0 ? add_hex(r, secret, "0123456789ABCDEF") : rc;
}

/* The key in a header's value: what stands after "Bearer ", "Token token=" and their like. */
static const char *key_in(const char *value)
{
    const char *key = strrchr(value, ' '), *equals;

    key = key ? key + 1 : value;
    equals = strchr(key, '=');
    return equals && strlen(equals + 1) >= CREDENTIAL_VALUE_MIN ? equals + 1 : key;
}

static int look_for_headers(struct redact *r, const struct credential *c)
{
    int rc = 0;

    for (size_t i = 0; i < c->header_count && rc == 0; i++) {
        const char *value = c->headers[i].value, *key = key_in(value);

        rc = look_for(r, value);
        if (rc == 0 && key != value)
            rc = look_for(r, key);
    }
    return rc;
}

/* A key that only signs does not leave, and is in no answer therefore: files of S3 can be read in ranges. */
static int look_for_credential(struct redact *r, const struct credential *c)
{
    int rc = look_for(r, c->value);

    if (rc == 0 && c->kind == CREDENTIAL_BASIC)
        rc = look_for(r, strchr(c->value, ':') + 1);
    if (rc == 0)
        rc = look_for_headers(r, c);
    return rc == 0 ? look_for(r, c->session_token) : rc;
}

/* -- those of a host --------------------------------------------------------------------------- */

struct reflect_cache {
    uint64_t known; /* bit i: the credential i is among them */
    struct redact *redact;
};

_Static_assert(CREDENTIALS_MAX <= 64, "each has a bit");

struct reflect_cache *reflect_cache_new(void)
{
    return calloc(1, sizeof(struct reflect_cache));
}

void reflect_cache_free(struct reflect_cache *cache)
{
    if (cache)
        redact_free(cache->redact);
    free(cache);
}

static uint64_t known_at(const struct credentials *all, const char *host, uint16_t port)
{
    uint64_t known = 0;

    for (size_t i = 0; i < all->count; i++)
        if (!host || credential_knows(&all->list[i], host, port))
            known |= UINT64_C(1) << i;
    return known;
}

static int make(const struct credentials *all, uint64_t known, struct redact **out)
{
    struct redact *r = redact_new();
    int rc = r ? 0 : -ENOMEM;

    for (size_t i = 0; i < all->count && rc == 0; i++)
        if (known >> i & 1)
            rc = look_for_credential(r, &all->list[i]);
    if (rc < 0)
        redact_free(r);
    else
        *out = r;
    return rc;
}

int reflect_secrets(const struct credentials *all, const char *host, uint16_t port,
                    struct redact **out)
{
    uint64_t known = all ? known_at(all, host, port) : 0;
    struct reflect_cache *cache = all ? all->searched : NULL;
    struct redact *used = cache && cache->known == known ? cache->redact : NULL;
    struct redact *made = NULL, *shared;
    bool has_secrets;
    int rc;

    if (!known)
        return 0;
    if (!used) {
        rc = make(all, known, &made);
        if (rc < 0)
            return rc;
        used = made;
    }
    has_secrets = redact_count(used) > 0;
    shared = has_secrets ? redact_share(used) : NULL;
    if (made && cache) {
        redact_free(cache->redact);
        *cache = (struct reflect_cache){known, made};
    } else {
        redact_free(made);
    }
    if (has_secrets && !shared)
        return -ENOMEM;
    *out = shared;
    return 0;
}

/* Bodies, and messages in them: gRPC, Connect. Ranges (RFC 9110 section 14; x-ms-range is Azure's): a secret
 * that is asked for in pieces of a few bytes is in none of the answers. */
const char *const reflect_leaves_out[] = {"accept-encoding",
                                          "grpc-accept-encoding",
                                          "connect-accept-encoding",
                                          "range",
                                          "if-range",
                                          "x-ms-range",
                                          "request-range",
                                          "a-im",
                                          NULL};

bool reflect_is_part(int status, const char *content_type)
{
    static const char parts[] = "multipart/byteranges";

    return status == 206 || status == 226 ||
           (content_type && strncasecmp(content_type, parts, sizeof(parts) - 1) == 0);
}

bool reflect_is_coded(const struct http_header *h)
{
    static const char *const names[] = {"content-encoding", "grpc-encoding",
                                        "connect-content-encoding"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcasecmp(h->name, names[i]) == 0)
            return h->value[0] && strcasecmp(h->value, "identity") != 0;
    return false;
}

bool reflect_is_of_coded(const char *name)
{
    static const char *const names[] = {"content-encoding", "content-length", "content-md5",
                                        "digest",           "content-digest", "repr-digest",
                                        "accept-ranges"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}
