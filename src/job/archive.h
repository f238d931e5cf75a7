#pragma once
/* The kept layer of a number as a file (contract/archive.h), in a new layer of the same number in
 * ARCHIVING_DIR: the layer's contents are in the file alone, and the directories that an overlay
 * mounts above it are empty, but with the modes and owners that they had. The kept layer is only
 * read. cay-privd puts the one in the place of the other, or removes the new one. */

#include <stdint.h>

/* 0 or -errno, said (say.h). -EALREADY: it has such a file already; -EOPNOTSUPP: a part of it
 * cannot be in one. After a failure nothing is left. */
int archive_build(uint32_t number);

/* The same file of a kept layer that stays, for other servers (contract/exchange.h): in a snapshot
 * of the layer, EXCHANGE_EXPORT_NUMBER in ARCHIVING_DIR, so that what is kept may be used and
 * removed meanwhile. 0 or -errno, said; after a failure nothing is left. */
int archive_export(uint32_t number);
