#pragma once
/* VolumeEntryStat, E2B's description of one entry of a volume: of the entry itself, also where it
 * is a link. */

#include "base/buf.h"

/* Appends {...}; shown is its path in the volume. 0 or -errno, then out is as before. */
int volume_entry_append(struct buf *out, const char *path, const char *shown) WARN_UNUSED;
