/* The template that clients see a sandbox was made of. */

#include "base/ids.h"
#include "core/build.h"
#include "core/core.h"
#include "core/publish.h"
#include "core/snapshot.h"

#include <string.h>

bool core_sandbox_has_files_of(const struct sandbox *s)
{
    return ids_is_snapshot(s->template_requested) || ids_is_template(s->template_requested);
}

const char *core_sandbox_template_id(const struct sandbox *s)
{
    return core_sandbox_has_files_of(s) ? s->template_requested : s->template_id;
}

const char *core_sandbox_template_alias(struct core *c, const struct sandbox *s)
{
    const char *id = core_sandbox_template_id(s), *name = s->template_requested;

    if (core_sandbox_has_files_of(s)) {
        const struct snapshot *snapshot = core_snapshot_find(c, s->tenant, id);

        name = snapshot ? snapshot->name : core_build_template_name(c, s->tenant, id);
        if (!*name && !snapshot)
            name = core_template_public_name(c, id);
    }
    return strcmp(name, id) == 0 ? "" : name;
}
