#include "core/registry.h"

#include "base/fnv.h"
#include "core/sandbox.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#define BUCKETS_MIN 64u

/* Ids are short and random. */
static size_t hash_id(const char *id)
{
    uint64_t h = fnv_64(FNV_64_START, id, strlen(id));

    return (size_t)(h ^ h >> 32);
}

static struct sandbox_obj **bucket_of(const struct registry *r, const char *id)
{
    return &r->buckets[hash_id(id) & (r->bucket_count - 1)];
}

static void hash_insert(struct registry *r, struct sandbox_obj *o)
{
    struct sandbox_obj **b = bucket_of(r, o->s.id);

    o->hash_next = *b;
    *b = o;
}

static int grow_buckets(struct registry *r)
{
    size_t count = r->bucket_count ? r->bucket_count * 2 : BUCKETS_MIN;
    struct sandbox_obj **buckets = calloc(count, sizeof(struct sandbox_obj *));

    if (!buckets)
        return -ENOMEM;
    free(r->buckets);
    r->buckets = buckets;
    r->bucket_count = count;
    for (size_t i = 0; i < r->n; i++)
        hash_insert(r, r->order[i]);
    return 0;
}

static int grow_order(struct registry *r)
{
    size_t cap = r->cap ? r->cap * 2 : BUCKETS_MIN;
    struct sandbox_obj **order = reallocarray(r->order, cap, sizeof(struct sandbox_obj *));

    if (!order)
        return -ENOMEM;
    r->order = order;
    r->cap = cap;
    return 0;
}

void registry_free(struct registry *r)
{
    free(r->buckets);
    free(r->order);
    *r = (struct registry){0};
}

static int compare(const struct sandbox_obj *o, int64_t started_ms, const char *id)
{
    if (o->s.started_real_ms != started_ms)
        return o->s.started_real_ms < started_ms ? -1 : 1;
    return strcmp(o->s.id, id);
}

size_t registry_lower_bound(const struct registry *r, int64_t started_ms, const char *id)
{
    size_t low = 0, high = r->n;

    while (low < high) {
        size_t mid = low + (high - low) / 2;

        if (compare(r->order[mid], started_ms, id) < 0)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* There is room for it. */
static void insert(struct registry *r, struct sandbox_obj *o)
{
    size_t at = registry_lower_bound(r, o->s.started_real_ms, o->s.id);
    memmove(&r->order[at + 1], &r->order[at], (r->n - at) * sizeof(struct sandbox_obj *));
    r->order[at] = o;
    r->n++;
    hash_insert(r, o);
}

int registry_add(struct registry *r, struct sandbox_obj *o)
{
    if (r->n == r->cap && grow_order(r) < 0)
        return -ENOMEM;
    if (r->n == r->bucket_count && grow_buckets(r) < 0)
        return -ENOMEM;
    insert(r, o);
    return 0;
}

void registry_remove(struct registry *r, struct sandbox_obj *o)
{
    size_t at = registry_lower_bound(r, o->s.started_real_ms, o->s.id);
    struct sandbox_obj **b = bucket_of(r, o->s.id);

    assert(at < r->n && r->order[at] == o);
    r->n--;
    memmove(&r->order[at], &r->order[at + 1], (r->n - at) * sizeof(struct sandbox_obj *));
    while (*b != o)
        b = &(*b)->hash_next;
    *b = o->hash_next;
    o->hash_next = NULL;
}

void registry_move(struct registry *r, struct sandbox_obj *o, int64_t started_real_ms)
{
    registry_remove(r, o);
    o->s.started_real_ms = started_real_ms;
    insert(r, o);
}

struct sandbox_obj *registry_find(const struct registry *r, const char *id)
{
    if (!r->bucket_count)
        return NULL;
    for (struct sandbox_obj *o = *bucket_of(r, id); o; o = o->hash_next)
        if (strcmp(o->s.id, id) == 0)
            return o;
    return NULL;
}
