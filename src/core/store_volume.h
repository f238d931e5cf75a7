#pragma once
/* The store's rows of volumes. */

#include "core/store.h"
#include "core/volume.h"

/* Both wait until that is on the disk: a volume outlives the host, and one without a row is left
 * alone (volumes_request). */
enum err_code store_volume_insert(struct store *st, const struct volume *v, struct err *e);
enum err_code store_volume_set_state(struct store *st, const char *id, enum volume_state state,
                                     struct err *e);
enum err_code store_volume_delete(struct store *st, const char *id, struct err *e);

/* Calls fn for each row; v and its strings live during the call. Stops when fn fails. */
enum err_code store_volume_each(struct store *st,
                                enum err_code (*fn)(void *arg, const struct volume *v,
                                                    struct err *e),
                                void *arg, struct err *e);
