#pragma once
/* The contents of a volume, for clients of E2B's /volumecontent: what a cay-init serves that was
 * started for that alone, and nothing else. No program runs beside it; its root is the volume
 * (chroot), so that ".." and links lead to the volume's own files and nowhere else.
 *
 * GET, PATCH and DELETE /volumecontent/ID/path, GET and POST .../dir, GET, HEAD and PUT .../file,
 * with ?path=. Which volume it is, and whether the client may, was decided by cayd. */

#include "agent/common/agent.h"

#define VOLUME_CALLS_MAX    16u /* at a time: more are answered 429 */
#define VOLUME_LIST_ENTRIES 10000u
#define VOLUME_LIST_BYTES   (8u * 1024u * 1024u)
#define VOLUME_DEPTH_MAX    64
#define VOLUME_PREFIX       "/volumecontent/"
#define VOLUME_END_PATH     "/cay/volume-end"

/* From now on this process serves the volume at that place of the sandbox. 0 or -errno. */
int volume_files_begin(struct agent *a) WARN_UNUSED;

/* The requests of such a process, but for /health. */
void volume_files_dispatch(struct http_exchange *x, struct agent *a);
