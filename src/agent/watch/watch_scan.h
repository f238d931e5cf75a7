#pragma once
/* Scans of a watched tree: the names in a directory that is new to it. */

#include "agent/watch/watch_dirs.h"

/* Watches the directory name in parent (NULL and "" for the root). 0, also when it has vanished;
 * -ENOSPC over a limit; -errno. */
int watch_scan_directory(struct watch_tree *t, struct dir *parent, const char *name, bool report);

/* d is to be scanned; report: the entries that are found are reported. */
void watch_scan_queue(struct watch_tree *t, struct dir *d, bool report);
void watch_scan_take_off(struct watch_tree *t, struct dir *d);

/* Scans a buffer of names. False: no scan is left. */
bool watch_scan_step(struct watch_tree *t);
