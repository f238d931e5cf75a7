/* The list of snapshots is read here, and not changed. */

#include "core/core_internal.h"
#include "core/snapshot_internal.h"

#include <string.h>

#define TAG ":default"

struct snapshot_obj *snapshot_get(struct core *c, const char *id)
{
    struct snapshot_obj *o = c->snapshots;

    while (o && strcmp(o->s.id, id) != 0)
        o = o->next;
    return o;
}

static bool has_name(const struct snapshot *s, const char *name)
{
    size_t n = strlen(s->name);

    if (strcmp(s->id, name) == 0)
        return true;
    if (ids_is_snapshot(name)) /* of an earlier version a name may look so */
        return false;
    return n > 0 && strncmp(s->name, name, n) == 0 && (!name[n] || strcmp(name + n, TAG) == 0);
}

struct snapshot_obj *snapshot_named(struct core *c, const char *tenant, const char *name)
{
    for (struct snapshot_obj *o = c->snapshots; o; o = o->next)
        if (o->s.state == SNAPSHOT_READY && o->s.kind != SNAPSHOT_OF_BUILD &&
            strcmp(o->s.tenant, tenant) == 0 && has_name(&o->s, name))
            return o;
    return NULL;
}

enum err_code snapshot_missing(const char *name, struct err *e)
{
    err_set(e, ERR_NOT_FOUND, "there is no snapshot '%.100s'", name);
    err_hint(e, "`cay snapshot ls` lists those that there are");
    return ERR_NOT_FOUND;
}

const struct snapshot *core_snapshot_find(struct core *c, const char *tenant, const char *name)
{
    const struct snapshot_obj *o = snapshot_named(c, tenant, name);

    return o ? &o->s : NULL;
}

bool core_snapshot_has_name(struct core *c, const char *tenant, const char *name)
{
    const struct snapshot_obj *o = c->snapshots;

    while (o && (o->s.state == SNAPSHOT_DELETING || o->s.kind == SNAPSHOT_OF_BUILD ||
                 strcmp(o->s.tenant, tenant) != 0 || !has_name(&o->s, name)))
        o = o->next;
    return o != NULL;
}

void core_snapshot_each(struct core *c, const char *tenant, const char *sandbox, const char *name,
                        bool (*fn)(void *arg, const struct snapshot *s), void *arg)
{
    for (struct snapshot_obj *o = c->snapshots; o; o = o->next) {
        if (o->s.state != SNAPSHOT_READY || o->s.kind != SNAPSHOT_PLAIN ||
            (tenant && strcmp(o->s.tenant, tenant) != 0) ||
            (sandbox && *sandbox && strcmp(o->s.sandbox, sandbox) != 0) ||
            (name && *name && !has_name(&o->s, name)))
            continue;
        if (!fn(arg, &o->s))
            return;
    }
}

bool snapshots_lie_on(const struct core *c, const char *template_id)
{
    for (const struct snapshot_obj *o = c->snapshots; o; o = o->next)
        if (strcmp(o->s.template_id, template_id) == 0)
            return true;
    return false;
}

void snapshots_mark(const struct core *c, bool *named)
{
    for (const struct snapshot_obj *o = c->snapshots; o; o = o->next)
        named[o->s.number] = named[o->s.memory] = true;
}

const struct snapshot *snapshots_ready(struct core *c, const char *id)
{
    const struct snapshot_obj *o = snapshot_get(c, id);

    return o && o->s.state == SNAPSHOT_READY ? &o->s : NULL;
}
