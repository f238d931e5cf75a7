#pragma once
/* The isolation levels that can be used on this machine, and which of them each slot has. */

#include "contract/proto.h"
#include "runtime/runtime.h"

struct privd;

/* Asks each isolation level whether it can be used here. 0, or -errno (logged) when none can. */
int levels_probe(struct privd *p);
void levels_free(struct privd *p);

/* The row of a level that can be used here, or NULL. */
const struct runtime_driver *levels_driver(const struct privd *p, uint32_t level);

/* Notes the level of a slot's use, for a process that was forked before that use began. */
void levels_set_slot(struct privd *p, uint32_t slot, uint32_t level);

/* The row of the level that a slot has, or had last. NULL: it was not used yet. */
const struct runtime_driver *levels_driver_of_slot(const struct privd *p, uint32_t slot);

/* From now on this process cannot change which level a slot has. 0 or -errno. */
int levels_seal_slots(const struct privd *p);

/* Why not, as printable text. */
void levels_why(const struct privd *p, uint32_t level, char out[static PRIVSEP_WHY_SIZE]);
