#pragma once
/* Templates with memory: a sandbox is made of a snapshot as any other, its start command runs under
 * its agent until its port listens and the ready command succeeds, and it is paused with its memory
 * on the disk, which becomes the snapshot's (snapshot_memory.h). It has no variables, no
 * credentials and no policy but the preset of builds, so that nothing that a tenant gives a sandbox
 * at its create is in memory that others begin with. Until then it is the tenant's own as one of a
 * build is, with `cay.template.memory` in its metadata, and ended where that fails, and by the next
 * start of cayd. */

#include "core/core.h"

#define TEMPLATE_MEMORY_TIME_MS  600000u /* from the create to the pause */
#define TEMPLATE_MEMORY_METADATA "cay.template.memory"

struct template_memory_request {
    const char *tenant;
    const char *snapshot;         /* its id, of any kind */
    const char *ready;            /* a command of bash; NULL: none */
    const char *ready_user, *cwd; /* of that */
    json_t *env;                  /* borrowed, of that; may be NULL */
    uint64_t ready_ms;            /* in which it has to succeed; 0: half of the time of all */
    uint64_t settle_ms;           /* to be waited where there is none */
};

/* done once, never from inside; why NULL: the snapshot has memory. ERR_NOT_FOUND: it was removed;
 * ERR_UNIMPLEMENTED: a process cannot be kept, or the server cannot; and what a create and a pause
 * may say. The snapshot is as it was then. */
void template_memory_make(struct core *c, const struct template_memory_request *r,
                          core_done_cb done, void *arg);

/* The same of a tenant's own snapshot by id or name, one of builds aside; ready: of root in /;
 * NULL: none. */
void core_snapshot_add_memory(struct core *c, const char *tenant, const char *name,
                              const char *ready, core_done_cb done, void *arg);

/* At the core's end: those who wait are told. */
void template_memory_stop(struct core *c, const struct err *why);

/* LIST was answered: sandboxes that an earlier cayd made for this end. */
void template_memory_ready(struct core *c);
