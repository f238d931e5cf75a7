#pragma once
/* Whose a file of a volume becomes, and its mode, as a call of the volume's contents says it
 * (volume_files.h). */

#include "agent/common/agent.h"

#define FILES_OWNER_DEFAULT 1000u  /* uid and gid of what is made: the sandboxes' `user` */
#define FILES_OWNER_MAX     65534u /* the ids of a sandbox are 0 to 65535, and -1 is none */
#define FILES_MODE_MAX      07777u

struct files_owner {
    bool has_uid, has_gid, has_mode;
    bool exclusive; /* a file that is there already is not replaced */
    uint32_t uid, gid, mode;
};

/* uid, gid, mode and force of the query. Answers 400 and returns false when one is malformed. */
bool files_owner_query(struct http_exchange *x, struct files_owner *out, bool *force);

/* Gives what path names (no link is followed at its end) to its owner. made: it is new, and values
 * not said have their defaults; else they stay. 0 or -errno. */
int files_owner_apply(const char *path, const struct files_owner *o, bool made) WARN_UNUSED;

/* Opens a regular file for writing, which is made where it is not there; its directory has to be.
 * -EEXIST with `exclusive`; else as fs_open_for_write. */
int files_owner_open(const char *path, const struct files_owner *o, struct stat *st) WARN_UNUSED;
