#pragma once
/* Shared by the tables of records in privd's state directory: opening their file, and the sum of a
 * record. Each table has its own record, with its magic and version (kept.c, volume_records.c;
 * records.c has the sum alone). Below core: -errno. */

#include <stddef.h>
#include <stdint.h>

/* Opens, or makes, a regular file of root's alone by that name. The descriptor, which is the
 * caller's, or -errno: -EPERM where another could have written to it. No link is followed. */
int record_file_open(const char *state_dir, const char *name);

/* FNV-1a of n bytes: against damage, not against forgery; only root can write there. */
uint64_t record_file_sum(const void *record, size_t n);
