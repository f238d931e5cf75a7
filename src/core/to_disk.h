#pragma once
/* The memory of frozen sandboxes goes to the disk: of each that has been frozen for so long as it
 * or the settings say (sandbox.to_disk_ms, core_config.to_disk_after_ms), and, while the host has
 * less memory left than to_disk_below_pct of all, of that which has been frozen longest; one at a
 * time.
 *
 * A sandbox that is frozen cannot be dumped: it goes on for a moment, in which its agent prepares,
 * and is paused with its memory then. As long as that is under way `moving` stands in its row: its
 * owner has it paused, so that whatever fails or ends in between, it is paused again, frozen. A
 * resume comes first. */

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct core;
struct sandbox_obj;

/* A sandbox was frozen, or is not being moved any more: when is the next one due? */
void to_disk_arm(struct core *c);

/* It goes on. true: it is being moved, and no caller wants it to run, so that it is being paused
 * again. */
bool to_disk_goes_on(struct sandbox_obj *o);

/* It was not paused, for that reason. true: it was being moved, and is being frozen again. */
bool to_disk_not_done(struct sandbox_obj *o, const struct err *why);

/* Its timer has fired while it runs. true: it is to be frozen again, and that is tried. */
bool to_disk_on_timer(struct sandbox_obj *o);

/* A caller wants it to run for ttl_ms (0: the default): if it is being moved it runs, and is not
 * frozen again. */
void to_disk_give_up(struct sandbox_obj *o, int64_t ttl_ms);
