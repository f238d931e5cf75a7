#pragma once
/* The parts of the host's /usr that a sandbox of the template `host` is not shown: files that not
 * all users of the host may read, and all of /usr/local but the directories in which programs are
 * installed. Hidden by whiteouts in a layer above it (usrmask), so that nothing is done for it when
 * a sandbox is made. Paths as in tree.h. */

#include "base/util.h"

#include <stdbool.h>

#define USR_ENTRIES_MAX 4000000u /* of what is looked at */
#define USR_HIDDEN_MAX  65536u

/* path is below usr. 0 to go on. */
typedef int (*usr_hidden_cb)(void *arg, const char *path);

/* Tells each that is to be hidden, and not what is in it. only_local: of usr/local alone, which no
 * package manager keeps account of. No link is followed. 0, what found returned, -errno, or -E2BIG
 * past the maxima. */
int usr_each_hidden(const char *usr, bool only_local, usr_hidden_cb found, void *arg) WARN_UNUSED;

/* Makes the layer mask (a directory that is there) hide them: whiteouts, and the directories above
 * them with the modes that they have in usr. 0 or -errno. */
int usr_put_mask(const char *usr, const char *mask) WARN_UNUSED;
