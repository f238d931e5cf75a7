#include "core/quota.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/build.h"
#include "core/core_internal.h"
#include "core/store_quota.h"
#include "core/tenant.h"

#include <string.h>

#define RATE  (-1) /* of creates */
#define NAMES (-2) /* of templates */

/* The resource of the account that counts, and advice to the caller. */
static const struct {
    const char *name;
    int resource; /* enum tenant_resource, or one of those below */
    const char *advice;
} table[] = {
    [QUOTA_SANDBOXES] = {"sandboxes", TENANT_SANDBOXES, "end some that are not needed"},
    [QUOTA_CREATED_PER_MINUTE] = {"createdPerMinute", RATE, "wait for a minute"},
    [QUOTA_CPU_MILLI] = {"cpuMilli", TENANT_CPU_MILLI, "ask for less, or end some sandboxes"},
    [QUOTA_MEMORY_BYTES] = {"memoryBytes", TENANT_MEMORY_BYTES,
                            "ask for less, or end some sandboxes"},
    [QUOTA_DISK_BYTES] = {"diskBytes", TENANT_DISK_BYTES, "ask for less, or end some sandboxes"},
    [QUOTA_PAUSED] = {"paused", TENANT_PAUSED, "end or resume some that are paused"},
    [QUOTA_SNAPSHOTS] = {"snapshots", TENANT_SNAPSHOTS, "remove some that are not needed"},
    [QUOTA_VOLUMES] = {"volumes", TENANT_VOLUMES, "remove some that are not needed"},
    [QUOTA_TEMPLATES] = {"templates", NAMES, "delete some that are not needed"},
    [QUOTA_TEMPLATE_BYTES] = {"templateBytes", TENANT_TEMPLATE_BYTES,
                              "delete templates that were built on images"},
};

_Static_assert(ARRAY_SIZE(table) == QUOTA_COUNT, "each quota is in the table");

const char *quota_name(enum quota q)
{
    return table[q].name;
}

int quota_from(const char *name)
{
    for (int i = 0; i < QUOTA_COUNT; i++)
        if (strcmp(table[i].name, name) == 0)
            return i;
    return -1;
}

/* -- what a tenant has ------------------------------------------------------------------------- */

static void take_row(void *arg, const char *name, int64_t most)
{
    struct quotas *q = arg;
    int i = quota_from(name);

    if (i >= 0)
        q->most[i] = most;
}

/* Nothing is permitted while they cannot be read. */
static enum err_code know(struct tenant *t, struct err *e)
{
    struct quotas *q = &t->quotas;
    enum err_code code;

    if (q->known)
        return ERR_OK;
    for (int i = 0; i < QUOTA_COUNT; i++)
        q->most[i] = QUOTA_NONE;
    code = store_quota_each(t->core->store, t->name, take_row, q, e);
    q->known = code == ERR_OK;
    return code;
}

static int64_t used(struct tenant *t, enum quota q)
{
    if (table[q].resource == NAMES)
        return (int64_t)builds_count_names(t->core, t->name);
    if (table[q].resource == RATE)
        return quota_rate_sum(&t->quotas.creates, clock_mono_ms() / 1000);
    return (int64_t)t->charged[table[q].resource];
}

static enum err_code check(struct tenant *t, enum quota q, uint64_t more, struct err *e)
{
    int64_t most = t->quotas.most[q], held = used(t, q);

    if (most == QUOTA_NONE || more == 0 ||
        (held <= most && more <= (uint64_t)most && (int64_t)more <= most - held))
        return ERR_OK;
    err_set(e, ERR_EXHAUSTED,
            "the quota %s of tenant %s is %lld, of which %lld are used: this needs %llu more",
            table[q].name, t->name, (long long)most, (long long)held, (unsigned long long)more);
    err_hint(e, "%s; the operator raises it with `cay tenant quota %s %s=N`", table[q].advice,
             t->name, table[q].name);
    return ERR_EXHAUSTED;
}

enum err_code quota_take_create(struct tenant *t, const struct privsep_limits *l, struct err *e)
{
    const uint64_t more[QUOTA_COUNT] = {[QUOTA_SANDBOXES] = 1,
                                        [QUOTA_CREATED_PER_MINUTE] = 1,
                                        [QUOTA_CPU_MILLI] = l->cpu_milli,
                                        [QUOTA_MEMORY_BYTES] = l->memory_bytes,
                                        [QUOTA_DISK_BYTES] = l->disk_bytes};
    enum err_code code = know(t, e);

    for (int i = 0; code == ERR_OK && i < QUOTA_COUNT; i++)
        code = check(t, (enum quota)i, more[i], e);
    if (code != ERR_OK)
        return code;
    quota_rate_add(&t->quotas.creates, clock_mono_ms() / 1000);
    tenant_usage_begin(t);
    return ERR_OK;
}

static uint64_t growth(uint64_t from, uint64_t to)
{
    return to > from ? to - from : 0;
}

enum err_code quota_check_resize(struct tenant *t, const struct privsep_limits *from,
                                 const struct privsep_limits *to, struct err *e)
{
    enum err_code code = know(t, e);

    if (code == ERR_OK)
        code = check(t, QUOTA_CPU_MILLI, growth(from->cpu_milli, to->cpu_milli), e);
    if (code == ERR_OK)
        code = check(t, QUOTA_MEMORY_BYTES, growth(from->memory_bytes, to->memory_bytes), e);
    if (code == ERR_OK)
        code = check(t, QUOTA_DISK_BYTES, growth(from->disk_bytes, to->disk_bytes), e);
    return code;
}

enum err_code quota_check_pause(struct tenant *t, struct err *e)
{
    enum err_code code = know(t, e);

    return code == ERR_OK ? check(t, QUOTA_PAUSED, 1, e) : code;
}

enum err_code quota_check_snapshot(struct tenant *t, struct err *e)
{
    enum err_code code = know(t, e);

    return code == ERR_OK ? check(t, QUOTA_SNAPSHOTS, 1, e) : code;
}

/* Its size is disk as that of a sandbox is. */
enum err_code quota_check_volume(struct tenant *t, uint64_t bytes, struct err *e)
{
    enum err_code code = know(t, e);

    if (code == ERR_OK)
        code = check(t, QUOTA_VOLUMES, 1, e);
    return code == ERR_OK ? check(t, QUOTA_DISK_BYTES, bytes, e) : code;
}

enum err_code quota_check_template(struct tenant *t, struct err *e)
{
    enum err_code code = know(t, e);

    return code == ERR_OK ? check(t, QUOTA_TEMPLATES, 1, e) : code;
}

enum err_code quota_check_template_bytes(struct tenant *t, uint64_t more, struct err *e)
{
    enum err_code code = know(t, e);
    int64_t most = t->quotas.most[QUOTA_TEMPLATE_BYTES], held;

    if (code != ERR_OK || more > 0)
        return code == ERR_OK ? check(t, QUOTA_TEMPLATE_BYTES, more, e) : code;
    held = used(t, QUOTA_TEMPLATE_BYTES);
    if (most == QUOTA_NONE || held <= most)
        return ERR_OK;
    err_set(e, ERR_EXHAUSTED, "the quota %s of tenant %s is %lld: with it %lld are used",
            table[QUOTA_TEMPLATE_BYTES].name, t->name, (long long)most, (long long)held);
    err_hint(e, "%s; the operator raises it with `cay tenant quota`",
             table[QUOTA_TEMPLATE_BYTES].advice);
    return ERR_EXHAUSTED;
}

/* -- calls ------------------------------------------------------------------------------------- */

/* A reference; NULL with e. */
static struct tenant *get(struct core *c, const char *name, struct err *e)
{
    struct tenant *t = tenant_check_made(c, name, e) == ERR_OK ? tenant_get(c, name) : NULL;

    if (!t && e->code == ERR_OK)
        err_set(e, ERR_UNAVAILABLE, "memory is out");
    return t;
}

enum err_code core_tenant_quotas(struct core *c, const char *tenant, struct core_quotas *out,
                                 struct err *e)
{
    struct tenant *t;
    enum err_code code;

    e->code = ERR_OK;
    t = get(c, tenant, e);
    if (!t)
        return e->code;
    code = know(t, e);
    for (int i = 0; code == ERR_OK && i < QUOTA_COUNT; i++) {
        out->most[i] = t->quotas.most[i];
        out->used[i] = used(t, (enum quota)i);
    }
    tenant_unref(t);
    return code;
}

static enum err_code set(struct tenant *t, const int64_t *most, const bool *given, struct err *e)
{
    enum err_code code = know(t, e);

    for (int i = 0; code == ERR_OK && i < QUOTA_COUNT; i++)
        if (given[i])
            code = store_quota_put(t->core->store, t->name, table[i].name, most[i], e);
    if (code != ERR_OK) {
        t->quotas.known = false; /* as the store has them, some perhaps */
        return code;
    }
    for (int i = 0; i < QUOTA_COUNT; i++) {
        if (!given[i])
            continue;
        t->quotas.most[i] = most[i];
        if (most[i] < 0)
            log_info("tenant %s: it has no quota %s now", t->name, table[i].name);
        else
            log_info("tenant %s: its quota %s is %lld now", t->name, table[i].name,
                     (long long)most[i]);
    }
    return ERR_OK;
}

enum err_code core_tenant_set_quotas(struct core *c, const char *tenant,
                                     const int64_t most[static QUOTA_COUNT],
                                     const bool given[static QUOTA_COUNT], struct err *e)
{
    struct tenant *t;
    enum err_code code;

    e->code = ERR_OK;
    t = get(c, tenant, e);
    code = t ? set(t, most, given, e) : e->code;
    tenant_unref(t);
    return code;
}
