#include "base/share.h"

#include "base/fnv.h"
#include "base/util.h"

#include <stdint.h>
#include <string.h>

#define BUCKETS 256u

/* A tenant, or an owner below one. */
struct share {
    struct share_pool *pool;
    struct share *parent, *next; /* the tenant, or NULL; of the same bucket */
    size_t used;
    uint32_t hash;
    char name[];
};

struct share_pool {
    size_t max, used;
    struct share *buckets[BUCKETS];
};

struct share_pool *share_pool_new(size_t max)
{
    struct share_pool *p = calloc(1, sizeof(*p));

    if (p)
        p->max = max;
    return p;
}

void share_pool_free(struct share_pool *p)
{
    free(p);
}

/* Names are made by cay (tenants, ids of sandboxes) or are addresses: a flood of one bucket
 * costs no more than the pool has places. */
static uint32_t hash_of(const struct share *parent, const char *name)
{
    uint32_t h = fnv_32(parent ? parent->hash : FNV_32_START, name);

    return fnv_32_byte(h, 0xff); /* so that no two names run into one another */
}

static struct share *find(const struct share_pool *p, const struct share *parent, const char *name)
{
    struct share *s = p->buckets[hash_of(parent, name) % BUCKETS];

    while (s && (s->parent != parent || strcmp(s->name, name) != 0))
        s = s->next;
    return s;
}

static struct share *make(struct share_pool *p, struct share *parent, const char *name)
{
    struct share *s = calloc(1, sizeof(*s) + strlen(name) + 1), **bucket;

    if (!s)
        return NULL;
    s->pool = p;
    s->parent = parent;
    s->hash = hash_of(parent, name);
    memcpy(s->name, name, strlen(name) + 1);
    bucket = &p->buckets[s->hash % BUCKETS];
    s->next = *bucket;
    *bucket = s;
    return s;
}

static void drop_unused(struct share *s)
{
    struct share **at = &s->pool->buckets[s->hash % BUCKETS];

    if (s->used > 0)
        return;
    while (*at != s)
        at = &(*at)->next;
    *at = s->next;
    free(s);
}

bool share_leaves_space(size_t max, size_t used, size_t held)
{
    return used < max && max - used > held;
}

bool share_has_more_than(const struct share_pool *p, size_t held)
{
    return share_leaves_space(p->max, p->used, held);
}

static bool fits(const struct share_pool *p, const struct share *tenant, const struct share *owner)
{
    return share_leaves_space(p->max, p->used,
                              (tenant ? tenant->used : 0) + (owner ? owner->used : 0));
}

bool share_may_take(const struct share_pool *p, const char *tenant, const char *owner)
{
    const struct share *t = find(p, NULL, tenant);

    return fits(p, t, t && owner ? find(p, t, owner) : NULL);
}

struct share *share_take(struct share_pool *p, const char *tenant, const char *owner)
{
    struct share *t, *s;

    if (!share_may_take(p, tenant, owner))
        return NULL;
    t = find(p, NULL, tenant);
    if (!t)
        t = make(p, NULL, tenant);
    if (!t)
        return NULL;
    s = owner ? find(p, t, owner) : t;
    if (!s)
        s = make(p, t, owner);
    if (!s) {
        drop_unused(t);
        return NULL;
    }
    s->used++;
    if (s != t)
        t->used++;
    p->used++;
    return s;
}

struct share *share_take_as(struct share_pool *p, const struct share *like)
{
    const struct share *tenant = like->parent;

    return tenant ? share_take(p, tenant->name, like->name) : share_take(p, like->name, NULL);
}

void share_return(struct share *s)
{
    struct share *tenant;

    if (!s)
        return;
    tenant = s->parent;
    s->pool->used--;
    s->used--;
    drop_unused(s);
    if (tenant) {
        tenant->used--;
        drop_unused(tenant);
    }
}

size_t share_used(const struct share_pool *p)
{
    return p->used;
}

size_t share_held(const struct share_pool *p, const char *tenant, const char *owner)
{
    const struct share *t = find(p, NULL, tenant), *s = t && owner ? find(p, t, owner) : t;

    return s ? s->used : 0;
}

bool share_is_of(const struct share *s, const char *tenant, const char *owner)
{
    const struct share *t = s->parent ? s->parent : s;

    if (strcmp(t->name, tenant) != 0)
        return false;
    return !owner || (s != t && strcmp(s->name, owner) == 0);
}

size_t share_count(const struct share *s)
{
    return s->used;
}
