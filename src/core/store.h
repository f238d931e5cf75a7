#pragma once
/* The state that survives cayd: tenants, keys and sandboxes in one SQLite file (WAL),
 * <state_dir>/cay.db.
 *
 * Written inline by the control loop: a commit is a write(2) into the log, without a sync; a kill
 * of cayd loses nothing, a loss of power at most the last moments, and then no sandbox lives
 * either. Checkpoints, which do sync, run in a helper thread with a connection of its own, when the
 * log has grown (store_checkpoint.c); it sleeps otherwise. Used by the loop's thread only.
 *
 * A sandbox's environment may hold secrets, and the agent has it: it is stored only while the
 * sandbox is paused with its files alone, as nothing else has it then, and overwritten
 * afterwards.
 *
 * The rows of each table are in a header of their own, store_sandbox.h and so on. */

#include "core/core.h"

struct store;

#define STORE_HASH_SIZE CORE_HASH_SIZE

/* Makes dir's cay.db (mode 0600) when absent and brings its schema up to date. ERR_CONFLICT when it
 * was written by a newer cay, or another cayd uses it. */
enum err_code store_open(const char *dir, struct store **out, struct err *e);
void store_close(struct store *st);
