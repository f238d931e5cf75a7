#include "core/quota_rate.h"

#include "base/util.h"

uint32_t quota_rate_sum(struct quota_rate *r, uint64_t now_s)
{
    uint64_t steps = now_s > r->last_s ? MIN(now_s - r->last_s, (uint64_t)QUOTA_SECONDS) : 0;

    for (uint64_t i = 0; i < steps; i++) {
        uint32_t *second = &r->seconds[(now_s - i) % QUOTA_SECONDS];

        r->sum -= *second;
        *second = 0;
    }
    r->last_s = MAX(r->last_s, now_s);
    return r->sum;
}

void quota_rate_add(struct quota_rate *r, uint64_t now_s)
{
    (void)quota_rate_sum(r, now_s);
    r->seconds[r->last_s % QUOTA_SECONDS]++;
    r->sum++;
}
