/* The tiers of a pause: the part of their table that is data. */

#include "core/tier.h"

#include "core/life.h"

#include <string.h>

#define ROW(tier, name_, memory_, or_files_, prefix) \
    [SANDBOX_TIER_##tier] = {.name = name_, .memory = memory_, .or_files = or_files_},
static const struct tier tiers[] = {TIERS(ROW)};
_Static_assert(ARRAY_SIZE(tiers) == SANDBOX_TIER_COUNT, "one row for each tier");

const struct tier *tier_of(enum sandbox_tier tier)
{
    return &tiers[tier];
}

enum sandbox_tier tier_number(const struct sandbox *s)
{
    if (!life_of(s->state)->files)
        return SANDBOX_TIER_FROZEN;
    if (!s->kept_memory)
        return SANDBOX_TIER_FILES;
    return s->or_files ? SANDBOX_TIER_MEMORY_OR_FILES : SANDBOX_TIER_MEMORY;
}

const struct tier *tier_of_sandbox(const struct sandbox *s)
{
    return tier_of(tier_number(s));
}

bool core_tier_find(const char *name, bool or_files, enum sandbox_tier *out)
{
    const struct tier *found = NULL;

    for (const struct tier *t = tiers; t < tiers + ARRAY_SIZE(tiers); t++)
        if (strcmp(t->name, name) == 0 && (!found || t->or_files == or_files))
            found = t;
    if (found)
        *out = (enum sandbox_tier)(found - tiers);
    return found != NULL;
}
