/* A delivery goes from waiting (due at a time) to under way (cay-egress was asked to send it) to
 * its end: delivered, waiting again with a later time, or dead. Each webhook has one timer, for the
 * delivery that is due first, and at most one delivery under way, which holds a place among
 * WEBHOOKS_AT_ONCE; where its tenant has its share, the timer looks again soon. An attempt counts
 * when cay-egress has answered; while it is away nothing is counted, and the delivery waits.
 *
 * Times are stored by the real clock, since they outlive the host's boot. A clock that was set back
 * must not hold a delivery for longer than its step of the schedule: a wait is bounded by that. */

#include "core/webhook_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/egress.h"
#include "core/store_webhook.h"
#include "http/json.h"
#include "policy/https_url.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define ANSWER_MAX    4096u
#define TIMEOUT_MS    25000u /* cay-egress answers sooner (DELIVERY_WAIT_MS), or is not there */
#define NO_SHARE_MS   250u
#define NO_EGRESS_MS  5000u
#define NO_STORE_MS   5000u
#define FIRST_DELAY_S 5u

/* After the first failure 5 s, then 30 s, 2 min, 10 min, 30 min, 2 h, 6 h, 12 h. */
uint64_t webhook_delay_ms(unsigned attempts)
{
    static const uint32_t seconds[WEBHOOK_ATTEMPTS - 1] = {
        FIRST_DELAY_S, 30, 120, 600, 1800, 7200, 21600, WEBHOOK_DELAY_MAX_MS / 1000};

    return seconds[MIN(MAX(attempts, 1u), (unsigned)ARRAY_SIZE(seconds)) - 1] * UINT64_C(1000);
}

/* -- when ------------------------------------------------------------------------------------- */

static void send_later(struct webhook *w, uint64_t in_ms)
{
    timers_set(&w->core->timers, &w->due, clock_mono_ms() + in_ms);
}

struct next {
    int64_t id, due_ms;
    unsigned attempts;
    char *message, *body;
};

static void next_free(struct next *n)
{
    free(n->message);
    free(n->body);
}

static void take_next(void *arg, const struct delivery_row *d)
{
    struct next *n = arg;

    n->id = d->id;
    n->due_ms = d->due_ms;
    n->attempts = d->attempts;
    n->message = strdup(d->message);
    n->body = strdup(d->body);
}

/* 0: due now. */
static uint64_t wait_of(const struct next *n)
{
    int64_t left = n->due_ms - clock_real_ms();

    if (left <= 0)
        return 0;
    return n->attempts ? MIN((uint64_t)left, webhook_delay_ms(n->attempts)) : 0;
}

void webhook_schedule(struct webhook *w)
{
    if (!w->current && !w->core->stopping)
        send_later(w, 0);
}

void webhook_set_waiting(struct webhook *w, uint64_t n)
{
    w->waiting = n;
    tenant_recharge(w->tenant, TENANT_DELIVERIES, n, &w->deliveries);
}

void webhook_free(struct webhook *w)
{
    tenant_refund(&w->deliveries);
    tenant_refund(&w->charge);
    timers_cancel(&w->core->timers, &w->due);
    share_return(w->share);
    tenant_unref(w->tenant);
    free(w->sealed);
    free(w);
}

/* -- what came of it --------------------------------------------------------------------------- */

static void settle(struct webhook *w, bool waits)
{
    if (!waits)
        webhook_set_waiting(w, w->waiting - 1);
    w->current = 0;
}

static void delivered(struct webhook *w, int64_t id)
{
    bool gone;
    struct err e;

    w->last_why[0] = '\0';
    w->delivered++;
    gone = store_delivery_delete(w->core->store, id, &e) == ERR_OK;
    if (!gone)
        log_error("webhook %s: it is sent once more: %s", w->id, e.text);
    settle(w, !gone);
}

static void failed(struct webhook *w, int64_t id, const char *why)
{
    const bool dead = w->attempts >= WEBHOOK_ATTEMPTS;
    const struct delivery_row d = {.id = id,
                                   .attempts = w->attempts,
                                   .dead = dead,
                                   .why = why,
                                   .due_ms = clock_real_ms() +
                                             (dead ? 0 : (int64_t)webhook_delay_ms(w->attempts))};
    uint64_t gone = 0;
    struct err e;

    (void)snprintf(w->last_why, sizeof(w->last_why), "%s", why);
    if (store_delivery_again(w->core->store, w->id, &d, WEBHOOK_DEAD_EACH, &gone, &e) != ERR_OK)
        log_error("webhook %s: %s", w->id, e.text);
    if (dead) {
        w->dead += 1 - gone;
        log_warn("tenant %s: webhook %s: a delivery is given up after %u attempts: %s",
                 w->tenant->name, w->id, w->attempts, why);
    }
    settle(w, !dead);
}

static void take_answer(struct webhook *w, int64_t id, const json_t *o)
{
    const char *why = json_string_value(json_object_get(o, "failed"));
    int status = (int)json_integer_value(json_object_get(o, "status"));
    char text[64];

    w->last_status = status;
    if (status >= 200 && status < 300) {
        delivered(w, id);
        return;
    }
    (void)snprintf(text, sizeof(text), "its server has answered %d", status);
    failed(w, id, why ? why : text);
}

static void on_answer(struct core *c, const char *id, const struct err *why, int status,
                      const char *body, size_t len, void *arg)
{
    struct webhook *w = arg;
    json_t *o = !why && status == 200 ? json_load(body, len) : NULL;
    struct err e;

    share_return(TAKE_PTR(w->share));
    if (w->removed) {
        webhook_free(w);
    } else if (c->stopping) {
        w->current = 0;
    } else if (o) {
        take_answer(w, w->current, o);
        webhook_schedule(w);
    } else { /* cay-egress is away, or is out of places: not an attempt */
        if (why)
            err_set(&e, why->code, "%s", why->text);
        else
            egress_refusal(&e, status, body, len, "cay-egress");
        (void)snprintf(w->last_why, sizeof(w->last_why), "%.*s", CORE_WEBHOOK_WHY_SIZE - 1, e.text);
        w->current = 0;
        send_later(w, NO_EGRESS_MS);
    }
    json_decref(o);
}

/* -- sent -------------------------------------------------------------------------------------- */

json_t *webhook_bind(const struct https_url *url)
{
    return json_pack("{s:s, s:[s], s:[i], s:[s]}", "kind", "bearer", "domains", url->host, "ports",
                     (int)url->port, "methods", "POST");
}

/* NULL: memory is out, or the tenant's limits are not known. */
static char *make_body(const struct webhook *w, const struct next *n, struct err *e)
{
    json_t *ceilings = egress_ceilings(w->tenant, e), *o;
    struct https_url url;
    char *text;

    if (!ceilings)
        return NULL;
    if (!https_url_parse(w->url, &url)) { /* it was checked when the webhook was made */
        json_decref(ceilings);
        err_set(e, ERR_INTERNAL, "its address is none");
        return NULL;
    }
    o = json_pack("{s:s, s:s, s:{s:s, s:o, s:s}, s:s, s:s, s:o}", "tenant", w->tenant->name, "url",
                  w->url, "credential", "name", w->id, "bind", webhook_bind(&url), "sealed",
                  w->sealed, "message", n->message, "body", n->body, "ceilings", ceilings);
    text = json_text(o, JSON_COMPACT);
    json_decref(o);
    if (!text)
        err_set(e, ERR_EXHAUSTED, "memory is out");
    return text;
}

static void send_next(struct webhook *w, const struct next *n)
{
    const char *path = egress_path_for(w->core, w->tenant->name, w->id);
    struct call_agent_request q = {.method = "POST",
                                   .target = "/v1/deliveries",
                                   .max_response_bytes = ANSWER_MAX,
                                   .timeout_ms = TIMEOUT_MS};
    struct err e;

    if (!path) {
        (void)snprintf(w->last_why, sizeof(w->last_why), "cay-egress does not answer");
        send_later(w, NO_EGRESS_MS);
        return;
    }
    w->share = share_take(w->core->webhooks->shares, w->tenant->name, NULL);
    if (!w->share) {
        send_later(w, NO_SHARE_MS);
        return;
    }
    q.body = make_body(w, n, &e);
    if (!q.body) {
        log_error("webhook %s: %s", w->id, e.text);
        share_return(TAKE_PTR(w->share));
        send_later(w, NO_STORE_MS);
        return;
    }
    w->current = n->id;
    w->attempts = n->attempts + 1;
    call_unix(w->core, "", path, &q, on_answer, w);
}

void webhook_on_due(struct timer *t)
{
    struct webhook *w = CONTAINER_OF(t, struct webhook, due);
    CLEANUP(next_free) struct next n = {0};
    uint64_t wait;
    struct err e;

    if (w->current || store_delivery_next(w->core->store, w->id, take_next, &n, &e) != ERR_OK) {
        if (!w->current && e.code != ERR_NOT_FOUND) {
            log_error("webhook %s: %s", w->id, e.text);
            send_later(w, NO_STORE_MS);
        }
        return;
    }
    wait = wait_of(&n);
    if (wait > 0 || !n.message || !n.body)
        send_later(w, wait > 0 ? wait : NO_STORE_MS);
    else
        send_next(w, &n);
}
