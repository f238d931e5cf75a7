#include "egress/flow/names.h"

#include "base/util.h"

#include <arpa/inet.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <string.h>

#define BUCKETS   1024u       /* a power of two */
#define V4_PREFIX 0xc6120000u /* 198.18.0.0 */
#define V4_MASK   0xfffe0000u
#define NUMBERS   (NAMES_LAST - NAMES_FIRST + 1)

static const uint8_t v6_prefix[12] = {0xfd, 0xca, 0x79, 0xee, 0x00, 0x18};
static const uint8_t v4_mapped[12] = {[10] = 0xff, [11] = 0xff};

struct entry {
    uint32_t number;
    struct entry *next; /* of its bucket */
    char name[];
};

struct names {
    unsigned char key[NAMES_KEY_BYTES];
    bool has_tenant; /* the key is its tenant's */
    uint32_t count;
    void (*on_new)(void *arg, uint32_t number, const char *name);
    void *arg;
    struct entry *buckets[BUCKETS]; /* by number */
};

struct names *names_new(const unsigned char key[static NAMES_KEY_BYTES])
{
    struct names *n = calloc(1, sizeof(*n));

    if (n)
        memcpy(n->key, key, sizeof(n->key));
    return n;
}

void names_set_tenant(struct names *n, const char *tenant)
{
    static const char use[] = "tenant:"; /* no name has a colon */
    char text[sizeof(use) + POLICY_NAME_MAX];
    unsigned char sum[EVP_MAX_MD_SIZE];
    int len = snprintf(text, sizeof(text), "%s%s", use, tenant);

    if (n->has_tenant || n->count > 0 || len >= (int)sizeof(text) ||
        !HMAC(EVP_sha256(), n->key, sizeof(n->key), (const unsigned char *)text, (size_t)len, sum,
              NULL))
        return;
    memcpy(n->key, sum, sizeof(n->key));
    explicit_bzero(sum, sizeof(sum));
    n->has_tenant = true;
}

void names_free(struct names *n)
{
    if (!n)
        return;
    for (size_t i = 0; i < BUCKETS; i++)
        for (struct entry *e = n->buckets[i], *next; e; e = next) {
            next = e->next;
            free(e);
        }
    explicit_bzero(n->key, sizeof(n->key));
    free(n);
}

static struct entry *at(const struct names *n, uint32_t number)
{
    struct entry *e = n->buckets[number % BUCKETS];

    while (e && e->number != number)
        e = e->next;
    return e;
}

static struct entry *add(struct names *n, uint32_t number, const char *name)
{
    struct entry **bucket = &n->buckets[number % BUCKETS], *e;
    size_t len = strlen(name);

    if (n->count >= NAMES_MAX || len > POLICY_NAME_MAX)
        return NULL;
    e = malloc(sizeof(*e) + len + 1);
    if (!e)
        return NULL;
    memcpy(e->name, name, len + 1);
    e->number = number;
    e->next = *bucket;
    *bucket = e;
    n->count++;
    return e;
}

/* 0: memory is out. A sandbox cannot tell before it asks which names are close to one another; one
 * that has found out slows its own down, NAMES_MAX of them at most. */
static uint32_t first_number(const struct names *n, const char *name)
{
    unsigned char sum[EVP_MAX_MD_SIZE];
    uint32_t low;

    if (!HMAC(EVP_sha256(), n->key, sizeof(n->key), (const unsigned char *)name, strlen(name), sum,
              NULL))
        return 0;
    memcpy(&low, sum, sizeof(low));
    return NAMES_FIRST + low % NUMBERS;
}

static uint32_t number_after(uint32_t number)
{
    return number == NAMES_LAST ? NAMES_FIRST : number + 1;
}

/* Its entry, or NULL and the number that it would have; 0: memory is out. */
static struct entry *find(const struct names *n, const char *name, uint32_t *number)
{
    struct entry *e;

    *number = first_number(n, name);
    while (*number != 0 && (e = at(n, *number))) {
        if (strcmp(e->name, name) == 0)
            return e;
        *number = number_after(*number);
    }
    return NULL;
}

uint32_t names_number(struct names *n, const char *name)
{
    struct entry *e;
    uint32_t number;

    if (strcmp(name, NAMES_INTERNAL_NAME) == 0)
        return NAMES_INTERNAL;
    e = find(n, name, &number);
    if (e)
        return number;
    e = number != 0 ? add(n, number, name) : NULL;
    if (e && n->on_new)
        n->on_new(n->arg, number, e->name);
    return e ? number : 0;
}

void names_watch(struct names *n, void (*cb)(void *arg, uint32_t number, const char *name),
                 void *arg)
{
    n->on_new = cb;
    n->arg = arg;
}

/* When all are there again they are found as before: each number between a name's first and its own
 * was taken when it was made. Of one that is missing the name behind it may get a second number. */
bool names_restore(struct names *n, uint32_t number, const char *name)
{
    return number >= NAMES_FIRST && number <= NAMES_LAST && !at(n, number) && add(n, number, name);
}

void names_each(const struct names *n, void (*cb)(void *arg, uint32_t number, const char *name),
                void *arg)
{
    for (size_t i = 0; i < BUCKETS; i++)
        for (const struct entry *e = n->buckets[i]; e; e = e->next)
            cb(arg, e->number, e->name);
}

/* 0 when it is not one of ours; number 0 itself is never given out. */
static uint32_t number_of(const struct policy_address *a)
{
    uint32_t low;

    memcpy(&low, a->in6.s6_addr + 12, sizeof(low));
    low = ntohl(low);
    if (memcmp(a->in6.s6_addr, v6_prefix, sizeof(v6_prefix)) == 0)
        return low;
    if (memcmp(a->in6.s6_addr, v4_mapped, sizeof(v4_mapped)) == 0 && (low & V4_MASK) == V4_PREFIX)
        return low & ~V4_MASK;
    return 0;
}

bool names_is_own(const struct policy_address *a)
{
    uint32_t low;

    memcpy(&low, a->in6.s6_addr + 12, sizeof(low));
    return memcmp(a->in6.s6_addr, v6_prefix, sizeof(v6_prefix)) == 0 ||
           (memcmp(a->in6.s6_addr, v4_mapped, sizeof(v4_mapped)) == 0 &&
            (ntohl(low) & V4_MASK) == V4_PREFIX);
}

const char *names_of(const struct names *n, const struct policy_address *a)
{
    uint32_t number = number_of(a);
    const struct entry *e;

    if (number == NAMES_INTERNAL)
        return NAMES_INTERNAL_NAME;
    e = number >= NAMES_FIRST ? at(n, number) : NULL;
    return e ? e->name : NULL;
}

void names_address(uint32_t number, bool v6, struct policy_address *out)
{
    uint32_t low = htonl(v6 ? number : V4_PREFIX | number);

    memcpy(out->in6.s6_addr, v6 ? v6_prefix : v4_mapped, 12);
    memcpy(out->in6.s6_addr + 12, &low, sizeof(low));
}

size_t names_count(const struct names *n)
{
    return n->count;
}
