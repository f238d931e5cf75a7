#include "egress/flow/rate.h"

#include "base/clock.h"
#include "base/util.h"

static uint64_t tokens_at(const struct rate *r, uint32_t per_second, uint32_t burst, uint64_t now)
{
    uint64_t full = (uint64_t)burst * 1000;

    if (r->at_ms == 0 || r->per_second != per_second)
        return full;
    return MIN(full, r->tokens_milli + (now - r->at_ms) * per_second);
}

uint32_t rate_left(const struct rate *r, uint32_t per_second)
{
    return per_second == 0
               ? UINT32_MAX
               : (uint32_t)(tokens_at(r, per_second, per_second, clock_mono_ms()) / 1000);
}

bool rate_take_burst(struct rate *r, uint32_t per_second, uint32_t burst)
{
    uint64_t now = clock_mono_ms();

    if (per_second == 0)
        return true;
    r->tokens_milli = tokens_at(r, per_second, burst, now);
    r->per_second = per_second;
    r->at_ms = now;
    if (r->tokens_milli < 1000)
        return false;
    r->tokens_milli -= 1000;
    return true;
}

bool rate_take(struct rate *r, uint32_t per_second)
{
    return rate_take_burst(r, per_second, per_second);
}
