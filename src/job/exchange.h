#pragma once
/* JOB_IMPORT: a file of another server (contract/exchange.h), which cayd has received, is copied
 * into a new layer in ARCHIVING_DIR, where root alone can write. Nothing of it is looked at here:
 * cay-privd has the MACs of the copy checked, and makes the layer whole. The working directory is
 * <state>/disk/templates. */

#include <stdint.h>

/* 0 or -errno, said; after a failure nothing is left. */
int exchange_receive(uint32_t number);
