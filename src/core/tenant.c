#include "core/tenant.h"

#include "base/log.h"
#include "core/internal.h"

#include <assert.h>

/* FNV-1a. The operator makes the names. */
static struct tenant **bucket_of(struct tenants *all, const char *name)
{
    uint32_t h = 2166136261u;

    for (; *name; name++)
        h = (h ^ (uint8_t)*name) * 16777619u;
    return &all->buckets[h % TENANT_BUCKETS];
}

struct tenant *tenant_find(struct core *c, const char *name)
{
    struct tenant *t = *bucket_of(&c->tenants, name);

    while (t && strcmp(t->name, name) != 0)
        t = t->next;
    return t;
}

uint64_t tenant_held(struct core *c, const char *name, enum tenant_resource what)
{
    const struct tenant *t = tenant_find(c, name);

    return t ? t->charged[what] : 0;
}

struct tenant *tenant_get(struct core *c, const char *name)
{
    struct tenant **bucket = bucket_of(&c->tenants, name), *t = tenant_find(c, name);

    if (t)
        return tenant_ref(t);
    assert(strlen(name) < sizeof(t->name));
    t = calloc(1, sizeof(*t));
    if (!t)
        return NULL;
    t->core = c;
    t->refs = 1;
    memcpy(t->name, name, strlen(name));
    t->next = *bucket;
    *bucket = t;
    return t;
}

struct tenant *tenant_ref(struct tenant *t)
{
    if (t)
        t->refs++;
    return t;
}

void tenant_unref(struct tenant *t)
{
    struct tenant **at;

    if (!t)
        return;
    assert(t->refs > 0);
    if (--t->refs > 0)
        return;
    for (size_t i = 0; i < TENANT_RESOURCE_COUNT; i++)
        assert(t->charged[i] == 0); /* a charge holds a reference */
    assert(!t->sandboxes && !t->events && !t->ca);
    at = bucket_of(&t->core->tenants, t->name);
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    free(t);
}

void tenant_charge(struct tenant *t, enum tenant_resource what, uint64_t amount,
                   struct tenant_charge *ch)
{
    assert(!ch->tenant);
    if (amount == 0)
        return;
    *ch = (struct tenant_charge){.tenant = tenant_ref(t), .amount = amount, .what = what};
    t->charged[what] += amount;
    t->core->tenants.charged[what] += amount;
}

void tenant_refund(struct tenant_charge *ch)
{
    struct tenant *t = TAKE_PTR(ch->tenant);

    if (!t)
        return;
    assert(t->charged[ch->what] >= ch->amount);
    t->charged[ch->what] -= ch->amount;
    t->core->tenants.charged[ch->what] -= ch->amount;
    tenant_unref(t);
}

void tenant_recharge(struct tenant *t, enum tenant_resource what, uint64_t amount,
                     struct tenant_charge *ch)
{
    if (ch->tenant && ch->amount == amount)
        return;
    tenant_refund(ch);
    tenant_charge(t, what, amount, ch);
}

void tenants_free(struct tenants *all)
{
    for (size_t i = 0; i < TENANT_BUCKETS; i++) {
        const struct tenant *t = all->buckets[i];

        if (!t)
            continue;
        log_error("tenant %s: %u references are left", t->name, t->refs);
        abort();
    }
}
