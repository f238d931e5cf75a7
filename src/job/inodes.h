#pragma once
/* Numbers of a template's files. In a sandbox an overlay shows them beside those of its layer, a
 * subvolume of the same btrfs, under one st_dev; in each subvolume they are counted from 257. So
 * that two files never have the same, those of templates begin beyond those of layers.
 *
 * btrfs counts on with each new inode, also of a file without a name, and after a mount from the
 * highest that there is. So the count is raised once for a state disk, by files without a name, and
 * a file that stays keeps it. */

#include "base/util.h"

/* The file, in the folder that is the working directory's parent (the root of the state disk). */
#define INODES_KEEPER "inodes"

/* Inodes that are made between two keepers: so many are made again where the job is killed. */
#define INODES_KEEP_EACH 65536u

/* New inodes of the working directory's subvolume have numbers of at least first when this returns
 * 0, and after every mount from then on. first 0: nothing is done. number: of the template, for a
 * name that no other job uses. Says progress where it takes long, and the reason of a failure
 * (say.h). 0 or -errno. */
int inodes_raise(uint32_t number, uint64_t first) WARN_UNUSED;
