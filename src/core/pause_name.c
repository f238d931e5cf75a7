/* Clients' words for a pause: why, and what of the sandbox is kept. */

#include "core/core.h"
#include "core/life.h"

static const char *const reasons[] = {
    [SANDBOX_PAUSE_NONE] = "",
    [SANDBOX_PAUSE_API] = "api",
    [SANDBOX_PAUSE_TIMEOUT] = "timeout",
    [SANDBOX_PAUSE_IDLE] = "idle",
};

_Static_assert(ARRAY_SIZE(reasons) == SANDBOX_PAUSE_REASON_COUNT, "each reason has a word");

const char *core_pause_reason_name(enum sandbox_pause_reason reason)
{
    return (size_t)reason < ARRAY_SIZE(reasons) ? reasons[reason] : "";
}

const char *core_pause_tier_name(const struct sandbox *s)
{
    const struct life *life = life_of(s->state);

    if (life->group != LIFE_GROUP_PAUSED)
        return "";
    return life->files ? "files" : "frozen";
}
