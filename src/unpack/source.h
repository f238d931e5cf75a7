#pragma once
/* A layer as it is stored, read as a tar archive: as it is, or compressed once, with gzip or zstd.
 * Two readers of libarchive's, one over the other: the lower takes the compression off, and each
 * byte that it hands up is counted, whatever the archive says about its entries. */

#include "base/err.h"

#include <archive.h>
#include <stdbool.h>
#include <stdint.h>

struct source {
    struct archive *packed, *tar;
    uint64_t read, max; /* bytes without compression */
    bool is_torn;       /* the compression cannot be taken off */
    bool is_over;       /* max */
};

/* fd: from where it stands. max: bytes that may be read of it without its compression. *s stays
 * where it is until source_close. */
enum err_code source_open(struct source *s, int fd, uint64_t max, struct err *e);

/* Why reading failed, in the entry path or (NULL) between entries. */
enum err_code source_failed(const struct source *s, const char *path, struct err *e);
void source_close(struct source *s);
