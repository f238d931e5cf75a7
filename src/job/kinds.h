#pragma once
/* Builders of the templates that are known by number. The working directory is
 * <state>/disk/templates; each says progress and the reason of a failure (say.h). 0 or -errno. */

#include <stdbool.h>
#include <stdint.h>

/* Template `host`: a generated /etc over the host's own /usr. only_if_stale: nothing when what is
 * there was made from the host as it is now. */
int host_build(bool only_if_stale);

/* Template `base`: a Debian of its own by mmdebstrap. */
int base_build(void);

/* Inside a rootfs (the working directory): user `user`, sudo, homes and mount points, as every
 * template has them. */
int account_put(void);

/* Puts the command cay-denials into a directory, which is made: 0 or -errno. */
int account_put_denials(const char *dir);
