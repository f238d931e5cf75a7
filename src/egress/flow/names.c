#include "egress/flow/names.h"

#include "base/fnv.h"
#include "base/util.h"

#include <arpa/inet.h>
#include <string.h>

#define BUCKETS   1024u       /* a power of two */
#define V4_PREFIX 0xc6120000u /* 198.18.0.0 */
#define V4_MASK   0xfffe0000u

static const uint8_t v6_prefix[12] = {0xfd, 0xca, 0x79, 0xee, 0x00, 0x18};
static const uint8_t v4_mapped[12] = {[10] = 0xff, [11] = 0xff};

struct entry {
    uint32_t number;
    struct entry *next; /* of its bucket */
    char name[];
};

struct names {
    struct entry **by_number; /* grows with use: most sandboxes know few names */
    uint32_t count, capacity;
    struct entry *buckets[BUCKETS];
};

struct names *names_new(void)
{
    return calloc(1, sizeof(struct names));
}

void names_free(struct names *n)
{
    if (!n)
        return;
    for (uint32_t i = 0; i < n->count; i++)
        free(n->by_number[i]);
    free(n->by_number);
    free(n);
}

/* A sandbox that looks for collisions slows its own names down, 4,096 at most. */
static uint32_t bucket_of(const char *name)
{
    uint32_t h = fnv_32(FNV_32_START, name);

    return (h ^ (h >> 16)) & (BUCKETS - 1);
}

static int grow(struct names *n)
{
    uint32_t capacity = n->capacity ? n->capacity * 2 : 16;
    struct entry **bigger;

    if (n->count < n->capacity)
        return 0;
    bigger = realloc(n->by_number, capacity * sizeof(*bigger));
    if (!bigger)
        return -1;
    n->by_number = bigger;
    n->capacity = capacity;
    return 0;
}

uint32_t names_number(struct names *n, const char *name)
{
    uint32_t b = bucket_of(name);
    size_t len = strlen(name);
    struct entry *e;

    if (strcmp(name, NAMES_INTERNAL_NAME) == 0)
        return NAMES_INTERNAL;
    for (e = n->buckets[b]; e; e = e->next)
        if (strcmp(e->name, name) == 0)
            return e->number;
    if (n->count >= NAMES_MAX || len > POLICY_NAME_MAX || grow(n) < 0)
        return 0;
    e = malloc(sizeof(*e) + len + 1);
    if (!e)
        return 0;
    memcpy(e->name, name, len + 1);
    e->number = NAMES_FIRST + n->count;
    e->next = n->buckets[b];
    n->buckets[b] = e;
    n->by_number[n->count++] = e;
    return e->number;
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

    if (number == NAMES_INTERNAL)
        return NAMES_INTERNAL_NAME;
    if (number < NAMES_FIRST || number - NAMES_FIRST >= n->count)
        return NULL;
    return n->by_number[number - NAMES_FIRST]->name;
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
