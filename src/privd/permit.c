/* The valid fields of each message, the states of a sandbox in which it is permitted, and the
 * transitions between states: three tables, which deny what they do not name. Pure: request.c asks
 * before anything is done, slots.c before a slot changes. */
#include "privd/permit.h"

#include "base/util.h"
#include "contract/exchange.h"

#include <errno.h>
#include <string.h>

#define KIB 1024ull
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

/* Deny by default, as in OpenSSH's monitor.c: what a row does not say is refused, because 0 is a
 * refusal and permission is a number of its own. A new state or request does not compile until its
 * author has been here. */
#define ALLOW 1

_Static_assert(SLOT_STATE_COUNT == 12,
               "a new state: decide what each request in ops and each transition does in it");
_Static_assert(PRIVSEP_REQUEST_COUNT == 28, "a new request: give it a row in ops");

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
    return privsep_are_sizes(l->memory_bytes, l->disk_bytes, l->cpu_milli) &&
                   within(l->pids, 8, 4194304) && within(l->open_files, 64, b->open_files_max) &&
                   (l->filters == 0 || l->filters == PRIVSEP_FILTERS)
               ? 0
               : -EINVAL;
}

static bool is_template(uint32_t number)
{
    return within(number, 1, PERMIT_TEMPLATE_MAX);
}

static bool has_owner(const uint8_t owner[static PRIVSEP_OWNER_SIZE])
{
    uint8_t any = 0;

    for (size_t i = 0; i < PRIVSEP_OWNER_SIZE; i++)
        any |= owner[i];
    return any != 0;
}

static bool is_mount(const struct privsep_mount *v)
{
    if (v->flags == PRIVSEP_MOUNT_HOST_DIR)
        return within(v->number, 1, PRIVSEP_HOST_DIRS_MAX);
    return v->number <= PRIVSEP_VOLUMES_MAX &&
           (v->flags == 0 || (v->flags == PRIVSEP_MOUNT_READ_ONLY && v->number != 0));
}

/* Their numbers are apart: one of each kind is no pair. */
static bool is_same_mount(const struct privsep_mount *a, const struct privsep_mount *b)
{
    return a->number != 0 && a->number == b->number &&
           (a->flags == PRIVSEP_MOUNT_HOST_DIR) == (b->flags == PRIVSEP_MOUNT_HOST_DIR);
}

/* None twice: each is mounted once. Each has an owner, and an empty place has none. */
static bool are_volumes(const struct privsep_msg *m)
{
    const struct privsep_mount *v = m->u.create.volumes;

    for (size_t i = 0; i < PRIVSEP_CREATE_VOLUMES; i++) {
        if (!is_mount(&v[i]) || has_owner(m->u.create.volume_owners[i]) != (v[i].number != 0))
            return false;
        for (size_t j = 0; j < i; j++)
            if (is_same_mount(&v[i], &v[j]))
                return false;
    }
    return true;
}

static bool are_create_flags(uint32_t flags)
{
    switch (flags) {
    case 0:
    case PRIVSEP_CREATE_COPY:
    case PRIVSEP_CREATE_MEMORY:
    case PRIVSEP_CREATE_COPY | PRIVSEP_CREATE_MEMORY:
    case PRIVSEP_CREATE_OF_POOL:
    case PRIVSEP_CREATE_COPY | PRIVSEP_CREATE_LAST: return true;
    default: return false;
    }
}

static int check_create(const struct privsep_msg *m, const struct permit_bounds *b)
{
    if (!is_template(m->u.create.template_number) || !are_create_flags(m->u.create.flags) ||
        (m->u.create.flags != 0 && m->u.create.kept == 0) || m->u.create.kept > PRIVSEP_KEPT_MAX ||
        !is_id(m->u.create.id) || has_owner(m->u.create.owner) != (m->u.create.kept != 0))
        return -EINVAL;
    if (m->u.create.level >= PRIVSEP_LEVEL_COUNT || !are_volumes(m))
        return -EINVAL;
    return check_limits(&m->u.create.limits, b);
}

static int check_connect(const struct privsep_msg *m, const struct permit_bounds *b)
{
    return within(m->u.connect.count, 1, PRIVSEP_MAX_FDS) ? 0 : -EINVAL;
}

static int check_command_sandbox(const struct privsep_msg *m, const struct permit_bounds *b)
{
    return m->u.command_sandbox.number == 0 && m->u.command_sandbox.pad == 0 ? 0 : -EINVAL;
}

static int check_command_sandbox_end(const struct privsep_msg *m, const struct permit_bounds *b)
{
    return m->u.command_sandbox.number != 0 && m->u.command_sandbox.pad == 0 ? 0 : -EINVAL;
}

/* Any template can be built: those that are not cay's own out of an image that root has left for
 * that number, and without one the job says so. Any can be removed. */
static int check_job(const struct privsep_msg *m, const struct permit_bounds *b)
{
    uint32_t number = m->u.job.template_number;

    if (!is_template(number))
        return -EINVAL;
    return m->u.job.kind == PRIVSEP_JOB_TEMPLATE_BUILD ||
                   m->u.job.kind == PRIVSEP_JOB_TEMPLATE_REMOVE
               ? 0
               : -EOPNOTSUPP;
}

static int check_kept(const struct privsep_msg *m, const struct permit_bounds *b)
{
    return within(m->u.kept.number, 1, PRIVSEP_KEPT_MAX) && m->u.kept.template_number == 0 &&
                   m->u.kept.busy == 0 && m->u.kept.without_memory == 0 &&
                   (m->op == PRIVSEP_DUMP || m->op == PRIVSEP_FETCH || m->u.kept.account == 0) &&
                   m->u.kept.creates <= (m->op == PRIVSEP_COPY ? PRIVSEP_COPY_CREATES_MAX : 0)
               ? 0
               : -EINVAL;
}

/* Files that are kept from now on have an owner. */
static int check_kept_of(const struct privsep_msg *m, const struct permit_bounds *b)
{
    return has_owner(m->u.kept.owner) ? check_kept(m, b) : -EINVAL;
}

static bool is_exchange(const struct privsep_msg *m)
{
    return within(m->u.exchange.number, 1, PRIVSEP_KEPT_MAX) &&
           is_template(m->u.exchange.template_number) && has_owner(m->u.exchange.owner) &&
           m->u.exchange.pad == 0 &&
           exchange_is_text(m->u.exchange.template_name, PRIVSEP_TEMPLATE_TEXT) &&
           exchange_is_text(m->u.exchange.template_digest, PRIVSEP_DIGEST_TEXT);
}

/* The texts and sizes go into the file, and are believed by nothing here. */
static int check_export(const struct privsep_msg *m, const struct permit_bounds *b)
{
    return is_exchange(m) && m->u.exchange.template_name[0] != '\0' && m->u.exchange.level == 0 &&
                   m->u.exchange.made_real_ms >= 0 &&
                   privsep_are_sizes(m->u.exchange.memory_bytes, m->u.exchange.disk_bytes,
                                     m->u.exchange.cpu_milli)
               ? 0
               : -EINVAL;
}

static int check_import(const struct privsep_msg *m, const struct permit_bounds *b)
{
    return is_exchange(m) && m->u.exchange.template_name[0] == '\0' &&
                   m->u.exchange.template_digest[0] == '\0' &&
                   m->u.exchange.level < PRIVSEP_LEVEL_COUNT && m->u.exchange.memory_bytes == 0 &&
                   m->u.exchange.disk_bytes == 0 && m->u.exchange.cpu_milli == 0 &&
                   m->u.exchange.made_real_ms == 0
               ? 0
               : -EINVAL;
}

static int check_volume_make(const struct privsep_msg *m, const struct permit_bounds *b)
{
    return within(m->u.volume.number, 1, PRIVSEP_VOLUMES_MAX) && m->u.volume.busy == 0 &&
                   has_owner(m->u.volume.owner) && within(m->u.volume.bytes, MIB, 4096 * GIB)
               ? 0
               : -EINVAL;
}

static int check_volume_remove(const struct privsep_msg *m, const struct permit_bounds *b)
{
    return within(m->u.volume.number, 1, PRIVSEP_VOLUMES_MAX) && m->u.volume.busy == 0 &&
                   m->u.volume.bytes == 0
               ? 0
               : -EINVAL;
}

static int check_resize(const struct privsep_msg *m, const struct permit_bounds *b)
{
    return privsep_are_sizes(m->u.resize.memory_bytes, m->u.resize.disk_bytes,
                             m->u.resize.cpu_milli) &&
                   m->u.resize.uses == 0 && m->u.resize.used_bytes == 0
               ? 0
               : -EINVAL;
}

static int check_nothing(const struct privsep_msg *m, const struct permit_bounds *b)
{
    return 0;
}

/* -- the table of requests --------------------------------------------------------------------- */

/* Rows of answers by state. A sandbox that has ended is stale for good: its generation never comes
 * back. Requests are permitted only while the sandbox runs (WHILE_IT_RUNS), also where none of its
 * processes does (WHILE_IT_LIVES), or until nothing of it is left. Of one whose layer is being
 * copied nothing is done that lets a process run or takes the layer away: the copy is of one
 * moment. */
#define GONE_OR_NOT_YET                                                      \
    [SLOT_EMPTY] = -ESTALE, [SLOT_MAKING] = -ESTALE, [SLOT_READY] = -ESTALE, \
    [SLOT_PRESTARTED] = -ESTALE, [SLOT_STARTING] = -EBUSY, [SLOT_RUNNING] = ALLOW
#define WHILE_IT_RUNS                                                       \
    {                                                                       \
        GONE_OR_NOT_YET, [SLOT_KILLING] = -ESTALE, [SLOT_ENDING] = -ESTALE, \
                         [SLOT_FREEZING] = -EBUSY, [SLOT_FROZEN] = -EBUSY,  \
                         [SLOT_COPYING] = -EBUSY, [SLOT_DUMPING] = -EBUSY   \
    }
#define WHILE_IT_LIVES                                                                           \
    {                                                                                            \
        GONE_OR_NOT_YET, [SLOT_KILLING] = -ESTALE, [SLOT_ENDING] = -ESTALE,                      \
                         [SLOT_FREEZING] = ALLOW, [SLOT_FROZEN] = ALLOW, [SLOT_COPYING] = ALLOW, \
                         [SLOT_DUMPING] = ALLOW                                                  \
    }
#define UNLESS_IT_IS_COPIED                                                                       \
    {                                                                                             \
        GONE_OR_NOT_YET, [SLOT_KILLING] = -ESTALE, [SLOT_ENDING] = -ESTALE,                       \
                         [SLOT_FREEZING] = ALLOW, [SLOT_FROZEN] = ALLOW, [SLOT_COPYING] = -EBUSY, \
                         [SLOT_DUMPING] = -EBUSY                                                  \
    }
#define WHILE_IT_LIVES_STILL                                                                       \
    {                                                                                              \
        GONE_OR_NOT_YET, [SLOT_KILLING] = -ESTALE, [SLOT_ENDING] = -ESTALE,                        \
                         [SLOT_FREEZING] = -EBUSY, [SLOT_FROZEN] = ALLOW, [SLOT_COPYING] = -EBUSY, \
                         [SLOT_DUMPING] = -EBUSY                                                   \
    }
#define UNTIL_IT_IS_GONE                                                                         \
    {                                                                                            \
        GONE_OR_NOT_YET, [SLOT_KILLING] = ALLOW, [SLOT_ENDING] = ALLOW, [SLOT_FREEZING] = ALLOW, \
                         [SLOT_FROZEN] = ALLOW, [SLOT_COPYING] = ALLOW, [SLOT_DUMPING] = ALLOW   \
    }

struct op {
    bool names_sandbox;
    int (*fields)(const struct privsep_msg *m,
                  const struct permit_bounds *b); /* NULL: no such request */
    int state
        [SLOT_STATE_COUNT]; /* ALLOW or -errno; 0: not decided, so refused. Only if names_sandbox */
};

static const struct op ops[PRIVSEP_REQUEST_COUNT] = {
    [PRIVSEP_HELLO] = {.fields = check_nothing},
    [PRIVSEP_CREATE] = {.fields = check_create},
    [PRIVSEP_KILL] = {true, check_nothing, UNTIL_IT_IS_GONE},
    [PRIVSEP_CONNECT] = {true, check_connect, WHILE_IT_RUNS},
    [PRIVSEP_STAT] = {true, check_nothing, WHILE_IT_LIVES},
    [PRIVSEP_LIST] = {.fields = check_nothing},
    [PRIVSEP_TEMPLATES] = {.fields = check_nothing},
    [PRIVSEP_JOB] = {.fields = check_job},
    [PRIVSEP_CAPACITY] = {.fields = check_nothing},
    [PRIVSEP_COMMAND_SANDBOX] = {true, check_command_sandbox, WHILE_IT_RUNS},
    [PRIVSEP_COMMAND_SANDBOX_END] = {true, check_command_sandbox_end, WHILE_IT_LIVES},
    [PRIVSEP_FREEZE] = {true, check_nothing, WHILE_IT_RUNS},
    [PRIVSEP_THAW] = {true, check_nothing, UNLESS_IT_IS_COPIED},
    [PRIVSEP_KEEP] = {true, check_kept_of, WHILE_IT_LIVES_STILL},
    [PRIVSEP_DROP] = {.fields = check_kept},
    [PRIVSEP_KEPTS] = {.fields = check_nothing},
    [PRIVSEP_COPY] = {true, check_kept_of, WHILE_IT_LIVES_STILL},
    [PRIVSEP_VOLUME_MAKE] = {.fields = check_volume_make},
    [PRIVSEP_VOLUME_REMOVE] = {.fields = check_volume_remove},
    [PRIVSEP_VOLUMES] = {.fields = check_nothing},
    [PRIVSEP_RESIZE] = {true, check_resize, WHILE_IT_LIVES_STILL},
    [PRIVSEP_DUMP] = {true, check_kept_of, WHILE_IT_RUNS},
    [PRIVSEP_ARCHIVE] = {.fields = check_kept_of},
    [PRIVSEP_ARCHIVE_STOP] = {.fields = check_kept_of},
    [PRIVSEP_FETCH] = {.fields = check_kept_of},
    [PRIVSEP_EXPORT] = {.fields = check_export},
    [PRIVSEP_IMPORT] = {.fields = check_import},
};

bool permit_needs_sandbox(uint16_t op)
{
    return op < PRIVSEP_REQUEST_COUNT && ops[op].names_sandbox;
}

int permit_state(const struct privsep_msg *m, enum slot_state state, uint32_t gen)
{
    int answer;

    if (!permit_needs_sandbox(m->op) || (unsigned)state >= SLOT_STATE_COUNT)
        return -EPROTO;
    if (m->gen != gen)
        return -ESTALE;
    answer = ops[m->op].state[state];
    if (answer == ALLOW)
        return 0;
    return answer < 0 ? answer : -EPERM;
}

int permit_fields(const struct privsep_msg *m, const struct permit_bounds *b)
{
    const struct op *op = m->op < PRIVSEP_REQUEST_COUNT ? &ops[m->op] : NULL;

    if (!op || !op->fields)
        return -EPROTO;
    if (op->names_sandbox) {
        if (m->slot >= b->slots_max || m->gen == 0)
            return -EINVAL;
    } else if (m->slot != 0 || m->gen != 0) {
        return -EINVAL;
    }
    return op->fields(m, b);
}

/* -- the life of a slot ------------------------------------------------------------------------ */

/* A slot that ends before it runs is killed first where it has processes. EMPTY to RUNNING or
 * FROZEN is a recovery: the sandbox was started by an earlier cay-privd. READY to MAKING: a pooled
 * slot is prepared further, up to a waiting cay-init; from PRESTARTED the only way to a tenant is
 * STARTING, and no way leads back to it. A frozen one whose PID 1 has ended by itself is cleaned up
 * like any. COPYING leads to RUNNING by FROZEN alone: when the copy is made. */
static const uint8_t transitions[SLOT_STATE_COUNT][SLOT_STATE_COUNT] = {
    [SLOT_EMPTY] = {[SLOT_MAKING] = ALLOW, [SLOT_RUNNING] = ALLOW, [SLOT_FROZEN] = ALLOW},
    [SLOT_MAKING] = {[SLOT_READY] = ALLOW,
                     [SLOT_PRESTARTED] = ALLOW,
                     [SLOT_KILLING] = ALLOW,
                     [SLOT_ENDING] = ALLOW},
    [SLOT_PRESTARTED] = {[SLOT_STARTING] = ALLOW, [SLOT_KILLING] = ALLOW, [SLOT_ENDING] = ALLOW},
    [SLOT_READY] = {[SLOT_MAKING] = ALLOW,
                    [SLOT_STARTING] = ALLOW,
                    [SLOT_KILLING] = ALLOW,
                    [SLOT_ENDING] = ALLOW},
    [SLOT_STARTING] = {[SLOT_RUNNING] = ALLOW, [SLOT_KILLING] = ALLOW, [SLOT_ENDING] = ALLOW},
    [SLOT_RUNNING] = {[SLOT_FREEZING] = ALLOW,
                      [SLOT_DUMPING] = ALLOW,
                      [SLOT_KILLING] = ALLOW,
                      [SLOT_ENDING] = ALLOW},
    [SLOT_DUMPING] = {[SLOT_RUNNING] = ALLOW, [SLOT_KILLING] = ALLOW, [SLOT_ENDING] = ALLOW},
    [SLOT_FREEZING] = {[SLOT_RUNNING] = ALLOW,
                       [SLOT_FROZEN] = ALLOW,
                       [SLOT_KILLING] = ALLOW,
                       [SLOT_ENDING] = ALLOW},
    [SLOT_FROZEN] = {[SLOT_RUNNING] = ALLOW,
                     [SLOT_COPYING] = ALLOW,
                     [SLOT_KILLING] = ALLOW,
                     [SLOT_ENDING] = ALLOW},
    [SLOT_COPYING] = {[SLOT_FROZEN] = ALLOW, [SLOT_KILLING] = ALLOW, [SLOT_ENDING] = ALLOW},
    [SLOT_KILLING] = {[SLOT_ENDING] = ALLOW},
    [SLOT_ENDING] = {[SLOT_EMPTY] = ALLOW},
};

/* Properties of a slot's state. */
enum holds {
    LIVES = 1u << 0,   /* there is a sandbox in it that was answered and has not ended */
    CLAIMED = 1u << 1, /* it was made for one create: it has an id, and keeps its template */
    MOUNTED = 1u << 2  /* it has its volumes: a process of it may be there, or is about to be */
};

/* A state without a case does not compile: "no" would let its template and its volumes go. */
static unsigned held_in(enum slot_state state)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic error "-Wswitch"
    switch (state) {
    case SLOT_EMPTY:
    case SLOT_MAKING:
    case SLOT_READY:
    case SLOT_PRESTARTED: return 0;
    case SLOT_STARTING:
    case SLOT_KILLING: return CLAIMED | MOUNTED;
    case SLOT_ENDING: return CLAIMED;
    case SLOT_RUNNING:
    case SLOT_FREEZING:
    case SLOT_FROZEN:
    case SLOT_COPYING:
    case SLOT_DUMPING: return LIVES | CLAIMED | MOUNTED;
    case SLOT_STATE_COUNT: break;
    }
#pragma GCC diagnostic pop
    return 0; /* of a damaged record: there is no such sandbox */
}

bool permit_lives(enum slot_state state)
{
    return held_in(state) & LIVES;
}

bool permit_is_claimed(enum slot_state state)
{
    return held_in(state) & CLAIMED;
}

bool permit_has_volumes(enum slot_state state)
{
    return held_in(state) & MOUNTED;
}

bool permit_transition(enum slot_state from, enum slot_state to)
{
    return (unsigned)from < SLOT_STATE_COUNT && (unsigned)to < SLOT_STATE_COUNT &&
           transitions[from][to] == ALLOW;
}
