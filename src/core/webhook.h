#pragma once
/* Webhooks: a tenant's events, each sent to addresses of the tenant's own by one signed POST.
 *
 * A delivery begins when an event is told whose type a webhook asks for: its row is written with
 * the very bytes that are sent, so that a restart of cayd loses none and changes none. cay-egress
 * sends it (egress/flow/delivery.h): it alone connects to the outside, and it alone opens the
 * signing secret, which is stored sealed. An answer of 2xx ends the delivery. After any other
 * answer, or none, it is sent again, WEBHOOK_ATTEMPTS times in all and ever later
 * (webhook_delay_ms); then it is dead: kept and listed, and sent again when its owner says so
 * (core_webhook_retry).
 *
 * At least once: a delivery that was under way when cayd ended is sent again, with the same id.
 * Deliveries of a webhook are made one at a time, the one that is due longest first; so those that
 * never failed come in the order of their events, and one that failed comes later than newer ones.
 *
 * A webhook never holds up an event or its followers. Beyond WEBHOOK_WAITING_EACH deliveries that
 * wait, or its tenant's share of WEBHOOK_WAITING_MAX, an event is not sent, and counted
 * (`dropped`). */

#include "core/core.h"
#include "core/events.h"

#define WEBHOOKS_OF_A_TENANT  8u
#define WEBHOOKS_AT_ONCE      32u    /* deliveries under way, shared out by tenant */
#define WEBHOOK_WAITING_EACH  1024u  /* deliveries that wait, of a webhook */
#define WEBHOOK_WAITING_MAX   65536u /* of all, shared out by tenant */
#define WEBHOOK_DEAD_EACH     128u   /* that are kept of a webhook; the oldest go */
#define WEBHOOK_ATTEMPTS      9u
#define WEBHOOK_DELAY_MAX_MS  43200000u
#define CORE_WEBHOOK_ID_SIZE  22 /* "w", 20 of [a-z0-9], NUL */
#define CORE_WEBHOOK_URL_SIZE 1025
#define CORE_WEBHOOK_WHY_SIZE 256

struct core_webhook {
    const char *id, *url;
    unsigned types; /* bits of 1 << enum event_type */
    int64_t made_real_ms;
    uint64_t waiting, dead;
    uint64_t delivered, dropped; /* since this cayd was started */
    int last_status;             /* of the last answer; 0: none yet, or none came */
    const char *last_why;        /* why the last attempt failed; "": it did not */
};

struct core_delivery {
    int64_t id;
    const char *type, *body;
    unsigned attempts;
    bool dead;
    int64_t made_real_ms, due_real_ms;
    const char *why; /* of the last attempt; "": there was none */
};

/* The types that a webhook gets that names none: those of sandboxes and snapshots. */
unsigned core_webhook_default_types(void);

/* May a webhook ask for that type? */
bool core_webhook_sends(enum event_type type);

/* done: the webhook and its signing secret ("whsec_" and base64), which is shown this once; valid
 * during the call. ERR_INVALID: url is no https address; ERR_EXHAUSTED: the tenant has
 * WEBHOOKS_OF_A_TENANT; ERR_UNAVAILABLE while cay-egress is away. Never from inside. */
typedef void (*core_webhook_cb)(void *arg, const struct core_webhook *w, const char *secret,
                                const struct err *why);
void core_webhook_add(struct core *c, const char *tenant, const char *url, unsigned types,
                      core_webhook_cb done, void *arg);

/* Calls fn for each of the tenant's, oldest first; w lives during the call. */
void core_webhook_each(struct core *c, const char *tenant,
                       void (*fn)(void *arg, const struct core_webhook *w), void *arg);

/* With its deliveries. A delivery that is under way may yet arrive. ERR_NOT_FOUND. */
enum err_code core_webhook_remove(struct core *c, const char *tenant, const char *id,
                                  struct err *e);

/* Those that wait and those that are dead, oldest first. ERR_NOT_FOUND. */
enum err_code core_webhook_deliveries(struct core *c, const char *tenant, const char *id,
                                      void (*fn)(void *arg, const struct core_delivery *d),
                                      void *arg, struct err *e);

/* The dead ones are due now, with all attempts before them. *count: how many. ERR_NOT_FOUND. */
enum err_code core_webhook_retry(struct core *c, const char *tenant, const char *id,
                                 uint64_t *count, struct err *e);

/* A delivery of type "ping" is due now, whatever the webhook's types are. ERR_NOT_FOUND,
 * ERR_EXHAUSTED. */
enum err_code core_webhook_ping(struct core *c, const char *tenant, const char *id, struct err *e);

/* -- for core's other files -------------------------------------------------------------------- */

/* The store is open. */
enum err_code webhooks_init(struct core *c, struct err *e);

/* No delivery begins any more; those under way were ended (call_cancel_all). */
void webhooks_free(struct core *c);

/* cay-egress is there again: due messages are sent. */
void webhooks_resume(struct core *c);
