#include "core/tenant.h"

#include "base/clock.h"
#include "base/fnv.h"
#include "base/log.h"
#include "core/core_internal.h"
#include "core/store_tenant.h"
#include "core/timers.h"

#include <assert.h>
#include <string.h>

#define USAGE_EVERY_MS 60000u
#define HOUR_MS        3600000
#define MIB            (1024u * 1024u)

/* The operator makes the names. */
static struct tenant **bucket_of(struct tenants *all, const char *name)
{
    return &all->buckets[fnv_32(FNV_32_START, name) % TENANT_BUCKETS];
}

uint32_t tenant_privd_account(const char *name)
{
    return fnv_32(FNV_32_START, name) | 1; /* 0 is the account of all who name none */
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

size_t core_tenant_sandboxes(struct core *c, const char *tenant)
{
    return tenant_held(c, tenant, TENANT_SANDBOXES);
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
    tenant_settings_free(&t->settings);
    free(t);
}

/* -- usage ------------------------------------------------------------------------------------- */

void tenant_usage_arm(struct core *c, bool often)
{
    int64_t now_ms = clock_real_ms(), left_ms = HOUR_MS - now_ms % HOUR_MS;
    uint64_t most_ms = often ? USAGE_EVERY_MS : HOUR_MS;

    c->usage_hour_ms = now_ms / HOUR_MS * HOUR_MS;
    c->usage_often = often;
    timers_set(&c->timers, &c->usage_due, clock_mono_ms() + MIN(most_ms, (uint64_t)left_ms));
}

void tenant_usage_begin(struct tenant *t)
{
    struct core *c = t->core;

    if (c->stopping)
        return;
    if (!t->usage_pending)
        tenant_ref(t);
    t->usage_pending = true;
    if (!timer_armed(&c->usage_due) || !c->usage_often)
        tenant_usage_arm(c, true);
}

void tenant_settle(struct tenant *t)
{
    uint64_t now_ms = clock_mono_ms(), ms = t->settled_ms ? now_ms - t->settled_ms : 0;

    t->settled_ms = now_ms;
    t->usage[USAGE_SANDBOX_MS] += t->charged[TENANT_SANDBOXES] * ms;
    t->usage[USAGE_PAUSED_MS] += t->charged[TENANT_PAUSED] * ms;
    t->usage[USAGE_CPU_MILLI_MS] += t->charged[TENANT_CPU_MILLI] * ms;
    t->usage[USAGE_MEMORY_MIB_MS] += t->charged[TENANT_MEMORY_BYTES] / MIB * ms;
    t->usage[USAGE_DISK_MIB_MS] += t->charged[TENANT_DISK_BYTES] / MIB * ms;
    t->usage[USAGE_TEMPLATE_MIB_MS] += t->charged[TENANT_TEMPLATE_BYTES] / MIB * ms;
}

void tenant_count(struct tenant *t, enum usage what)
{
    t->usage[what]++;
    tenant_usage_begin(t);
}

static bool goes_on(struct tenant *t)
{
    return t->charged[TENANT_SANDBOXES] > 0 || t->charged[TENANT_TEMPLATE_BYTES] > 0 ||
           quota_rate_sum(&t->quotas.creates, clock_mono_ms() / 1000) > 0;
}

void tenant_usage_forget(struct tenant *t)
{
    if (!t->usage_pending)
        return;
    t->usage_pending = false;
    tenant_unref(t);
}

bool tenant_usage_written(struct tenant *t)
{
    memset(t->usage, 0, sizeof(t->usage));
    t->usage[USAGE_PEAK_SANDBOXES] = t->charged[TENANT_SANDBOXES];
    if (goes_on(t))
        return true;
    tenant_usage_forget(t);
    return false;
}

enum err_code tenant_check_made(struct core *c, const char *name, struct err *e)
{
    const struct tenant *t = tenant_find(c, name);
    json_t *ceiling = NULL;
    enum err_code code = t && t->settings.ceiling_known
                             ? ERR_OK
                             : store_tenant_ceiling(c->store, name, &ceiling, e);

    json_decref(ceiling);
    return code;
}

/* -- charges ----------------------------------------------------------------------------------- */

void tenant_charge(struct tenant *t, enum tenant_resource what, uint64_t amount,
                   struct tenant_charge *ch)
{
    assert(!ch->tenant);
    if (amount == 0)
        return;
    tenant_settle(t);
    if (what < TENANT_SANDBOX_RESOURCES || what == TENANT_EXECS || what == TENANT_TEMPLATE_BYTES)
        tenant_usage_begin(t);
    *ch = (struct tenant_charge){.tenant = tenant_ref(t), .amount = amount, .what = what};
    t->charged[what] += amount;
    t->core->tenants.charged[what] += amount;
    if (what == TENANT_EXECS)
        t->usage[USAGE_COMMANDS] += amount;
    t->usage[USAGE_PEAK_SANDBOXES] = MAX(t->usage[USAGE_PEAK_SANDBOXES],
                                         t->charged[TENANT_SANDBOXES]);
}

void tenant_refund(struct tenant_charge *ch)
{
    struct tenant *t = TAKE_PTR(ch->tenant);

    if (!t)
        return;
    assert(t->charged[ch->what] >= ch->amount);
    tenant_settle(t);
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
