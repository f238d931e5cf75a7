/* Asked once of each CREATE, by sandbox.c, before it waits for a slot. While it waits, its
 * template, its volumes and its shares of restores and devices count as used, so that those answers
 * stay true; kept files are taken when it starts (keep_take), which may refuse. */

#include "privd/create_check.h"

#include "privd/archive.h"
#include "privd/archive_devices.h"
#include "privd/create_request.h"
#include "privd/keep.h"
#include "privd/levels.h"
#include "privd/permit.h"
#include "privd/pool.h"
#include "privd/privd.h"
#include "privd/restores.h"
#include "privd/slots.h"
#include "privd/template.h"
#include "privd/volume.h"

#include <errno.h>
#include <string.h>

static bool id_is_taken(const struct privd *p, const char *id)
{
    for (uint32_t i = 0; i < p->options.slots_max; i++) {
        const struct slot *s = &p->slots[i];

        if (permit_is_claimed(s->state) && memcmp(s->id, id, PRIVSEP_ID_SIZE) == 0)
            return true;
    }
    for (const struct create_request *c = p->waiting_first; c; c = c->next)
        if (memcmp(c->claim.id, id, PRIVSEP_ID_SIZE) == 0)
            return true;
    return false;
}

/* Sandboxes whose programs may have filters, and those that wait to be. cayd counts too; this is
 * what holds when it does not. */
static uint32_t count_with_filters(const struct privd *p)
{
    uint32_t n = 0;

    for (uint32_t i = 0; i < p->options.slots_max; i++)
        n += p->slots[i].state != SLOT_EMPTY && p->slots[i].kind.limits.filters != 0;
    for (const struct create_request *c = p->waiting_first; c; c = c->next)
        n += c->kind.limits.filters != 0;
    return n;
}

/* A member is there for it, so that nothing is to be restored. */
static bool has_member(struct privd *p, const struct privsep_msg *m)
{
    const struct slot_kind kind = pool_kind(m);
    const struct pool_row *row = pool_may_claim(m) ? pool_find(&p->pool, &kind) : NULL;

    return row && row->ready > 0;
}

/* That there is such an image is found by the task that opens it. */
static int may_restore(struct privd *p, const struct privsep_msg *m)
{
    if (!(m->u.create.flags & PRIVSEP_CREATE_MEMORY))
        return 0;
    if (!p->options.checkpoint || !p->options.seal)
        return -EOPNOTSUPP;
    if (has_member(p, m))
        return 0;
    return restores_left(p, m->u.create.account) ? 0 : -EAGAIN;
}

int create_check(struct privd *p, const struct privsep_msg *m, uint32_t *stage,
                 char why[static PRIVSEP_WHY_SIZE])
{
    const struct template_meta *template = template_find(p, m->u.create.template_number);

    *stage = PRIVSEP_STAGE_LEVEL;
    if (!levels_driver(p, m->u.create.level)) {
        levels_why(p, m->u.create.level, why);
        return -EOPNOTSUPP;
    }
    *stage = PRIVSEP_STAGE_PERMIT;
    if (id_is_taken(p, m->u.create.id))
        return -EEXIST;
    *stage = PRIVSEP_STAGE_TEMPLATE;
    if (!template || !template->ready)
        return -ENOENT;
    *stage = PRIVSEP_STAGE_LAYER;
    if (m->u.create.kept) {
        int (*may_have)(struct privd *, uint32_t, const uint8_t *,
                        uint32_t) = m->u.create.flags & PRIVSEP_CREATE_COPY ? keep_may_copy
                                                                            : keep_may_take;
        int r = may_have(p, m->u.create.kept, m->u.create.owner, m->u.create.template_number);

        if (r < 0)
            return r;
    }
    *stage = PRIVSEP_STAGE_LEVEL;
    if (m->u.create.kept && !keep_is_of_level(p, m->u.create.kept, m->u.create.level, why))
        return -EOPNOTSUPP;
    *stage = PRIVSEP_STAGE_ARCHIVE;
    if (m->u.create.kept && archive_is_away(p, m->u.create.kept, why))
        return -ENODATA;
    if (m->u.create.kept && !archive_devices_left(p, m->u.create.kept, m->u.create.account))
        return -EAGAIN;
    *stage = PRIVSEP_STAGE_MEMORY;
    int may = may_restore(p, m);
    if (may < 0)
        return may;
    *stage = PRIVSEP_STAGE_VOLUME;
    int may_mount = volume_may_mount(p, m);
    if (may_mount < 0)
        return may_mount;
    *stage = PRIVSEP_STAGE_SLOT;
    if (m->u.create.limits.filters && count_with_filters(p) >= privsep_filters_sandboxes())
        return -EDQUOT;
    return p->n_sandboxes + p->n_starting + p->n_waiting < p->options.slots_max ? 0 : -EAGAIN;
}
