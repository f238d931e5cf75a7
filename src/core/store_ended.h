#pragma once
/* The store's rows of sandboxes that have ended, or are ending, and why. */

#include "core/ended.h"
#include "core/store.h"

struct store_ended {
    char id[IDS_SANDBOX_SIZE], template_id[CORE_NAME_SIZE];
    char reason[32]; /* a word of docs/events.md */
    int64_t started_real_ms, ended_real_ms;
};

/* A row that the sandbox has already is replaced. */
enum err_code store_ended_put(struct store *st, const char *tenant, const struct store_ended *row,
                              struct err *e);

/* ERR_NOT_FOUND: no sandbox of the tenant's has ended under that id within ENDED_LIFE_MS. The
 * look-up goes by tenant and id at once, so that another tenant's takes as long as none. */
enum err_code store_ended_find(struct store *st, const char *tenant, const char *id, int64_t now_ms,
                               struct store_ended *out, struct err *e);

/* Calls fn for the tenant's, the newest first, limit at most. */
enum err_code store_ended_each(struct store *st, const char *tenant, int64_t now_ms, size_t limit,
                               void (*fn)(void *arg, const struct store_ended *row), void *arg,
                               struct err *e);
