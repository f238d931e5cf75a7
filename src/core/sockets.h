#pragma once
/* Sockets in a sandbox that came with a batch and were not needed yet: kept for a moment. */

#include <stddef.h>

struct sandbox_obj;
struct timer;

void sockets_put(struct sandbox_obj *o, int *fds, size_t n); /* takes them over */
void sockets_discard(struct sandbox_obj *o);
void sockets_on_expiry(struct timer *t);
