#pragma once
/* Other limits for a sandbox that is there: memory, processor time and disk. Its processes go on;
 * where its files alone are kept the limits are set when it runs again. They stay over pauses and
 * restarts, and its forks and snapshots have them. */

#include "core/core.h"

/* Of to memory_bytes, disk_bytes and cpu_milli; 0: stays. done when they hold. ERR_INVALID: less
 * than there may be, or more than a sandbox of its template gets; ERR_EXHAUSTED: beyond its
 * tenant's quota; ERR_CONFLICT: it uses more, or is being changed; ERR_UNIMPLEMENTED: the disk of
 * this server has a size that stays; ERR_NOT_FOUND, ERR_TIMEOUT, ERR_UNAVAILABLE: nothing has
 * changed. */
void core_sandbox_resize(struct core *c, const char *tenant, const char *id,
                         const struct privsep_limits *to, core_sandbox_cb done, void *arg);

/* -- for core ---------------------------------------------------------------------------------- */

struct sandbox_obj;

/* LIST says that it has those limits: where others were wanted, they are asked for. */
void resize_on_listed(struct sandbox_obj *o, uint64_t memory_bytes, uint64_t disk_bytes,
                      uint32_t cpu_milli);
