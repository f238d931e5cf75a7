/* The table of isolation levels. A row whose probe refuses is never used further. */

#include "runtime/internal.h"

#include <errno.h>
#include <stdio.h>

static int probe_gvisor(struct runtime *rt, char *why, size_t why_size)
{
    snprintf(why, why_size, "this build has no driver for the isolation level gvisor");
    return -EOPNOTSUPP;
}

static int probe_vm(struct runtime *rt, char *why, size_t why_size)
{
    snprintf(why, why_size, "this build has no driver for the isolation level vm");
    return -EOPNOTSUPP;
}

static const struct runtime_driver drivers[] = {
    [PRIVSEP_LEVEL_PROCESS] = {.name = "process",
                               .probe = process_probe,
                               .slot_begin = process_slot_begin,
                               .slot_finish = process_slot_finish,
                               .start_begin = process_start_begin,
                               .start_finish = process_start_finish,
                               .room_begin = process_room_begin,
                               .end_begin = process_end_begin,
                               .end_finish = process_end_finish},
    [PRIVSEP_LEVEL_GVISOR] = {.name = "gvisor", .probe = probe_gvisor},
    [PRIVSEP_LEVEL_VM] = {.name = "vm", .probe = probe_vm},
};

const struct runtime_driver *runtime_driver(uint32_t level)
{
    return level < ARRAY_SIZE(drivers) ? &drivers[level] : NULL;
}
