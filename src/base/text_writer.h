#pragma once
/* A text that is put together piece by piece, whose first error is kept and looked at once, at its
 * end: nothing is written after it. The owner has initialized `buf`, and frees it. */

#include "base/buf.h"
#include "base/util.h"

struct text_writer {
    struct buf buf;
    int failed; /* 0, or the -errno of the first error */
};

void text_writer_put(struct text_writer *t, const char *fmt, ...) PRINTF(2, 3);
