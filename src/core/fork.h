#pragma once
/* A fork: new sandboxes that begin with the files of one that runs, as they are at one moment, and
 * with its environment, metadata (but for keys that begin with "cay."), policy, credentials, limits
 * and lifecycle. Their programs begin anew. It is a snapshot that is taken once and goes with the
 * fork, and as many creates on it; each succeeds or fails by itself.
 *
 * With memory their programs go on where the source's stood. The source is paused with its memory
 * on the disk, the forks are made of copies of that one after the other, and it is resumed; one
 * that is paused so already stays so. A resume that is asked for meanwhile waits for the last of
 * them. A cayd that ends meanwhile leaves it paused. */

#include "core/core.h"

#define CORE_FORKS_MAX 100u /* of one call */

struct core_fork {
    char id[IDS_SANDBOX_SIZE]; /* "": it could not be made */
    struct err why;            /* then */
    /* The source was paused for the forks and does not go on: why. NULL: it does, or was paused
     * before. */
    const struct err *source;
};

/* The settings in which the forks differ from the source. */
struct core_fork_request {
    size_t count;
    bool memory;     /* their programs go on */
    int64_t ttl_ms;  /* until their end; 0: idle_ms alone says when */
    int64_t idle_ms; /* as of a create */
    int64_t destroy_ms;
    const char *name; /* of one fork alone, one of a kind for the tenant; NULL: none */
};

/* Valid during the call. why NULL: each of forks[n] says how it went. */
typedef void (*core_fork_cb)(void *arg, const struct core_fork *forks, size_t n,
                             const struct err *why);

/* r is read during the call. ERR_INVALID: count is not of 1 to CORE_FORKS_MAX, or has a name beside
 * others, or no end; ERR_EXISTS: the name is taken; ERR_NOT_FOUND; ERR_CONFLICT: it does
 * not run; else as of core_snapshot_create. */
void core_sandbox_fork(struct core *c, const char *tenant, const char *id,
                       const struct core_fork_request *r, core_fork_cb done, void *arg);

/* The tenant's sandboxes that clients know of and that were made as forks of the one with that id,
 * the newest first, at most max: how many. */
size_t core_sandbox_forks(struct core *c, const char *tenant, const char *id,
                          const struct sandbox **out, size_t max);
