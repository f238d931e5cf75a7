#include "privd/permit.h"

#include "base/util.h"

#include <errno.h>
#include <string.h>

#define KIB 1024ull
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

/* For all but its end: a sandbox that runs, and no other. */
#define WHILE_IT_RUNS                                                            \
    {                                                                            \
        [SLOT_EMPTY] = -ESTALE, [SLOT_MAKING] = -ESTALE, [SLOT_READY] = -ESTALE, \
        [SLOT_STARTING] = -EBUSY, [SLOT_RUNNING] = 0, [SLOT_KILLING] = -ESTALE,  \
        [SLOT_ENDING] = -ESTALE                                                  \
    }

/* What a sandbox's state answers to an operation that names it; 0 is "allowed". Operations without a
 * row name no sandbox. An ended sandbox is stale for good: its generation never comes back. */
static const int state_table[PRIVSEP_REQUEST_COUNT][SLOT_STATE_COUNT] = {
    [PRIVSEP_KILL] = {[SLOT_EMPTY] = -ESTALE,
                      [SLOT_MAKING] = -ESTALE,
                      [SLOT_READY] = -ESTALE,
                      [SLOT_STARTING] = -EBUSY,
                      [SLOT_RUNNING] = 0,
                      [SLOT_KILLING] = 0,
                      [SLOT_ENDING] = 0},
    [PRIVSEP_CONNECT] = WHILE_IT_RUNS,
    [PRIVSEP_STAT] = WHILE_IT_RUNS,
    [PRIVSEP_ROOM] = WHILE_IT_RUNS,
    [PRIVSEP_ROOM_END] = WHILE_IT_RUNS,
};

bool permit_needs_sandbox(uint16_t op)
{
    return op == PRIVSEP_KILL || op == PRIVSEP_CONNECT || op == PRIVSEP_STAT ||
           op == PRIVSEP_ROOM || op == PRIVSEP_ROOM_END;
}

int permit_state(const struct privsep_msg *m, enum slot_state state, uint32_t gen)
{
    if (!permit_needs_sandbox(m->op) || state >= SLOT_STATE_COUNT)
        return -EPROTO;
    if (m->gen != gen)
        return -ESTALE;
    return state_table[m->op][state];
}

/* [a-z0-9]{1,31}, then only NULs: it becomes a host name. */
static bool is_id(const char id[static PRIVSEP_ID_SIZE])
{
    size_t n = strnlen(id, PRIVSEP_ID_SIZE);

    if (n == 0 || n == PRIVSEP_ID_SIZE)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!((id[i] >= 'a' && id[i] <= 'z') || (id[i] >= '0' && id[i] <= '9')))
            return false;
    for (size_t i = n; i < PRIVSEP_ID_SIZE; i++)
        if (id[i] != '\0')
            return false;
    return true;
}

static bool within(uint64_t n, uint64_t min, uint64_t max)
{
    return n >= min && n <= max;
}

static int check_limits(const struct privsep_limits *l, const struct permit_bounds *b)
{
    return within(l->memory_bytes, 16 * MIB, 4096 * GIB) &&
                   within(l->disk_bytes, MIB, 4096 * GIB) && within(l->cpu_milli, 10, 1024000) &&
                   within(l->pids, 8, 4194304) && within(l->open_files, 64, b->open_files_max) &&
                   l->pad == 0
               ? 0
               : -EINVAL;
}

static bool is_template(uint32_t number)
{
    return within(number, 1, PERMIT_TEMPLATE_MAX);
}

static int check_create(const struct privsep_msg *m, const struct permit_bounds *b)
{
    if (!is_template(m->u.create.template_number) || m->u.create.flags != 0 ||
        m->u.create.pad != 0 || !is_id(m->u.create.id))
        return -EINVAL;
    if (m->u.create.level > PRIVSEP_LEVEL_VM)
        return -EINVAL;
    return check_limits(&m->u.create.limits, b);
}

static int check_connect(const struct privsep_msg *m, const struct permit_bounds *b)
{
    return within(m->u.connect.count, 1, PRIVSEP_MAX_FDS) ? 0 : -EINVAL;
}

static int check_room(const struct privsep_msg *m, const struct permit_bounds *b)
{
    return m->u.room.number == 0 && m->u.room.pad == 0 ? 0 : -EINVAL;
}

static int check_room_end(const struct privsep_msg *m, const struct permit_bounds *b)
{
    return m->u.room.number != 0 && m->u.room.pad == 0 ? 0 : -EINVAL;
}

/* Only what is known by number can be built; any template can be removed. */
static int check_job(const struct privsep_msg *m, const struct permit_bounds *b)
{
    uint32_t number = m->u.job.template_number;

    if (!is_template(number))
        return -EINVAL;
    if (m->u.job.kind == PRIVSEP_JOB_TEMPLATE_BUILD)
        return number == PRIVSEP_TEMPLATE_HOST || number == PRIVSEP_TEMPLATE_BASE ? 0 : -EOPNOTSUPP;
    return m->u.job.kind == PRIVSEP_JOB_TEMPLATE_REMOVE ? 0 : -EOPNOTSUPP;
}

static int check_nothing(const struct privsep_msg *m, const struct permit_bounds *b)
{
    return 0;
}

static int (*const field_table[PRIVSEP_REQUEST_COUNT])(const struct privsep_msg *,
                                                       const struct permit_bounds *) = {
    [PRIVSEP_HELLO] = check_nothing,     [PRIVSEP_CREATE] = check_create,
    [PRIVSEP_KILL] = check_nothing,      [PRIVSEP_CONNECT] = check_connect,
    [PRIVSEP_STAT] = check_nothing,      [PRIVSEP_LIST] = check_nothing,
    [PRIVSEP_TEMPLATES] = check_nothing, [PRIVSEP_JOB] = check_job,
    [PRIVSEP_CAPACITY] = check_nothing,  [PRIVSEP_ROOM] = check_room,
    [PRIVSEP_ROOM_END] = check_room_end,
};

int permit_fields(const struct privsep_msg *m, const struct permit_bounds *b)
{
    if (m->op >= PRIVSEP_REQUEST_COUNT || !field_table[m->op])
        return -EPROTO;
    if (permit_needs_sandbox(m->op)) {
        if (m->slot >= b->slots_max || m->gen == 0)
            return -EINVAL;
    } else if (m->slot != 0 || m->gen != 0) {
        return -EINVAL;
    }
    return field_table[m->op](m, b);
}
