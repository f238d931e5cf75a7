#pragma once
/* The store's rows of snapshots. */

#include "core/snapshot.h"
#include "core/store.h"

enum err_code store_snapshot_insert(struct store *st, const struct snapshot *s, struct err *e);

/* state and name of an existing row; waits until that is on the disk. */
enum err_code store_snapshot_update(struct store *st, const struct snapshot *s, struct err *e);

/* memory and memory_of of an existing row, in the same way. */
enum err_code store_snapshot_memory(struct store *st, const struct snapshot *s, struct err *e);
enum err_code store_snapshot_delete(struct store *st, const char *id, struct err *e);

/* Calls fn for each row; s and its strings live during the call. Stops when fn fails. */
enum err_code store_snapshot_each(struct store *st,
                                  enum err_code (*fn)(void *arg, const struct snapshot *s,
                                                      struct err *e),
                                  void *arg, struct err *e);
