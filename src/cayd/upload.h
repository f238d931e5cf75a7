#pragma once
/* Archives that clients send for builds of templates (core/build_files.h): the body goes from the
 * connection into a file that the control loop has opened for it, so that it is held nowhere. The
 * address alone, which the client was given, says that it may. */

#include "cayd/connloop_internal.h"

/* false: it is no such request. */
bool upload_handle(struct connloop *l, struct http_exchange *x);
