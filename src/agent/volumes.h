#pragma once
/* Links to volumes. The starter of cay-init has mounted them at AGENT_VOLUMES_DIR/<place>; here,
 * from inside and with the sandbox's own rights alone, a link is made where its owner wants
 * each. */

#include "base/err.h"

#include <jansson.h>
#include <stdbool.h>

/* links: an array of {"path", "place"} (NULL: none). A link to the volume stands at each path
 * afterwards; missing directories above it are made. An empty directory there goes. is_new: nothing
 * ran in the sandbox's files yet, and a directory with files goes likewise (volume_place.h).
 * ERR_CONFLICT: something else is there, which stays. */
enum err_code volumes_link(const json_t *links, bool is_new, struct err *e);
