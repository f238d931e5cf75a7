#pragma once
/* The store's rows of sandboxes. */

#include "core/store.h"

enum err_code store_sandbox_insert(struct store *st, const struct sandbox *s, struct err *e);

/* state, slot, gen, started, end, what becomes of it then, flags, agent's key, what is kept and the
 * number of its signed URLs' key, of an existing row. */
enum err_code store_sandbox_update(struct store *st, const struct sandbox *s, struct err *e);

/* The same, and waits until that is on the disk: before what outlives the host is done. */
enum err_code store_sandbox_update_synced(struct store *st, const struct sandbox *s, struct err *e);

/* Memory, disk and processor time of an existing row. */
enum err_code store_sandbox_set_limits(struct store *st, const char *id,
                                       const struct privsep_limits *l, struct err *e);

/* network, policy and its own credentials of an existing row, as they are in s. */
enum err_code store_sandbox_set_network(struct store *st, const struct sandbox *s, struct err *e);
enum err_code store_sandbox_set_metadata(struct store *st, const char *id, const json_t *metadata,
                                         struct err *e);
enum err_code store_sandbox_delete(struct store *st, const char *id, struct err *e);

/* Calls fn for each row; s and its references are fn's to keep or drop, but s->tenant, which lives
 * during the call. Stops when fn fails. */
enum err_code store_sandbox_each(struct store *st,
                                 enum err_code (*fn)(void *arg, const struct sandbox *s,
                                                     struct err *e),
                                 void *arg, struct err *e);
