#pragma once
/* The end of an event loop: nothing may be left on it. */

#include <uv.h>

/* Closes the loop, which does not run any more and whose parts are all freed. Aborts where a handle
 * is left, with the type of each in the log: its owner has forgotten it, or its memory is freed
 * before libuv lets go of it. name is for the log. */
void loop_end(uv_loop_t *loop, const char *name);
