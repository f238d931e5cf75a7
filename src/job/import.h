#pragma once
/* A template out of a container image, whose layers `cay template import` has put into
 * <state>/import/<number>, root's alone. cay-unpack does the reading and writing, behind walls of
 * its own (src/unpack/walls.h); this side makes the place, hands on what it says, and puts the
 * template in its place when it is whole. A job that is killed leaves `.build-<number>`, which the
 * sweep and the next attempt remove. The working directory is <state>/disk/templates. */

#include <stdint.h>

#define IMPORT_DIR "../../import"
/* <state>/images/<number>, cayd's: of numbers beyond META_TEMPLATES_SERVER (core/image_spool.h) */
#define TENANT_IMPORT_DIR "../../../images"

int import_build(uint32_t number);

/* Removes what is in IMPORT_DIR and is not locked (flock) by the command that fills it. */
int import_sweep(void);
