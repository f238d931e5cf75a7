#pragma once
/* What the parts of cay-checkpoint share: the numbers of its descriptors, and how it says why
 * not. */

#include "base/util.h"

#define CHECKPOINT_PID_FD    3 /* a pidfd of the sandbox's PID 1 */
#define CHECKPOINT_DIR_FD    4 /* the image's directory: empty, and the sandbox's first id's */
#define CHECKPOINT_ASK_FD    5 /* written to: one line when all is in the directory */
#define CHECKPOINT_ANSWER_FD 6 /* read from: CHECKPOINT_END, or anything else */

#define CHECKPOINT_END  'e' /* the sandbox's processes end, as its image is kept */
#define CHECKPOINT_DONE "D\n"

#define CHECKPOINT_CRIU      "/usr/local/sbin/criu"
#define CHECKPOINT_SELF_DIR  "/proc/self/fd/4"
#define CHECKPOINT_TMPFS_TAR "tmpfs.tar"

/* Why it could not be done: a sentence of printable ASCII. */
struct checkpoint_why {
    char text[200];
};

PRINTF(3, 4) int checkpoint_fail(struct checkpoint_why *why, int rc, const char *format, ...);
