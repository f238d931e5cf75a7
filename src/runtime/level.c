/* The table of isolation levels. */

#include "runtime/level.h"

#include <errno.h>
#include <stdio.h>

/* A function that a level lacks does not compile here; one that is new does not before each level
 * has it, or `absent`'s in its place. */
#define LEVEL(probe_of, p)                                                                    \
    {                                                                                         \
        .name = #probe_of, .probe = probe_of##_probe, .slot_begin = p##_slot_begin,           \
        .slot_finish = p##_slot_finish, .slot_close = p##_slot_close,                         \
        .start_begin = p##_start_begin, .start_finish = p##_start_finish,                     \
        .files_begin = p##_files_begin, .files_finish = p##_files_finish, .claim = p##_claim, \
        .sockets = p##_sockets, .listeners = p##_listeners, .stat = p##_stat,                 \
        .resize_begin = p##_resize_begin, .resize_finish = p##_resize_finish,                 \
        .freeze = p##_freeze, .is_frozen = p##_is_frozen, .thaw = p##_thaw, .kill = p##_kill, \
        .notify_resumed = p##_notify_resumed, .dump_begin = p##_dump_begin,                   \
        .dump_finish = p##_dump_finish, .kill_cost = p##_kill_cost, .pin = p##_pin,           \
        .reap = p##_reap, .was_oom = p##_was_oom, .copy_begin = p##_copy_begin,               \
        .copy_settle_begin = p##_copy_settle_begin, .copy_finish = p##_copy_finish,           \
        .end_begin = p##_end_begin, .end_finish = p##_end_finish,                             \
        .command_sandbox_begin = p##_command_sandbox_begin,                                   \
        .command_sandbox_finish = p##_command_sandbox_finish,                                 \
        .command_sandbox_kill = p##_command_sandbox_kill,                                     \
        .command_sandboxes_kill = p##_command_sandboxes_kill,                                 \
        .command_sandboxes_kill_unfinished = p##_command_sandboxes_kill_unfinished,           \
        .program_pids = p##_program_pids, .program_signal = p##_program_signal,               \
        .notify_locks = p##_notify_locks, .adopt = p##_adopt, .living = p##_living            \
    }
_Static_assert(sizeof(struct runtime_driver) == 41 * sizeof(void (*)(void)),
               "a new function of the driver table: add it to LEVEL, and to each level");

static int gvisor_probe(struct runtime *rt, char *why, size_t why_size)
{
    snprintf(why, why_size, "this build has no driver for the isolation level gvisor");
    return -EOPNOTSUPP;
}

static int vm_probe(struct runtime *rt, char *why, size_t why_size)
{
    snprintf(why, why_size, "this build has no driver for the isolation level vm");
    return -EOPNOTSUPP;
}

static const struct runtime_driver drivers[] = {
    [PRIVSEP_LEVEL_PROCESS] = LEVEL(process, process),
    [PRIVSEP_LEVEL_GVISOR] = LEVEL(gvisor, absent),
    [PRIVSEP_LEVEL_VM] = LEVEL(vm, absent),
};
_Static_assert(ARRAY_SIZE(drivers) == PRIVSEP_LEVEL_COUNT, "one row for each level");

const struct runtime_driver *runtime_driver(uint32_t level)
{
    return level < ARRAY_SIZE(drivers) ? &drivers[level] : NULL;
}
