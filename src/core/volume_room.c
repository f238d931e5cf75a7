/* Room for what serves the contents of one more volume, where the tenant has VOLUME_SERVERS_MAX. */

#include "base/clock.h"
#include "core/core_internal.h"
#include "core/life.h"
#include "core/sandbox.h"
#include "core/volume_content.h"
#include "core/volume_obj.h"

/* NULL: it goes. */
static struct volume_obj *served_by(const struct sandbox_obj *o)
{
    const json_t *id = json_object_get(json_array_get(o->s.volumes, 0), "volume");

    return json_is_string(id) ? volume_get(o->core, json_string_value(id)) : NULL;
}

/* The volume whose contents were asked for least lately; NULL: none. *changes: one of the tenant's
 * servers is being made or ends, so that there may be room soon. */
static struct volume_obj *idle_longest(const struct tenant *t, bool *changes)
{
    struct volume_obj *found = NULL;

    for (const struct sandbox_obj *o = t->sandboxes; o; o = o->tenant_next) {
        struct volume_obj *v = o->s.serves_volume ? served_by(o) : NULL;

        if (!o->s.serves_volume)
            continue;
        if (!v || v->releasing || !timer_armed(&v->idle) || !sandbox_life(o)->reachable)
            *changes = true;
        else if (!found || v->idle.node.at < found->idle.node.at)
            found = v;
    }
    return found;
}

bool volume_room_find(struct volume_obj *v, struct volume_obj **old)
{
    const uint64_t now = clock_mono_ms();
    uint64_t at_ms = now + VOLUME_SETTLE_MS;
    bool changes = false;
    struct volume_obj *idle = idle_longest(v->tenant, &changes);
    uint64_t settled_ms = idle ? idle->idle.node.at - VOLUME_SERVE_IDLE_MS + VOLUME_SETTLE_MS : 0;

    *old = NULL;
    if ((!idle && !changes) || v->room_tries >= VOLUME_ROOM_TRIES)
        return false;
    if (!changes && settled_ms > now) {
        at_ms = settled_ms;
    } else if (!changes) {
        v->room_tries++;
        *old = idle;
    }
    if (!timer_armed(&v->idle))
        timers_set(&v->core->timers, &v->idle, at_ms);
    return true;
}
