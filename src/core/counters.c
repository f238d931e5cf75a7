#include "core/counters.h"

#include "core/core.h"
#include "core/core_internal.h"
#include "core/sandbox.h"

#include <string.h>

static const char *const reasons[] = {"killed",        "timeout", "idle", "auto_delete",
                                      "out_of_memory", "exited",  "lost", "error",
                                      "unsupported",   "unknown", "other"};

_Static_assert(ARRAY_SIZE(reasons) <= COUNTERS_REASONS, "each reason has its counter");

const char *counters_reason(size_t i)
{
    return i < ARRAY_SIZE(reasons) ? reasons[i] : NULL;
}

void counters_ended(struct counters *n, const char *reason)
{
    size_t i = 0;

    while (i < ARRAY_SIZE(reasons) - 1 && strcmp(reasons[i], reason ? reason : "unknown") != 0)
        i++;
    n->ended[i]++;
}

const struct counters *core_counters(const struct core *c)
{
    return &c->counters;
}

size_t core_count_in(const struct core *c, enum sandbox_state state)
{
    size_t n = 0;

    for (size_t i = 0; i < c->registry.n; i++)
        n += c->registry.order[i]->s.state == state;
    return n;
}

size_t core_count_paused(const struct core *c, size_t i)
{
    size_t n = 0;

    for (size_t k = 0; k < c->registry.n; k++)
        n += strcmp(core_pause_tier_name(&c->registry.order[k]->s), core_paused_tier(i)) == 0;
    return n;
}
