#pragma once
/* Templates that the operator has built and gives to all tenants: names, one row of the store each.
 * A name is looked up anew each time (a build or snapshot of the operator's tenant), so that all
 * get the newest one, and nothing where it has gone. A tenant's own template of a name comes before
 * one that is published, and so does the server's. Nothing but beginning with it is opened:
 * changing, deleting and tags ask for the caller's own tenant.
 *
 * Names that the operator deletes are not published any more, so that a later one of the same name
 * is not either. */

#include "core/build.h"
#include "core/snapshot.h"

/* The snapshot that a create or build of the tenant begins with by that name: the tenant's own
 * snapshot or build, or one that is published. NULL: there is none, and name may be the
 * server's. */
const struct snapshot *core_template_snapshot(struct core *c, const char *tenant, const char *name);

/* The name is one of the operator's tenant that is published. */
bool core_template_is_public(const struct core *c, const char *tenant, const char *name);

/* A template that all tenants may begin with. Valid until the next turn. */
struct core_public_template {
    const char *name;
    const struct build *b; /* NULL: it is a snapshot's name */
    const struct snapshot *s;
};

/* By its name, with a tag or not, or by the id of the template that a build is of. False: there is
 * none, or the server has a template of that name. */
bool core_template_public(struct core *c, const char *name, struct core_public_template *out);

/* The name of one by the id that clients are told of a sandbox; "": it is not published. */
const char *core_template_public_name(struct core *c, const char *id);

void core_template_each_public(struct core *c,
                               void (*fn)(void *arg, const struct core_public_template *t),
                               void *arg);

/* on: all tenants may begin with it from now on; name: of a build or snapshot of the operator's
 * tenant, or its id; to take one back, also a name of which nothing is there any more. *out: the
 * name, which lives until the next turn. ERR_NOT_FOUND; ERR_INVALID: that snapshot has no name;
 * ERR_CONFLICT: the server has a template of that name; ERR_EXHAUSTED. */
enum err_code core_template_publish(struct core *c, const char *name, bool on, const char **out,
                                    struct err *e);
