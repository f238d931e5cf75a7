#pragma once
/* POST /cay/v1/snapshots/import (core/transfer.h): the API is asked with the key, and without the
 * body, for a file; the body is written to that as it comes, so that it is held nowhere; then the
 * API is asked again, and its answer is the client's. */

#include "cayd/connloop_internal.h"

/* false: it is no such request. */
bool snapshot_import_handle(struct connloop *l, struct http_exchange *x);
