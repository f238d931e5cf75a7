#pragma once
/* Layers of images, shared by their digests. The tree that the lowest n layers of an image make is
 * kept as a read-only subvolume `.layers/<name>`; the next template with the same n layers begins
 * as a snapshot of it, so that their bytes are on the disk once, and the file system counts who
 * uses each extent. A template's own tree is whole in its own subvolume: no removal of a layer
 * changes it.
 *
 * The program that left the image says what may be shared (the file `layers` of its folder): a line
 * of 64 hex digits for the tenant, then one for each layer, of all digests up to it. Names of the
 * server's templates, whose images root leaves, are apart from all others.
 *
 * Journal: `<template>/layers` names all that a template stands on or will make, and is written,
 * under the lock of `.layers`, before the first of them is used. A layer that no such file names is
 * removed by the sweep, under the same lock; nothing is counted. A build that gets its place while
 * the sweep looks may be overlooked: then its layers go, its tree stays, and the next image makes
 * them again. The working directory is <state>/disk/templates. Where that is no btrfs, or the file
 * is not there, nothing is shared. */

#include "base/util.h"

#include <stdbool.h>

#define LAYERS_MAX         128u /* src/unpack/main.c has the same */
#define LAYERS_NAME_SIZE   160u
#define LAYERS_COUNTS_SIZE 160u
#define LAYERS_NAMED_BYTES (64u * 1024 * 1024) /* of names that all templates have together */

struct layers {
    uint32_t number; /* of the template */
    size_t count;    /* of the image; 0: they are not shared */
    size_t have;     /* so many of them are in the tree already */
    char names[LAYERS_MAX][LAYERS_NAME_SIZE];
    char counts[LAYERS_COUNTS_SIZE]; /* of those that are in the tree, as cay-unpack says them */
    uint64_t bytes;                  /* of the layers that it began with: layers_bytes of theirs */
    uint64_t at_first, now;          /* that the file system counts for the tree's subvolume */
};

/* Reads which there are. 0 also where they are not shared; -EINVAL: the file is not as above. */
int layers_read(const char *spool, uint32_t number, uint64_t first_inode, struct layers *out);

/* template_begin, with as many layers in the tree as are kept. Says why not (say.h). */
int layers_begin(struct layers *l);

/* The tree has one more, whole: it is kept. */
int layers_keep(struct layers *l);

/* Removes the template, and the layers that no other one names. Says why not. */
int layers_remove_template(uint32_t number);

/* Bytes that the layers which are in the tree take on the disk, each with what a higher one has
 * replaced and with the blocks of names that were copied for it. Of those that were there already
 * the highest counts without such blocks; all are 0 where the file system has no quotas. */
uint64_t layers_bytes(const struct layers *l);

/* Removes those that no template names, and seeds of another setting. */
int layers_sweep(void);
