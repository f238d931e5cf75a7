/* For a host, the secrets that it may have been told are found, each is put into every form in
 * which an answer could repeat it, and all of them are searched for in one pass (redact.h).
 * Sets are kept by which credentials they are of, least recently used out first, since building
 * one costs more than a request; they go with the credentials. */

#include "egress/credential/response_secrets.h"

#include "base/base64.h"
#include "egress/credential/placeholder.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

/* -- the forms of a secret --------------------------------------------------------------------- */

/* Single characters that are escaped are the finder's (finder.h). These are what it cannot see:
 * forms that change all of a text, and those that another escape may stand around. */

static int add(struct redact *r, const char *text, size_t n)
{
    return n >= CREDENTIAL_VALUE_MIN ? redact_add(r, text, n) : 0;
}

static int add_placed(struct redact *r, const char *secret, enum placeholder_escape how)
{
    CLEANUP_BUF struct buf b;
    int rc;

    buf_init(&b, REDACT_SECRET_MAX);
    rc = buf_reserve(&b, strlen(secret) * 3 + 1);
    if (rc == 0)
        rc = placeholder_put(&b, secret, how);
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

/* Adds the characters of base64 that the secret alone determines, where it stands `before` bytes
 * after a multiple of three in a text. */
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

/* Quoted-printable (RFC 2045 section 6.7), of which a text needs '=' alone. */
static int add_quoted(struct redact *r, const char *secret)
{
    CLEANUP_BUF struct buf b;
    int rc;

    buf_init(&b, REDACT_SECRET_MAX);
    if (!strchr(secret, '='))
        return 0;
    rc = buf_reserve(&b, strlen(secret) * 3 + 1);
    for (const char *p = secret; *p && rc == 0; p++)
        rc = *p == '=' ? buf_append_str(&b, "=3D") : buf_append(&b, p, 1);
    if (rc == 0)
        rc = add(r, b.data, b.len);
    if (b.base)
        explicit_bzero(b.base, b.cap);
    return rc;
}

static int add_secret(struct redact *r, const char *secret)
{
    int rc;

    if (!secret || strlen(secret) < CREDENTIAL_VALUE_MIN)
        return 0;
    rc = add_placed(r, secret, PLACEHOLDER_PLAIN);
    if (rc == 0)
        rc = add_placed(r, secret, PLACEHOLDER_JSON);
    if (rc == 0)
        rc = add_placed(r, secret, PLACEHOLDER_FORM);
    if (rc == 0)
        rc = add_placed(r, secret, PLACEHOLDER_PLUS);
    if (rc == 0)
        rc = add_quoted(r, secret);
    if (rc == 0)
        rc = add_base64(r, secret);
    if (rc == 0)
        rc = add_hex(r, secret, "0123456789abcdef");
    return rc == 0 ? add_hex(r, secret, "0123456789ABCDEF") : rc;
}

/* The key in a header's value: the text after "Bearer ", "Token token=" and their like. */
static const char *key_in(const char *value)
{
    const char *key = strrchr(value, ' '), *equals;

    key = key ? key + 1 : value;
    equals = strchr(key, '=');
    return equals && strlen(equals + 1) >= CREDENTIAL_VALUE_MIN ? equals + 1 : key;
}

static int add_headers(struct redact *r, const struct credential *c)
{
    int rc = 0;

    for (size_t i = 0; i < c->header_count && rc == 0; i++) {
        const char *value = c->headers[i].value, *key = key_in(value);

        rc = add_secret(r, value);
        if (rc == 0 && key != value)
            rc = add_secret(r, key);
    }
    return rc;
}

/* A key that only signs does not leave, and is in no answer therefore: files of S3 can be read in
 * ranges. */
static int add_credential(struct redact *r, const struct credential *c)
{
    int rc = add_secret(r, c->value);

    if (rc == 0 && c->kind == CREDENTIAL_BASIC)
        rc = add_secret(r, strchr(c->value, ':') + 1);
    if (rc == 0)
        rc = add_headers(r, c);
    if (rc == 0)
        rc = add_secret(r, c->oauth.previous);
    if (rc == 0)
        rc = add_secret(r, c->oauth.refresh_token);
    if (rc == 0)
        rc = add_secret(r, c->oauth.client_secret);
    return rc == 0 ? add_secret(r, c->session_token) : rc;
}

/* -- those of a host --------------------------------------------------------------------------- */

/* The search for the answers of hosts with the same credentials. */
struct set {
    uint64_t known;        /* bit i: the credential i is among them; 0: there is none here */
    struct redact *redact; /* never fed: shared by what is */
    uint64_t used;         /* the clock then */
};

struct response_secrets_cache {
    struct set sets[RESPONSE_SECRETS_SETS_MAX];
    uint64_t clock;
    size_t made;
};

_Static_assert(CREDENTIALS_MAX <= 64, "each has a bit");

struct response_secrets_cache *response_secrets_cache_new(void)
{
    return calloc(1, sizeof(struct response_secrets_cache));
}

size_t response_secrets_cache_made(const struct response_secrets_cache *cache)
{
    return cache->made;
}

static void drop(struct set *s)
{
    redact_free(s->redact);
    *s = (struct set){.known = 0};
}

void response_secrets_cache_free(struct response_secrets_cache *cache)
{
    for (size_t i = 0; cache && i < RESPONSE_SECRETS_SETS_MAX; i++)
        drop(&cache->sets[i]);
    free(cache);
}

static struct set *find_set(struct response_secrets_cache *cache, uint64_t known)
{
    for (size_t i = 0; i < RESPONSE_SECRETS_SETS_MAX; i++)
        if (cache->sets[i].known == known)
            return &cache->sets[i];
    return NULL;
}

size_t response_secrets_cache_bytes(const struct response_secrets_cache *cache)
{
    size_t total = 0;

    for (size_t i = 0; i < RESPONSE_SECRETS_SETS_MAX; i++)
        total += cache->sets[i].known ? redact_total(cache->sets[i].redact) : 0;
    return total;
}

/* The one that was not used for longest. free_too: a free one before all; else NULL where there is
 * no other. */
static struct set *oldest(struct response_secrets_cache *cache, bool free_too)
{
    struct set *s = free_too ? &cache->sets[0] : NULL;

    for (size_t i = 0; i < RESPONSE_SECRETS_SETS_MAX; i++)
        if ((free_too || cache->sets[i].known) && (!s || cache->sets[i].used < s->used))
            s = &cache->sets[i];
    return s;
}

/* Takes r over. Those go for it that were not used for longest; it itself is always kept. */
static void keep_set(struct response_secrets_cache *cache, uint64_t known, struct redact *r)
{
    struct set *old = oldest(cache, false);

    while (old &&
           response_secrets_cache_bytes(cache) + redact_total(r) > RESPONSE_SECRETS_CACHE_BYTES) {
        drop(old);
        old = oldest(cache, false);
    }
    old = oldest(cache, true);
    drop(old);
    *old = (struct set){known, r, ++cache->clock};
    cache->made++;
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
            rc = add_credential(r, &all->list[i]);
    if (rc < 0)
        redact_free(r);
    else
        *out = r;
    return rc;
}

/* From the cache, or made and put there. */
static int set_of(const struct credentials *all, uint64_t known, struct redact **out)
{
    struct set *s = find_set(all->searched, known);
    struct redact *made;
    int rc;

    if (s) {
        s->used = ++all->searched->clock;
        *out = s->redact;
        return 0;
    }
    rc = make(all, known, &made);
    if (rc < 0)
        return rc;
    keep_set(all->searched, known, made);
    *out = made;
    return 0;
}

int response_secrets_for(const struct credentials *all, const char *host, uint16_t port,
                         struct redact **out)
{
    uint64_t known = all ? known_at(all, host, port) : 0;
    struct redact *used;
    int rc = known ? set_of(all, known, &used) : 0;

    if (rc < 0 || !known || redact_count(used) == 0)
        return rc;
    *out = redact_share(used);
    return *out ? 0 : -ENOMEM;
}

/* Bodies, and messages in them: gRPC, Connect. Ranges (RFC 9110 section 14; x-ms-range is Azure's):
 * a secret that is asked for in pieces of a few bytes is in none of the answers. */
const char *const response_secrets_leaves_out[] = {"accept-encoding",
                                                   "grpc-accept-encoding",
                                                   "connect-accept-encoding",
                                                   "range",
                                                   "if-range",
                                                   "x-ms-range",
                                                   "request-range",
                                                   "a-im",
                                                   NULL};

bool response_secrets_is_of_coded(const char *name)
{
    static const char *const names[] = {"content-encoding", "content-length", "content-md5",
                                        "digest",           "content-digest", "repr-digest",
                                        "accept-ranges"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcasecmp(name, names[i]) == 0)
            return true;
    return false;
}
