#include "agent/process/output_rate.h"

#include "base/util.h"

#define TURNS_PER_SECOND 128
#define TURN_BYTES_MIN   (32 * 1024)

void output_rate_set(struct output_rate *r, uint64_t bytes_per_second, uint64_t now_ms)
{
    *r = (struct output_rate){bytes_per_second, (int64_t)bytes_per_second, now_ms};
}

static void refill(struct output_rate *r, uint64_t now_ms)
{
    uint64_t passed_ms = now_ms > r->at_ms ? now_ms - r->at_ms : 0;
    int64_t full = (int64_t)r->bytes_per_second;

    r->at_ms = now_ms;
    if (passed_ms >= 60000) /* no product that is too large; a debt is at most one drained pipe's */
        r->left_bytes = full;
    else
        r->left_bytes = MIN(full,
                            r->left_bytes + (int64_t)(passed_ms * r->bytes_per_second / 1000));
}

bool output_rate_allows(struct output_rate *r, uint64_t now_ms)
{
    if (r->bytes_per_second == 0)
        return true;
    refill(r, now_ms);
    return r->left_bytes > 0;
}

void output_rate_charge(struct output_rate *r, uint64_t bytes)
{
    if (r->bytes_per_second > 0)
        r->left_bytes -= (int64_t)bytes;
}

uint64_t output_rate_wait_ms(const struct output_rate *r)
{
    int64_t turn = MAX((int64_t)(r->bytes_per_second / TURNS_PER_SECOND), (int64_t)TURN_BYTES_MIN);
    int64_t short_of = MIN(turn, (int64_t)r->bytes_per_second) - r->left_bytes;

    if (r->bytes_per_second == 0 || short_of <= 0)
        return 1;
    return (uint64_t)short_of * 1000 / r->bytes_per_second + 1;
}
