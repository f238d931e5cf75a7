#pragma once
/* Sandboxes that count as archived: their files alone are kept, and their owner has said so, or
 * their time since the stop is over. */

#include "core/core.h"

#define CORE_ARCHIVE_DEFAULT_MS (7ll * 86400 * 1000)
#define CORE_ARCHIVE_MAX_MS     (30ll * 86400 * 1000)

/* A sandbox whose files alone are kept counts as archived from now on, until it is resumed.
 * ERR_CONFLICT: it is not stopped. Written through. */
enum err_code core_sandbox_archive(struct core *c, const char *tenant, const char *id,
                                   const struct sandbox **out, struct err *e);

/* It counts as archived so long after its stop; 1 to CORE_ARCHIVE_MAX_MS. Written through. */
enum err_code core_sandbox_set_auto_archive(struct core *c, const char *tenant, const char *id,
                                            int64_t after_ms, const struct sandbox **out,
                                            struct err *e);
bool core_sandbox_is_archived(const struct sandbox *s, int64_t now_real_ms);
