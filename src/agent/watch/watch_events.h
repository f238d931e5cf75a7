#pragma once
/* Events of the kernel about a watched tree. */

#include <stdbool.h>

struct watch_tree;

/* Reads a buffer of events. True when there may be more. */
bool watch_events_read(struct watch_tree *t);
