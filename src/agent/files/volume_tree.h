#pragma once
/* The calls of a volume's contents that walk a tree, on the file worker. */

#include "agent/common/agent.h"

/* 200 with an array of what is below the directory, to that depth. */
void volume_tree_list(struct http_exchange *x, struct agent *a, const char *path, uint32_t depth);

/* 204 when the file, link or whole directory is gone. It is carried through also where the client
 * goes meanwhile. */
void volume_tree_remove(struct http_exchange *x, struct agent *a, const char *path);
