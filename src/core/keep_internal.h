#pragma once
/* Steps that keep.c, keep_restart.c and keep_settle.c share, and the end (lifecycle_end.c). */

#include "core/core.h"

#include <stdint.h>

/* Until KEPTS is asked again, for what privd is still at. */
#define KEPTS_AGAIN_MS 500u

/* KEEP, of a sandbox that is being paused or is to be where it was; the answer decides which. 0 or
 * -errno. */
int64_t keep_send_request(struct sandbox_obj *o);

/* No process of it is left: its files are, and its memory where that is kept beside them. */
void keep_mark_kept(struct sandbox_obj *o);

/* It was being restarted, and is paused as before. */
void keep_stays_kept(struct sandbox_obj *o);

/* It was made, and is not to run: its own files are kept again. Where that cannot be asked for now,
 * its timer asks again, and after an end of the channel LIST has it. */
void keep_files_again(struct sandbox_obj *o);
