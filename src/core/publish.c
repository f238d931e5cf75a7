#include "core/publish.h"

#include "core/core_internal.h"
#include "core/key.h"
#include "core/published.h"
#include "core/template.h"

#include <stdio.h>
#include <string.h>

bool core_template_is_public(const struct core *c, const char *tenant, const char *name)
{
    return strcmp(tenant, CORE_OPERATOR_TENANT) == 0 && published_has(c, name);
}

/* -- what they mean ---------------------------------------------------------------------------- */

bool core_template_public(struct core *c, const char *name, struct core_public_template *out)
{
    const struct snapshot *s = published_has(c, name)
                                   ? core_snapshot_find(c, CORE_OPERATOR_TENANT, name)
                                   : NULL;
    const struct build *b = s ? NULL : core_build_named(c, CORE_OPERATOR_TENANT, name);

    if (core_template_find(c, name) || (b && !published_has(c, b->name)))
        return false;
    if (b)
        s = snapshots_ready(c, b->snapshot);
    if (!s)
        return false;
    *out = (struct core_public_template){.name = b ? b->name : s->name, .b = b, .s = s};
    return true;
}

const char *core_template_public_name(struct core *c, const char *id)
{
    const struct snapshot *s = core_snapshot_find(c, CORE_OPERATOR_TENANT, id);
    const struct build *b = s ? NULL : core_build_of_template(c, CORE_OPERATOR_TENANT, id);
    const char *name = s ? s->name : b ? b->name : "";

    return published_has(c, name) ? name : "";
}

const struct snapshot *core_template_snapshot(struct core *c, const char *tenant, const char *name)
{
    const struct snapshot *s = name ? core_snapshot_find(c, tenant, name) : NULL;
    struct core_public_template public;

    if (!s)
        s = builds_snapshot(c, tenant, name);
    return s || !name || !core_template_public(c, name, &public) ? s : public.s;
}

void core_template_each_public(struct core *c,
                               void (*fn)(void *arg, const struct core_public_template *t),
                               void *arg)
{
    struct core_public_template t;

    for (size_t i = 0; i < c->published->n; i++)
        if (core_template_public(c, c->published->names[i], &t))
            fn(arg, &t);
}

/* -- changing ---------------------------------------------------------------------------------- */

/* Of a template too that is only being built. NULL with e. */
static const char *name_of(struct core *c, const char *name, struct err *e)
{
    const struct build *b = core_build_of_template(c, CORE_OPERATOR_TENANT, name);
    const struct snapshot *s = b ? NULL : core_snapshot_find(c, CORE_OPERATOR_TENANT, name);

    if (b)
        return b->name;
    if (!s)
        err_set(e, ERR_NOT_FOUND, "template '%.100s' not found", name);
    else if (!s->name[0])
        err_set(e, ERR_INVALID, "snapshot %s has no name that it could be published by", s->id);
    return s && s->name[0] ? s->name : NULL;
}

static enum err_code add(struct core *c, const char *name, struct err *e)
{
    return core_template_find(c, name)
               ? err_set(e, ERR_CONFLICT, "there is a template %s of the server's", name)
               : published_add(c, name, e);
}

enum err_code core_template_publish(struct core *c, const char *name, bool on, const char **out,
                                    struct err *e)
{
    /* its meaning may have lost its tags: the name is taken back all the same */
    const char *found = !on && !strchr(name, ':') && published_has(c, name) ? name : NULL;

    if (core_check_ready(c, e) != ERR_OK)
        return e->code;
    if (!found)
        found = name_of(c, name, e);
    if (!found)
        return e->code;
    *out = found;
    if (on == published_has(c, found))
        return ERR_OK;
    return on ? add(c, found, e) : published_remove(c, found, e);
}
