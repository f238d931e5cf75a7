/* Which isolation levels there are: asked of each driver once, at start. A slot holds the row of
 * its level (slot.driver) from the beginning of its use, and everything that is done to it goes
 * through that row.
 *
 * The watcher of locks is a process that is forked before any slot is used. For it the level of
 * each slot is in memory that both share: privd writes it at the beginning of a use, the watcher
 * can only read it. A slot that was never used is 0 there, which is no level. */

#include "privd/levels.h"

#include "base/log.h"
#include "privd/privd.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

static int share_slots(struct privd *p)
{
    void *at = mmap(NULL, p->options.slots_max * sizeof(*p->slot_levels), PROT_READ | PROT_WRITE,
                    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

    if (at == MAP_FAILED) {
        log_error("no memory for the isolation levels of %u sandboxes: %s", p->options.slots_max,
                  strerror(errno));
        return -errno;
    }
    p->slot_levels = at;
    return 0;
}

int levels_probe(struct privd *p)
{
    int first = -EOPNOTSUPP;

    for (uint32_t i = PRIVSEP_LEVEL_COUNT; i-- > 0;) {
        const struct runtime_driver *d = runtime_driver(i);
        char *why = p->level_why[i];

        first = d ? d->probe(p->rt, why, PRIVSEP_WHY_SIZE) : -EOPNOTSUPP;
        p->drivers[i] = first == 0 ? d : NULL;
        if (first == 0)
            p->pool_level = i;
        else
            log_debug("%s", why);
    }
    if (p->drivers[p->pool_level])
        return share_slots(p);
    log_error("this machine cannot run sandboxes: %s", p->level_why[0]);
    return first;
}

const struct runtime_driver *levels_driver(const struct privd *p, uint32_t level)
{
    return level < PRIVSEP_LEVEL_COUNT ? p->drivers[level] : NULL;
}

void levels_free(struct privd *p)
{
    if (p->slot_levels)
        (void)munmap(p->slot_levels, p->options.slots_max * sizeof(*p->slot_levels));
    p->slot_levels = NULL;
}

void levels_set_slot(struct privd *p, uint32_t slot, uint32_t level)
{
    atomic_store(&p->slot_levels[slot], (uint8_t)(level + 1));
}

const struct runtime_driver *levels_driver_of_slot(const struct privd *p, uint32_t slot)
{
    uint32_t level_and_1 = slot < p->options.slots_max ? atomic_load(&p->slot_levels[slot]) : 0;

    return level_and_1 == 0 ? NULL : levels_driver(p, level_and_1 - 1);
}

int levels_seal_slots(const struct privd *p)
{
    size_t size = p->options.slots_max * sizeof(*p->slot_levels);

    return mprotect(p->slot_levels, size, PROT_READ) < 0 ? -errno : 0;
}

void levels_why(const struct privd *p, uint32_t level, char out[static PRIVSEP_WHY_SIZE])
{
    memset(out, 0, PRIVSEP_WHY_SIZE);
    if (level < PRIVSEP_LEVEL_COUNT)
        memcpy(out, p->level_why[level], strnlen(p->level_why[level], PRIVSEP_WHY_SIZE - 1));
}
