#pragma once
/* Shared by webhook.c (the list), webhook_send.c (their deliveries) and the store. */

#include "base/share.h"
#include "core/tenant.h"
#include "core/timers.h"
#include "core/webhook.h"

struct webhook {
    struct webhook *next; /* oldest first */
    struct core *core;
    struct tenant *tenant;
    struct tenant_charge charge, deliveries; /* the second: for `waiting` */
    char id[CORE_WEBHOOK_ID_SIZE];
    char url[CORE_WEBHOOK_URL_SIZE];
    char *sealed; /* the signing secret */
    unsigned types;
    int64_t made_real_ms;

    uint64_t waiting, dead;
    uint64_t delivered, dropped;
    int last_status;
    char last_why[CORE_WEBHOOK_WHY_SIZE];

    struct timer due;    /* for the delivery that is due first */
    struct share *share; /* among WEBHOOKS_AT_ONCE, while one is under way */
    int64_t current;     /* its number */
    unsigned attempts;   /* of it, this one too */
    bool removed;        /* meanwhile: freed when its answer is there */
};

struct webhooks {
    struct webhook *first;
    struct share_pool *shares;
};

/* The row of one in the store. Texts are borrowed. */
struct webhook_row {
    const char *id, *tenant, *url, *sealed;
    unsigned types;
    int64_t made_real_ms;
    uint64_t waiting, dead;
};

/* webhook_send.c: the timer is armed for what is due first. */
void webhook_schedule(struct webhook *w);
void webhook_on_due(struct timer *t);

/* So many of its deliveries wait. */
void webhook_set_waiting(struct webhook *w, uint64_t n);

/* It is on no list any more, and none of its deliveries is under way. */
void webhook_free(struct webhook *w);

/* The binding of the signing secret of a webhook at url: that host and port alone, so that no one
 * can have it used elsewhere. cay-egress opens it with this very object. NULL: memory is out. */
struct https_url;
json_t *webhook_bind(const struct https_url *url);

/* How long a delivery waits after so many attempts that failed (1 and up). */
uint64_t webhook_delay_ms(unsigned attempts);
