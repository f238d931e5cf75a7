#include "core/limit.h"

#include "base/limit_range.h"

#include <inttypes.h>
#include <stdio.h>

static const struct range {
    const char *name, *unit;
    bool bytes;
    uint64_t min, max;
} ranges[CORE_LIMIT_COUNT] = {
    [CORE_LIMIT_MEMORY] = {"memoryBytes", "bytes", true, LIMIT_MEMORY_MIN, LIMIT_MEMORY_MAX},
    [CORE_LIMIT_DISK] = {"diskBytes", "bytes", true, LIMIT_DISK_MIN, LIMIT_DISK_MAX},
    [CORE_LIMIT_CPU] = {"cpuMilli", "thousandths of a processor", false, LIMIT_CPU_MIN,
                        LIMIT_CPU_MAX},
    [CORE_LIMIT_PIDS] = {"pids", "processes", false, LIMIT_PIDS_MIN, LIMIT_PIDS_MAX},
};

const char *core_limit_name(enum core_limit limit)
{
    return ranges[limit].name;
}

uint64_t core_limit_min(enum core_limit limit)
{
    return ranges[limit].min;
}

/* The largest unit of which it is whole; one that is whole of none is whole in bytes alone. */
static void put_bytes(uint64_t value, char out[static 32])
{
    static const char *const units[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    size_t i = 0;

    while (i + 1 < ARRAY_SIZE(units) && value != 0 && value % 1024 == 0) {
        value /= 1024;
        i++;
    }
    (void)snprintf(out, 32, "%" PRIu64 " %s", value, units[i]);
}

void core_limit_text(enum core_limit limit, uint64_t value, char out[static CORE_LIMIT_TEXT])
{
    const struct range *r = &ranges[limit];
    char whole[32];

    put_bytes(value, whole);
    if (r->bytes && value != 0 && value % 1024 == 0)
        (void)snprintf(out, CORE_LIMIT_TEXT, "%" PRIu64 " %s (%s)", value, r->unit, whole);
    else
        (void)snprintf(out, CORE_LIMIT_TEXT, "%" PRIu64 " %s", value, r->unit);
}

enum err_code core_limit_check(enum core_limit limit, int64_t value, bool or_zero, struct err *e)
{
    const struct range *r = &ranges[limit];
    char from[32], to[32], both[72] = "";

    if ((or_zero && value == 0) ||
        (value > 0 && (uint64_t)value >= r->min && (uint64_t)value <= r->max))
        return ERR_OK;
    put_bytes(r->min, from);
    put_bytes(r->max, to);
    if (r->bytes)
        (void)snprintf(both, sizeof(both), " (%s to %s)", from, to);
    return err_set(e, ERR_INVALID,
                   "%s: found %" PRId64 ", allowed are %" PRIu64 " to %" PRIu64 " %s%s%s", r->name,
                   value, r->min, r->max, r->unit, both,
                   or_zero ? ", or 0 for the server's own" : "");
}
