#include "core/usage.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/core_internal.h"
#include "core/store_quota.h"
#include "core/tenant.h"
#include "core/timers.h"

#include <string.h>

#define HOUR_MS 3600000

/* False: there is no more to be written of it for now, and t may be gone. */
static bool write_down(struct tenant *t)
{
    struct core_usage u = {.hour_real_ms = t->core->usage_hour_ms};
    struct err e;

    tenant_settle(t);
    memcpy(u.n, t->usage, sizeof(u.n));
    if (store_usage_add(t->core->store, t->name, &u, &e) == ERR_OK)
        return tenant_usage_written(t);
    log_error("tenant %s: its usage is not written yet: %s", t->name, e.text);
    return true;
}

static void purge(struct core *c)
{
    int64_t hour_ms = clock_real_ms() / HOUR_MS * HOUR_MS;
    struct err e;

    if (c->usage_purged_ms == hour_ms)
        return;
    c->usage_purged_ms = hour_ms;
    if (store_usage_purge(c->store, hour_ms - (int64_t)USAGE_HOURS_MAX * HOUR_MS, &e) != ERR_OK)
        log_error("%s", e.text);
}

static bool flush(struct core *c)
{
    bool any = false;

    for (size_t i = 0; i < TENANT_BUCKETS; i++) {
        for (struct tenant *t = c->tenants.buckets[i], *next; t; t = next) {
            next = t->next;
            any |= t->usage_pending && write_down(t);
        }
    }
    return any;
}

/* Use that spans an hour's end counts in the hour that ends: the timer fires just after it. */
void usage_on_timer(struct timer *timer)
{
    struct core *c = CONTAINER_OF(timer, struct core, usage_due);

    if (flush(c))
        tenant_usage_arm(c, c->tenants.charged[TENANT_SANDBOXES] > 0);
    purge(c);
}

void usage_stop(struct core *c)
{
    if (c->store)
        flush(c);
    for (size_t i = 0; i < TENANT_BUCKETS; i++) {
        for (struct tenant *t = c->tenants.buckets[i], *next; t; t = next) {
            next = t->next;
            tenant_usage_forget(t);
        }
    }
}

enum err_code core_tenant_usage(struct core *c, const char *tenant, int64_t from_real_ms,
                                int64_t to_real_ms,
                                void (*fn)(void *arg, const struct core_usage *u), void *arg,
                                struct err *e)
{
    enum err_code code = tenant_check_made(c, tenant, e);
    struct tenant *t = tenant_find(c, tenant);

    if (code != ERR_OK)
        return code;
    if (t && t->usage_pending)
        (void)write_down(t);
    return store_usage_each(c->store, tenant, from_real_ms, to_real_ms, fn, arg, e);
}
