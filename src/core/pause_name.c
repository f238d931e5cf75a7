/* Clients' words for a pause: why, and what of the sandbox is kept. */

#include "core/core.h"
#include "core/counters.h"
#include "core/life.h"
#include "core/sandbox.h"
#include "core/tier.h"

#define ARCHIVE "archive" /* a form of kept files; the other words are those of the tiers */

static const char *const reasons[] = {
    [SANDBOX_PAUSE_NONE] = "",           [SANDBOX_PAUSE_API] = "api",
    [SANDBOX_PAUSE_TIMEOUT] = "timeout", [SANDBOX_PAUSE_IDLE] = "idle",
    [SANDBOX_PAUSE_ERROR] = "error",
};

_Static_assert(ARRAY_SIZE(reasons) == SANDBOX_PAUSE_REASON_COUNT, "each reason has a word");

const char *core_pause_reason_name(enum sandbox_pause_reason reason)
{
    return (size_t)reason < ARRAY_SIZE(reasons) ? reasons[reason] : "";
}

const char *core_pause_tier_name(const struct sandbox *s)
{
    if (life_of(s->state)->group != LIFE_GROUP_PAUSED)
        return "";
    return s->in_archive && life_of(s->state)->files ? ARCHIVE : tier_of_sandbox(s)->name;
}

/* A tier with or_files has the word of the same without. */
const char *core_paused_tier(size_t i)
{
    for (enum sandbox_tier t = 0; t < SANDBOX_TIER_COUNT; t++)
        if (!tier_of(t)->or_files && i-- == 0)
            return tier_of(t)->name;
    return i == 0 ? ARCHIVE : NULL;
}

bool core_sandbox_has_memory(const struct sandbox *s)
{
    return tier_of_sandbox(s)->memory;
}

bool core_sandbox_is_stopped(const struct sandbox *s)
{
    return life_is_at_rest(s->state) && !tier_of_sandbox(s)->memory;
}

const char *core_sandbox_fell(const struct sandbox *s)
{
    return ((const struct sandbox_obj *)s)->fell.text;
}
