#pragma once
/* A MIME bundle of a kernel as one line of the stream: text, html, png, ... and types without a
 * name of their own under "extra". */

#include <jansson.h>
#include <stdbool.h>

/* A new object, or NULL. bundle may be anything that a kernel sends. */
json_t *result_line(const json_t *bundle, bool is_main);
