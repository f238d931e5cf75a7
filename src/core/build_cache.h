#pragma once
/* Steps of builds that are not run again: what the files were after a step, as a snapshot
 * (SNAPSHOT_OF_BUILD), with the user, folder and variables that held then. A step is known by the
 * SHA-256 of its base, its type, its args and its files' hash. Its base is the snapshot of the step
 * before it, or the base of the build, with its limits: user, folder and variables follow from
 * that.
 *
 * Steps are never shared by tenants. They are in memory alone: after a restart of cayd all are gone
 * (builds_ready removes their snapshots). They give way to all else that a tenant keeps. */

#include "core/build_run.h"

#define CORE_BUILD_CACHED             64u    /* steps of a tenant */
#define CORE_BUILD_CACHED_ALL         256u   /* of all: a quarter of what the server can keep */
#define CORE_BUILD_CACHED_STATE_BYTES 65536u /* of the variables of one, as JSON */

struct build_cached;

/* Before the sandbox is made: what the build begins with, and the steps from the first on that need
 * not run. r->at, r->on, r->cached, user, folder and variables are as after the last of them. */
bool build_cache_find(struct build_run *r);

/* The step r->at has succeeded: kept, where that is possible. done: once, perhaps from inside, but
 * not at the core's end. */
void build_cache_keep(struct build_run *r, void (*done)(struct build_run *r));

/* Those that this template's builds were the last to use. */
void build_cache_forget(struct core *c, const char *tenant, const char *template_id);

/* Is that snapshot one of a step? */
bool build_cache_has(const struct core *c, const char *snapshot);

/* At the core's end. */
void build_cache_free(struct core *c);
