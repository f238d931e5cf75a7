#include "egress/reflect.h"

#include "base/base64.h"
#include "egress/place.h"

#include <errno.h>
#include <string.h>
#include <strings.h>

static int look_for(struct redact *r, const char *secret)
{
    static const enum place_escape forms[] = {PLACE_PLAIN, PLACE_JSON, PLACE_FORM};
    int rc = 0;

    if (!secret || strlen(secret) < CREDENTIAL_VALUE_MIN)
        return 0;
    for (size_t i = 0; i < ARRAY_SIZE(forms) && rc == 0; i++) {
        CLEANUP_BUF struct buf b;

        buf_init(&b, REDACT_SECRET_MAX);
        rc = buf_reserve(&b, strlen(secret) * 3);
        if (rc == 0)
            rc = place_put(&b, secret, forms[i]);
        if (rc == 0)
            rc = redact_add(r, b.data, b.len);
        if (b.base)
            explicit_bzero(b.base, b.cap);
    }
    return rc;
}

static int look_for_basic(struct redact *r, const char *value)
{
    char *text = malloc(base64_encoded_len(strlen(value)) + 1);
    int rc;

    if (!text)
        return -ENOMEM;
    base64_encode(value, strlen(value), text);
    rc = look_for(r, text);
    credential_wipe(text);
    if (rc == 0)
        rc = look_for(r, value);
    return rc == 0 ? look_for(r, strchr(value, ':') + 1) : rc;
}

static int look_for_credential(struct redact *r, const struct credential *c)
{
    int rc = c->kind == CREDENTIAL_BASIC ? look_for_basic(r, c->value) : look_for(r, c->value);

    for (size_t i = 0; i < c->header_count && rc == 0; i++)
        rc = look_for(r, c->headers[i].value);
    if (rc == 0)
        rc = look_for(r, c->secret_access_key);
    return rc == 0 ? look_for(r, c->session_token) : rc;
}

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
        if (credential_knows(&all->list[i], host, port))
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
    uint64_t known = all && host ? known_at(all, host, port) : 0;
    struct reflect_cache *cache = all ? all->searched : NULL;
    struct redact *made = NULL, *shared;
    int rc;

    if (!known)
        return 0;
    if (!cache || !cache->redact || cache->known != known) {
        rc = make(all, known, &made);
        if (rc < 0)
            return rc;
    }
    shared = redact_share(made ? made : cache->redact);
    if (made && cache) {
        redact_free(cache->redact);
        *cache = (struct reflect_cache){known, made};
    } else {
        redact_free(made);
    }
    if (!shared)
        return -ENOMEM;
    *out = shared;
    return 0;
}

/* Bodies, and messages in them: gRPC, Connect. */
const char *const reflect_asks_for_coding[] = {"accept-encoding", "grpc-accept-encoding",
                                               "connect-accept-encoding", NULL};

bool reflect_is_coded(const struct http_header *h)
{
    static const char *const names[] = {"content-encoding", "grpc-encoding",
                                        "connect-content-encoding"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++)
        if (strcasecmp(h->name, names[i]) == 0)
            return h->value[0] && strcasecmp(h->value, "identity") != 0;
    return false;
}
