#include "contract/proto.h"

#include "base/limit_range.h"
#include "base/util.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#define MIB (1ull << 20)

static const char *const stage_names[PRIVSEP_STAGE_COUNT] = {
    [PRIVSEP_STAGE_NONE] = "none",
    [PRIVSEP_STAGE_PERMIT] = "permit",
    [PRIVSEP_STAGE_TEMPLATE] = "template",
    [PRIVSEP_STAGE_SLOT] = "slot",
    [PRIVSEP_STAGE_LAYER] = "layer",
    [PRIVSEP_STAGE_CGROUP] = "cgroup",
    [PRIVSEP_STAGE_NAMESPACES] = "namespaces",
    [PRIVSEP_STAGE_NETWORK] = "network",
    [PRIVSEP_STAGE_MOUNTS] = "mounts",
    [PRIVSEP_STAGE_SECCOMP] = "seccomp",
    [PRIVSEP_STAGE_EXEC] = "exec",
    [PRIVSEP_STAGE_READY] = "ready",
    [PRIVSEP_STAGE_LEVEL] = "level",
    [PRIVSEP_STAGE_VOLUME] = "volume",
    [PRIVSEP_STAGE_MEMORY] = "memory",
    [PRIVSEP_STAGE_ARCHIVE] = "archive",
};

static const struct {
    uint32_t op;
    const char *name;
} op_names[] = {
    {PRIVSEP_HELLO, "hello"},
    {PRIVSEP_CREATE, "create"},
    {PRIVSEP_KILL, "kill"},
    {PRIVSEP_CONNECT, "connect"},
    {PRIVSEP_STAT, "stat"},
    {PRIVSEP_LIST, "list"},
    {PRIVSEP_TEMPLATES, "templates"},
    {PRIVSEP_JOB, "job"},
    {PRIVSEP_CAPACITY, "capacity"},
    {PRIVSEP_COMMAND_SANDBOX, "command_sandbox"},
    {PRIVSEP_COMMAND_SANDBOX_END, "command_sandbox_end"},
    {PRIVSEP_FREEZE, "freeze"},
    {PRIVSEP_THAW, "thaw"},
    {PRIVSEP_KEEP, "keep"},
    {PRIVSEP_DROP, "drop"},
    {PRIVSEP_KEPTS, "kepts"},
    {PRIVSEP_COPY, "copy"},
    {PRIVSEP_VOLUME_MAKE, "volume_make"},
    {PRIVSEP_VOLUME_REMOVE, "volume_remove"},
    {PRIVSEP_VOLUMES, "volumes"},
    {PRIVSEP_RESIZE, "resize"},
    {PRIVSEP_DUMP, "dump"},
    {PRIVSEP_ARCHIVE, "archive"},
    {PRIVSEP_ARCHIVE_STOP, "archive_stop"},
    {PRIVSEP_FETCH, "fetch"},
    {PRIVSEP_EXPORT, "export"},
    {PRIVSEP_IMPORT, "import"},
    {PRIVSEP_KEPT, "kept"},
    {PRIVSEP_VOLUME, "volume"},
    {PRIVSEP_ITEM, "item"},
    {PRIVSEP_TEMPLATE, "template"},
    {PRIVSEP_ENDED, "ended"},
    {PRIVSEP_PROGRESS, "progress"},
    {PRIVSEP_EGRESS_OPEN, "egress_open"},
    {PRIVSEP_EGRESS_KEEP, "egress_keep"},
    {PRIVSEP_EGRESS_SYNC, "egress_sync"},
    {PRIVSEP_EGRESS_CLOSE, "egress_close"},
};

_Static_assert(PRIVSEP_REQUEST_COUNT == 28, "a new request: give it a name in op_names");

static const char *const level_names[PRIVSEP_LEVEL_COUNT] = {
    [PRIVSEP_LEVEL_PROCESS] = "process",
    [PRIVSEP_LEVEL_GVISOR] = "gvisor",
    [PRIVSEP_LEVEL_VM] = "vm",
};
_Static_assert(PRIVSEP_LEVEL_COUNT == 3, "a new level: give it a name in level_names");

const char *privsep_level_name(uint32_t level)
{
    return level < PRIVSEP_LEVEL_COUNT ? level_names[level] : "unknown";
}

int privsep_level_from_name(const char *name)
{
    for (int i = 0; i < PRIVSEP_LEVEL_COUNT; i++)
        if (strcmp(name, level_names[i]) == 0)
            return i;
    return -EINVAL;
}

const char *privsep_stage_name(uint32_t stage)
{
    return stage < PRIVSEP_STAGE_COUNT ? stage_names[stage] : "unknown";
}

const char *privsep_op_name(uint32_t op)
{
    for (size_t i = 0; i < ARRAY_SIZE(op_names); i++)
        if (op_names[i].op == op)
            return op_names[i].name;
    return "unknown";
}

static bool is_event(uint32_t op)
{
    return op == PRIVSEP_ITEM || op == PRIVSEP_TEMPLATE || op == PRIVSEP_ENDED ||
           op == PRIVSEP_PROGRESS || op == PRIVSEP_KEPT || op == PRIVSEP_VOLUME ||
           op == PRIVSEP_EGRESS_OPEN || op == PRIVSEP_EGRESS_KEEP || op == PRIVSEP_EGRESS_SYNC ||
           op == PRIVSEP_EGRESS_CLOSE;
}

static bool is_request(uint32_t op)
{
    return op >= PRIVSEP_HELLO && op < PRIVSEP_REQUEST_COUNT;
}

bool privsep_are_sizes(uint64_t memory_bytes, uint64_t disk_bytes, uint32_t cpu_milli)
{
    return memory_bytes >= 16 * MIB && memory_bytes <= LIMIT_MEMORY_MAX && disk_bytes >= MIB &&
           disk_bytes <= LIMIT_DISK_MAX && cpu_milli >= LIMIT_CPU_MIN && cpu_milli <= LIMIT_CPU_MAX;
}

bool privsep_request_is_sound(const void *bytes, size_t n, size_t fds)
{
    const struct privsep_msg *m = bytes;

    return n == sizeof(*m) && fds == 0 && m->version == PRIVSEP_VERSION && m->fds == 0 &&
           m->seq != 0 && is_request(m->op);
}

bool privsep_answer_is_sound(const void *bytes, size_t n, size_t fds)
{
    const struct privsep_msg *m = bytes;

    if (n != sizeof(*m) || m->version != PRIVSEP_VERSION || m->fds != fds || fds > PRIVSEP_MAX_FDS)
        return false;
    if (m->seq == 0)
        return is_event(m->op) && fds == (m->op == PRIVSEP_EGRESS_OPEN ? PRIVSEP_EGRESS_FDS : 0);
    return is_request(m->op) && m->status <= 0;
}

/* From 6.9 on frees can wait for each other for good; the queue has 256 workers for a processor,
 * from 6.15 on 1,024. */
uint32_t privsep_filters_sandboxes_of(unsigned major, unsigned minor)
{
    unsigned version = major * 1000 + minor;

    return version < 6009 ? PRIVSEP_FILTERS_SANDBOXES : version < 6015 ? 1 : 6;
}

uint32_t privsep_filters_sandboxes(void)
{
    struct utsname u;
    unsigned major = 0, minor = 0;

    /* A version that cannot be read counts as one with the fault. */
    if (uname(&u) < 0 || sscanf(u.release, "%u.%u", &major, &minor) != 2)
        return 1;
    return privsep_filters_sandboxes_of(major, minor);
}
