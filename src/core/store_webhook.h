#pragma once
/* The store's rows of webhooks and their deliveries. */

#include "core/store.h"

struct webhook_row;

/* A delivery as its row has it; texts are borrowed. */
struct delivery_row {
    int64_t id;
    const char *message, *type, *body, *why;
    unsigned attempts;
    bool dead;
    int64_t due_ms, made_ms; /* by the real clock */
};

enum err_code store_webhook_insert(struct store *st, const struct webhook_row *w, struct err *e);

/* With its deliveries; one transaction. */
enum err_code store_webhook_delete(struct store *st, const char *id, struct err *e);

/* Oldest first; w lives during the call. Stops when fn fails. */
enum err_code store_webhook_each(struct store *st,
                                 enum err_code (*fn)(void *arg, const struct webhook_row *w,
                                                     struct err *e),
                                 void *arg, struct err *e);

/* Due at d->made_ms; id, attempts and why are not read. */
enum err_code store_delivery_insert(struct store *st, const char *webhook,
                                    const struct delivery_row *d, struct err *e);
enum err_code store_delivery_delete(struct store *st, int64_t id, struct err *e);

/* fn with the one of the webhook that waits and is due first; ERR_NOT_FOUND: none waits. */
enum err_code store_delivery_next(struct store *st, const char *webhook,
                                  void (*fn)(void *arg, const struct delivery_row *d), void *arg,
                                  struct err *e);

/* After an attempt that failed: d's id, attempts, due_ms, dead, why. Where it is dead, only the
 * newest `keep` dead ones of the webhook stay; *gone: how many went. */
enum err_code store_delivery_again(struct store *st, const char *webhook,
                                   const struct delivery_row *d, uint64_t keep, uint64_t *gone,
                                   struct err *e);

/* The dead ones wait again, due at due_ms; *count: how many. */
enum err_code store_delivery_revive(struct store *st, const char *webhook, int64_t due_ms,
                                    uint64_t *count, struct err *e);

/* Oldest first. */
enum err_code store_delivery_each(struct store *st, const char *webhook,
                                  void (*fn)(void *arg, const struct delivery_row *d), void *arg,
                                  struct err *e);
