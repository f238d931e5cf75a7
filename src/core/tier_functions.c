/* The tiers of a pause: the part of their table that is functions. */

#include "core/freeze.h"
#include "core/keep.h"
#include "core/tier.h"

/* A new function does not compile before both sets have it. */
#define ROW(tier, name, memory, or_files, p)       \
    [SANDBOX_TIER_##tier] = {.check = p##_check,   \
                             .begin = p##_begin,   \
                             .go_on = p##_go_on,   \
                             .resume = p##_resume, \
                             .on_timer = p##_on_timer},
_Static_assert(sizeof(struct tier_functions) == 5 * sizeof(void (*)(void)),
               "a new function of the table of tiers: add it to ROW, and to each set");

const struct tier_functions tier_functions_table[] = {TIERS(ROW)};
_Static_assert(ARRAY_SIZE(tier_functions_table) == SANDBOX_TIER_COUNT, "one row for each tier");
