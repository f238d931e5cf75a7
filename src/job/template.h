#pragma once
/* A template is built beside its place and put there by one rename when it is whole, `meta` written
 * last. A broken build leaves `.build-<n>`, a replaced template `.old-<n>-<time>`; the sweep
 * removes both. The working directory is <state>/disk/templates. */

#include "base/util.h"

#include <stdbool.h>

#define TEMPLATE_ROOT      "rootfs"
#define TEMPLATE_NAME_SIZE 64 /* of its folder */

/* Where the numbers of a template's inodes begin (inodes.h); 0, as before the first call: anywhere.
 * Those of `host` begin no further than at META_HOST_INODES. */
void template_set_first_inode(uint64_t first);
uint64_t template_first_inode(void);

/* Makes an empty `.build-<number>` (removing an old one) with an empty rootfs in it. */
int template_begin(uint32_t number);

/* The same as a writable snapshot of the subvolume source_fd, which has a rootfs (layers.h). */
int template_begin_on(uint32_t number, int source_fd);

/* The working directory becomes the rootfs that is built; template_leave goes back. */
int template_enter(uint32_t number);
int template_leave(void);

/* Writes meta, and puts it in its place. An earlier tree becomes `.old-...`: sandboxes may still
 * stand on it. fingerprint may be "". It counts as least_bytes where its files are fewer. */
int template_commit(uint32_t number, const char *fingerprint, uint64_t least_bytes);

/* After a failure. */
void template_abandon(uint32_t number);

/* Whether a whole template of this fingerprint is there. */
bool template_is_current(uint32_t number, const char *fingerprint);

/* A template's folder: a subvolume at once, another tree file by file. */
int template_remove_tree(const char *name);

/* Gives a template the name old, which no other has and the sweep takes. lock: to be closed when it
 * is removed; -1 on failure. */
int template_put_aside(uint32_t number, char old[static TEMPLATE_NAME_SIZE], int *lock);

int template_sweep(void);
