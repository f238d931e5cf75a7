/* Clients' words for a pause: why, and what of the sandbox is kept. */

#include "core/core.h"
#include "core/life.h"
#include "core/sandbox.h"

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
    if (!life->files)
        return "frozen";
    return s->kept_memory ? "memory" : "files";
}

bool core_sandbox_has_memory(const struct sandbox *s)
{
    return !life_of(s->state)->files || s->kept_memory;
}

bool core_sandbox_is_stopped(const struct sandbox *s)
{
    return life_is_at_rest(s->state) && !s->kept_memory;
}

const char *core_sandbox_fell(const struct sandbox *s)
{
    return ((const struct sandbox_obj *)s)->fell.text;
}
