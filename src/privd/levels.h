#pragma once
/* The isolation levels that can be used on this machine. */

#include "contract/proto.h"
#include "runtime/runtime.h"

struct privd;

/* Asks each isolation level whether it can be used here. 0, or -errno (logged) when none can. */
int levels_probe(struct privd *p);

/* The row of a level that can be used here, or NULL. */
const struct runtime_driver *levels_driver(const struct privd *p, uint32_t level);

/* Why not, as printable text. */
void levels_why(const struct privd *p, uint32_t level, char out[static PRIVSEP_WHY_SIZE]);
