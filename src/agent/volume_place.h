#pragma once
/* A directory that has files where a volume or a directory of the host is wanted, in a sandbox that
 * is new: what the template has there goes into a volume that is new too, and makes way for one
 * that is not, or is only read. From inside, with the sandbox's own rights alone. */

/* path is clean, absolute and no link; volume is the absolute path of the mounted one. Afterwards
 * nothing is at path. A call that failed, or was cut off, is gone on with by the next of the same
 * volume. Blocks for the time that VOLUME_PLACE_ENTRIES_MAX files and VOLUME_PLACE_BYTES_MAX bytes
 * take to be copied. 0; -EEXIST: it is no directory, is one of the system's, or has more in it than
 * these; -errno. */
int volume_place_clear(const char *path, const char *volume);

#define VOLUME_PLACE_ENTRIES_MAX 4096u
#define VOLUME_PLACE_BYTES_MAX   (64u * 1024u * 1024u)
