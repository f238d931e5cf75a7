#include "privd/pool.h"

#include <stddef.h>
#include <string.h>

#define CREATE 256u /* the count of one create */

/* -- which creates ----------------------------------------------------------------------------- */

/* How a member comes to have what a field asks for. CLAIM: it is given with the claim, or the
 * create alone is asked about it. ROW: members of the create's row were started with it. A claim
 * changes no limit: memory is the size of the member's /dev/shm too, disk waits for a transaction
 * of the file system, and for a share of the processors the kernel walks over all control groups;
 * so each combination of limits is a kind of its own. KEPT: of a create that begins with memory as
 * others do, as ROW; of one that begins with kept files alone, as CLAIM; of any other they have to
 * be 0. */
enum how { CLAIM = 1, ROW, KEPT };

#define FIELD(f, h)                                                                                \
    {                                                                                              \
        offsetof(struct privsep_msg, u.create.f), sizeof(((struct privsep_msg *)0)->u.create.f), h \
    }

static const struct {
    size_t at, size;
    enum how how;
} fields[] = {
    FIELD(template_number, ROW),
    FIELD(level, ROW),
    FIELD(limits.memory_bytes, ROW),
    FIELD(limits.disk_bytes, ROW),
    FIELD(limits.cpu_milli, ROW),
    FIELD(limits.pids, ROW),
    FIELD(limits.open_files, ROW),
    FIELD(id, CLAIM),
    FIELD(key, CLAIM),
    FIELD(kept, KEPT),
    FIELD(flags, KEPT),
    FIELD(owner, KEPT),
    FIELD(account, KEPT), /* a share of restores, and there is none to be made */
};

static bool begins_as_others(const struct privsep_msg *create)
{
    return create->u.create.kept && create->u.create.flags == PRIVSEP_CREATE_OF_POOL;
}

/* A member that has none yet gets them (runtime/process_files.c). */
static bool begins_with_files(const struct privsep_msg *create)
{
    return create->u.create.kept &&
           !(create->u.create.flags & ~(PRIVSEP_CREATE_COPY | PRIVSEP_CREATE_LAST));
}

bool pool_may_claim(const struct privsep_msg *create)
{
    struct privsep_msg rest = *create;
    const bool kept = begins_as_others(create) || begins_with_files(create);
    uint8_t any = 0;

    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        if (fields[i].how == CLAIM || fields[i].how == ROW || kept)
            memset((char *)&rest + fields[i].at, 0, fields[i].size);
    for (size_t i = 0; i < sizeof(rest.u.raw); i++)
        any |= rest.u.raw[i];
    return any == 0;
}

struct slot_kind pool_kind(const struct privsep_msg *create)
{
    struct slot_kind k = {.template_number = create->u.create.template_number,
                          .level = create->u.create.level,
                          .limits = create->u.create.limits};

    if (!begins_as_others(create))
        return k;
    k.kept = create->u.create.kept;
    k.flags = create->u.create.flags;
    memcpy(k.owner, create->u.create.owner, sizeof(k.owner));
    return k;
}

/* -- rows -------------------------------------------------------------------------------------- */

static bool same_kind(const struct slot_kind *a, const struct slot_kind *b)
{
    const struct privsep_limits *l = &a->limits, *m = &b->limits;

    return a->template_number == b->template_number && a->level == b->level && a->kept == b->kept &&
           a->flags == b->flags && memcmp(a->owner, b->owner, sizeof(a->owner)) == 0 &&
           l->memory_bytes == m->memory_bytes && l->disk_bytes == m->disk_bytes &&
           l->cpu_milli == m->cpu_milli && l->pids == m->pids && l->open_files == m->open_files &&
           l->filters == m->filters;
}

struct pool_row *pool_find(struct pool *p, const struct slot_kind *kind)
{
    for (size_t i = 0; i < POOL_ROWS; i++)
        if (p->rows[i].id && same_kind(&p->rows[i].kind, kind))
            return &p->rows[i];
    return NULL;
}

struct pool_row *pool_row(struct pool *p, uint32_t id)
{
    for (size_t i = 0; id && i < POOL_ROWS; i++)
        if (p->rows[i].id == id)
            return &p->rows[i];
    return NULL;
}

/* Slots of its earlier kind are no members of it. */
static void begin_row(struct pool *p, struct pool_row *row)
{
    row->id = ++p->last_id ? p->last_id : ++p->last_id;
    row->ready = row->making = 0;
}

/* A free one, or the one with the least count where that is below one create. Else this create
 * takes one from that count: kinds that are asked for now and then would keep all rows from one
 * that is asked for more often than any of them, for as long as their tenant likes. */
static struct pool_row *take_row(struct pool *p, const struct slot_kind *kind)
{
    struct pool_row *least = &p->rows[0];

    for (size_t i = 0; i < POOL_ROWS && least->id; i++)
        if (!p->rows[i].id || p->rows[i].recent < least->recent)
            least = &p->rows[i];
    if (least->id && least->recent >= CREATE) {
        least->recent -= CREATE;
        return NULL;
    }
    *least = (struct pool_row){.kind = *kind};
    begin_row(p, least);
    return least;
}

static void halve(struct pool *p, uint64_t now_ms)
{
    uint64_t times = now_ms > p->halved_ms ? (now_ms - p->halved_ms) / POOL_HALF_MS : 0;

    p->halved_ms += times * POOL_HALF_MS;
    for (size_t i = 0; i < POOL_ROWS; i++)
        p->rows[i].recent = times < 32 ? p->rows[i].recent >> times : 0;
}

void pool_note(struct pool *p, const struct slot_kind *kind, uint64_t now_ms)
{
    struct pool_row *row;

    halve(p, now_ms);
    row = pool_find(p, kind);
    if (!row)
        row = take_row(p, kind);
    if (row && row->recent <= UINT32_MAX - CREATE)
        row->recent += CREATE;
    pool_aim(p, p->most);
}

void pool_renew(struct pool *p, uint32_t template_number)
{
    for (size_t i = 0; i < POOL_ROWS; i++)
        if (p->rows[i].id && p->rows[i].kind.template_number == template_number)
            begin_row(p, &p->rows[i]);
}

void pool_forget(struct pool *p, uint32_t template_number)
{
    for (size_t i = 0; i < POOL_ROWS; i++)
        if (p->rows[i].kind.template_number == template_number)
            p->rows[i] = (struct pool_row){0};
    pool_aim(p, p->most);
}

bool pool_is_of(const struct slot_kind *k, uint32_t kept,
                const uint8_t owner[static PRIVSEP_OWNER_SIZE])
{
    return k->kept && k->kept == kept && memcmp(k->owner, owner, sizeof(k->owner)) == 0;
}

void pool_forget_kept(struct pool *p, uint32_t kept, const uint8_t owner[static PRIVSEP_OWNER_SIZE])
{
    for (size_t i = 0; i < POOL_ROWS; i++)
        if (p->rows[i].id && pool_is_of(&p->rows[i].kind, kept, owner))
            p->rows[i] = (struct pool_row){0};
    pool_aim(p, p->most);
}

void pool_rest(struct pool *p, struct pool_row *row)
{
    row->recent = 0;
    pool_aim(p, p->most);
}

/* -- how many ---------------------------------------------------------------------------------- */

static struct pool_row *busiest(struct pool *p)
{
    struct pool_row *most = &p->rows[0];

    for (size_t i = 1; i < POOL_ROWS; i++)
        if (p->rows[i].recent > most->recent)
            most = &p->rows[i];
    return most;
}

static uint32_t at_most(const struct pool_row *row, uint32_t n)
{
    return row->kind.kept ? MIN(n, POOL_WITH_MEMORY) : n;
}

static uint32_t share(const struct pool_row *row, uint32_t most, uint64_t sum)
{
    uint32_t n = (uint32_t)((uint64_t)most * row->recent / sum);

    return at_most(row, n == 0 && row->recent >= POOL_LEAST * CREATE ? 1 : n);
}

void pool_aim(struct pool *p, uint32_t most)
{
    struct pool_row *first = busiest(p);
    uint32_t left = most;
    uint64_t sum = 0;

    p->most = most;
    for (size_t i = 0; i < POOL_ROWS; i++)
        sum += p->rows[i].recent;
    for (size_t i = 0; i < POOL_ROWS; i++) {
        struct pool_row *row = &p->rows[i];

        row->target = 0;
        if (row == first || row->recent == 0 || left <= 1)
            continue;
        row->target = MIN(share(row, most, sum), left - 1); /* one is the busiest row's */
        left -= row->target;
    }
    if (first->recent > 0)
        first->target = at_most(first, left);
}

uint32_t pool_targets(const struct pool *p)
{
    uint32_t n = 0;

    for (size_t i = 0; i < POOL_ROWS; i++)
        n += p->rows[i].target;
    return n;
}

uint32_t pool_within(const struct pool *p)
{
    uint32_t n = 0;

    for (size_t i = 0; i < POOL_ROWS; i++)
        n += MIN(p->rows[i].ready, p->rows[i].target);
    return n;
}

uint32_t pool_members(const struct pool *p)
{
    uint32_t n = 0;

    for (size_t i = 0; i < POOL_ROWS; i++)
        n += p->rows[i].ready + p->rows[i].making;
    return n;
}

struct pool_row *pool_surplus(struct pool *p)
{
    if (pool_members(p) < p->most)
        return NULL;
    for (size_t i = 0; i < POOL_ROWS; i++)
        if (p->rows[i].ready > p->rows[i].target)
            return &p->rows[i];
    return NULL;
}

bool pool_is_low(const struct pool *p)
{
    for (size_t i = 0; i < POOL_ROWS; i++)
        if (p->rows[i].ready < p->rows[i].target / 4)
            return true;
    return false;
}
