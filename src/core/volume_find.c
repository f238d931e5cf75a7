/* Volumes by id, and by the name that a tenant uses. No index: there are at most
 * PRIVSEP_VOLUMES_MAX of them. */

#include "core/core_internal.h"
#include "core/volume_obj.h"

#include <string.h>

struct volume_obj *volume_get(struct core *c, const char *id)
{
    struct volume_obj *o = c->volumes;

    while (o && strcmp(o->v.id, id) != 0)
        o = o->next;
    return o;
}

struct volume_obj *volume_find(struct core *c, const char *tenant, const char *name, bool ready)
{
    for (struct volume_obj *o = c->volumes; o; o = o->next)
        if ((!ready || o->v.state == VOLUME_READY) && strcmp(o->v.tenant, tenant) == 0 &&
            (strcmp(o->v.id, name) == 0 || strcmp(o->v.name, name) == 0))
            return o;
    return NULL;
}

enum err_code volume_missing(const char *name, struct err *e)
{
    err_set(e, ERR_NOT_FOUND, "there is no volume '%.100s'", name);
    err_hint(e, "`cay volume ls` lists those that there are");
    return ERR_NOT_FOUND;
}

const struct volume *core_volume_find(struct core *c, const char *tenant, const char *name)
{
    const struct volume_obj *o = volume_find(c, tenant, name, true);

    return o ? &o->v : NULL;
}

void core_volume_each(struct core *c, const char *tenant,
                      bool (*fn)(void *arg, const struct volume *v), void *arg)
{
    for (struct volume_obj *o = c->volumes; o; o = o->next)
        if (o->v.state == VOLUME_READY && strcmp(o->v.tenant, tenant) == 0 && !fn(arg, &o->v))
            return;
}
