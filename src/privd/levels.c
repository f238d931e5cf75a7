/* Which isolation levels there are: asked of each driver once, at start. A slot holds the row of
 * its level (slot.driver) from the beginning of its use, and everything that is done to it goes
 * through that row. */

#include "privd/levels.h"

#include "base/log.h"
#include "privd/privd.h"
#include "runtime/runtime.h"

#include <errno.h>
#include <string.h>

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
        return 0;
    log_error("this machine cannot run sandboxes: %s", p->level_why[0]);
    return first;
}

const struct runtime_driver *levels_driver(const struct privd *p, uint32_t level)
{
    return level < PRIVSEP_LEVEL_COUNT ? p->drivers[level] : NULL;
}

void levels_why(const struct privd *p, uint32_t level, char out[static PRIVSEP_WHY_SIZE])
{
    memset(out, 0, PRIVSEP_WHY_SIZE);
    if (level < PRIVSEP_LEVEL_COUNT)
        memcpy(out, p->level_why[level], strnlen(p->level_why[level], PRIVSEP_WHY_SIZE - 1));
}
