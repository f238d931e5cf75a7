#pragma once
/* EntryInfo, E2B's description of one file, as JSON text.
 *
 * Its oddities are the protocol's: size, permissions, owner and time are of the link itself; type
 * and mode of what it leads to (none when it leads nowhere); symlinkTarget is the fully resolved
 * path, or the link's own path when it cannot be resolved; fields with a zero value are left out.
 */

#include "agent/common/user.h"

#define FS_ENTRY_METADATA_PREFIX \
    "user.e2b." /* extended attributes that are the file's metadata \
                                              */
/* bytes of metadata in one entry; more is left out */
#define FS_ENTRY_METADATA_MAX     (64u * 1024u)
#define FS_ENTRY_PERMISSIONS_SIZE 32

/* Appends {...} for path, with `shown` as its path (NULL: the same). 0 or -errno; on failure out is
 * as before. Does a few system calls. */
int fs_entry_append(struct buf *out, const char *path, const char *shown,
                    struct user_names *names) WARN_UNUSED;

/* Appends "metadata":{...} with a leading comma when the file has any; nothing otherwise. */
int fs_entry_append_metadata(struct buf *out, const char *path) WARN_UNUSED;

/* Mode as Go's os.FileMode prints it: "-rw-r--r--", "dtrwxrwxrwx", "Lrwxrwxrwx". */
void fs_entry_permissions(mode_t mode, char out[static FS_ENTRY_PERMISSIONS_SIZE]);
