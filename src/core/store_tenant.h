#pragma once
/* The store's rows of tenants. */

#include "core/store.h"

struct core_tenant;

/* The tenant's ceiling, NULL when it has none; a new reference. ERR_NOT_FOUND. */
enum err_code store_tenant_ceiling(struct store *st, const char *tenant, json_t **out,
                                   struct err *e);

/* NULL: none. ERR_NOT_FOUND. */
enum err_code store_tenant_set_ceiling(struct store *st, const char *tenant, const json_t *ceiling,
                                       struct err *e);

/* By name; t lives during the call. Stops when fn fails. */
enum err_code store_tenant_each(struct store *st,
                                enum err_code (*fn)(void *arg, const struct core_tenant *t,
                                                    struct err *e),
                                void *arg, struct err *e);
