#pragma once
/* The log of a build as a stream of lines of text, from its first on, to a reader in another
 * thread. */

#include "core/build.h"

#define BUILD_LOG_FOLLOW_HELD_BYTES (64u * 1024u) /* beside the pipe's own */
#define BUILD_LOG_FOLLOW_EVERY_MS   100u

/* For core's other files: its streams end, since that key is no key any more, or at the core's
 * end. */
void build_log_follow_forget_key(struct core *c, const char *key_id);
void build_log_follow_stop(struct core *c);
