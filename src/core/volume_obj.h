#pragma once
/* volume.c's object of a volume, for volume_find.c, which finds them, and volume_mount.c. */

#include "core/tenant.h"
#include "core/timers.h"
#include "core/volume.h"

struct volume_obj {
    struct volume v;
    struct volume_obj *next; /* older ones */
    struct core *core;
    struct tenant *tenant;
    struct tenant_charge charge, disk;
    struct timer again;
    struct volume_waiter *waiters; /* volume_content.c: calls of its contents */
    struct timer idle;   /* armed while they are served and nothing was asked, or wait for room */
    unsigned room_tries; /* since they wait for room: how often another one was to make way */
    bool starting;       /* the sandbox that serves them is being made, or was just refused */
    bool releasing;      /* its agent was asked to serve no more */
    void (*unserved)(struct volume_obj *v); /* nothing serves its contents any more */
    bool requested; /* privd owes the answer to VOLUME_MAKE or VOLUME_REMOVE */
    core_volume_cb made;
    core_done_cb removed;
    void *arg;
};

/* By id; NULL: there is none. */
struct volume_obj *volume_get(struct core *c, const char *id);

/* The tenant's, by id or name; in any state where `ready` is false. NULL: it has none. */
struct volume_obj *volume_find(struct core *c, const char *tenant, const char *name, bool ready);

/* Sets and returns ERR_NOT_FOUND: the tenant has no volume of that name. */
enum err_code volume_missing(const char *name, struct err *e);

/* volume_content.c */
void volume_content_on_idle(struct timer *t);

/* A sandbox that names the volume, other than `but` (NULL: any) and
 * what serves its contents: a paused one as well, where wanted
 * is NULL; else one that has it mounted in a way that excludes what is wanted. NULL: none. */
const struct sandbox_obj *volume_user(const struct volume_obj *v, const struct sandbox *but,
                                      const json_t *wanted);
