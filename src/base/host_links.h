#pragma once
/* The links in the root of a host with one /usr (/bin, /lib and their like), which templates of the
 * host and privd's own root have too. Blocks as readlink(2) does. */

#include "base/util.h"

#define HOST_LINKS_COUNT  6
#define HOST_LINKS_TARGET 64

extern const char *const host_links_names[HOST_LINKS_COUNT];

/* Where the i-th of them leads: 1 and out; 0: the host has no such name; -ENOTSUP: it is not a
 * link. */
int host_links_read(size_t i, char out[static HOST_LINKS_TARGET]) WARN_UNUSED;
