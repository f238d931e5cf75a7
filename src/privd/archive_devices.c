#include "privd/archive_devices.h"

#include "base/share.h"
#include "privd/privd.h"

#include <stdio.h>

bool archive_devices_left(const struct privd *p, uint32_t kept, uint32_t account)
{
    const size_t devices_max = p->options.archive_devices;
    size_t used = 0, held = 0;

    if (!runtime_is_archived(p->rt, kept))
        return true;
    for (uint32_t i = 0; i < p->options.slots_max; i++) {
        const struct slot *s = &p->slots[i];

        if (s->state == SLOT_EMPTY || !s->on_archive)
            continue;
        used++;
        held += s->account == account;
    }
    for (const struct create_request *c = p->waiting_first; c; c = c->next) {
        used += c->on_archive;
        held += c->on_archive && c->account == account;
    }
    return share_leaves_space(devices_max, used, held);
}

bool archive_is_away(const struct privd *p, uint32_t kept, char why[static PRIVSEP_WHY_SIZE])
{
    bool away = runtime_is_away(p->rt, kept);

    snprintf(why, PRIVSEP_WHY_SIZE, "%s",
             away ? "its archive is in the bucket, and was not fetched" : "");
    return away;
}
