#include "privd/restores.h"

#include "base/share.h"
#include "privd/dump.h"
#include "privd/privd.h"
#include "privd/template.h"

#include <errno.h>
#include <string.h>

#define AHEAD (DUMPS_MAX + RESTORES_MAX) /* the group of that of the pool */

_Static_assert(RESTORES_AHEAD == 1, "it has one group");
_Static_assert(AHEAD < IMAGE_GROUPS, "one for each, and one for the pool");

struct restores {
    uint32_t account;
    size_t used, held;
};

static void count_restore(struct restores *r, const struct create_request *c)
{
    if (!c || !c->memory || c->claims)
        return;
    r->used++;
    r->held += c->account == r->account;
}

bool restores_left(const struct privd *p, uint32_t account)
{
    struct restores r = {.account = account};

    for (uint32_t i = 0; i < p->options.slots_max; i++)
        count_restore(&r, p->slots[i].create);
    for (const struct create_request *c = p->waiting_first; c; c = c->next)
        count_restore(&r, c);
    return share_leaves_space(RESTORES_MAX, r.used, r.held);
}

static bool is_taken(const struct privd *p, uint32_t group)
{
    for (uint32_t i = 0; i < p->options.slots_max; i++) {
        const struct create_request *c = p->slots[i].create;

        if (c && c->has_group && c->image_group == group)
            return true;
    }
    return false;
}

int restores_group_begin(struct privd *p, struct create_request *c, uint64_t memory_bytes,
                         int fds[static IMAGE_GROUP_FDS])
{
    uint32_t group = 0;

    while (group < RESTORES_MAX && is_taken(p, group))
        group++;
    if (group == RESTORES_MAX)
        return -EAGAIN;
    c->image_group = group;
    c->has_group = true;
    return image_group_begin(p, DUMPS_MAX + group, memory_bytes, fds);
}

const struct runtime_image *restores_image(const struct privd *p, const struct slot_kind *kind,
                                           uint32_t kept, struct runtime_image *out)
{
    const struct template_meta *template = template_find(p, kind->template_number);

    *out = (struct runtime_image){.template_number = kind->template_number,
                                  .template_made_ms = template ? template->made_real_ms : 0,
                                  .memory_bytes = kind->limits.memory_bytes};
    memcpy(out->owner, p->kept.all[kept].owner, sizeof(out->owner));
    return out;
}

int restores_ahead_begin(struct privd *p, uint64_t memory_bytes, int fds[static IMAGE_GROUP_FDS])
{
    p->n_restoring_ahead++;
    return image_group_begin(p, AHEAD, memory_bytes, fds);
}

void restores_ahead_end(struct privd *p)
{
    p->n_restoring_ahead--;
    image_group_end(p, AHEAD);
}

void restores_group_end(struct privd *p, struct create_request *c)
{
    if (!c || !c->has_group)
        return;
    c->has_group = false;
    image_group_end(p, DUMPS_MAX + c->image_group);
}
