#pragma once
/* The store's rows of quotas and of usage. */

#include "core/quota.h"
#include "core/store.h"
#include "core/usage.h"

/* most QUOTA_NONE: the row is removed. */
enum err_code store_quota_put(struct store *st, const char *tenant, const char *name, int64_t most,
                              struct err *e);
enum err_code store_quota_each(struct store *st, const char *tenant,
                               void (*fn)(void *arg, const char *name, int64_t most), void *arg,
                               struct err *e);

/* Adds to what the hour has; of USAGE_PEAK_SANDBOXES the greater stays. */
enum err_code store_usage_add(struct store *st, const char *tenant, const struct core_usage *u,
                              struct err *e);

/* Hours that began within [from, to), oldest first; u lives during the call. */
enum err_code store_usage_each(struct store *st, const char *tenant, int64_t from_ms, int64_t to_ms,
                               void (*fn)(void *arg, const struct core_usage *u), void *arg,
                               struct err *e);
enum err_code store_usage_purge(struct store *st, int64_t before_ms, struct err *e);
