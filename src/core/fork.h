#pragma once
/* A fork: new sandboxes that begin with the files of one that runs, as they are at one moment, and
 * with its environment, metadata (but for keys that begin with "cay."), policy, credentials, limits
 * and lifecycle. Their programs begin anew. It is a snapshot that is taken once and goes with the
 * fork, and as many creates on it; each succeeds or fails by itself. */

#include "core/core.h"

#define CORE_FORKS_MAX 100u /* of one call */

struct core_fork {
    char id[IDS_SANDBOX_SIZE]; /* "": it could not be made */
    struct err why;            /* then */
};

/* Valid during the call. why NULL: each of forks[n] says how it went. */
typedef void (*core_fork_cb)(void *arg, const struct core_fork *forks, size_t n,
                             const struct err *why);

/* ERR_INVALID: count is not of 1 to CORE_FORKS_MAX; ERR_NOT_FOUND; ERR_CONFLICT: it does not run;
 * else as of core_snapshot_create. */
void core_sandbox_fork(struct core *c, const char *tenant, const char *id, int64_t ttl_ms,
                       size_t count, core_fork_cb done, void *arg);
