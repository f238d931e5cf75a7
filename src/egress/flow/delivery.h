#pragma once
/* Sends a webhook's delivery: POST /v1/deliveries of cayd,
 *
 *   {"tenant", "url", "message": its id, "body": text, "ceilings": [...],
 *    "credential": {"name", "bind", "sealed"}}
 *
 * answered when its server has answered, or why there is none:
 *
 *   {"status": 204} or {"failed": why}
 *
 * The body is sent as it is, signed as Standard Webhooks 1.0 says: `webhook-id`,
 * `webhook-timestamp` (Unix seconds of this attempt) and `webhook-signature`, "v1," and the base64
 * of HMAC-SHA256 over "ID.TIMESTAMP.BODY", by the secret that credential holds sealed. Of an answer
 * the status alone is read. How it is reached is https_call.h's; the credential has to be bound to
 * that host, port and method.
 *
 * Each attempt is a record of the log (event "delivery"). An attempt whose cayd has gone goes on:
 * it may have been sent already, and its outcome is in the log alone. */

#include <stddef.h>

#define DELIVERIES_MAX    32u    /* under way in a process, shared out by tenant */
#define DELIVERY_WAIT_MS  20000u /* then cayd is told that there was no answer */
#define DELIVERY_BODY_MAX 65536u

struct egress;
struct http_exchange;
struct deliveries;

/* eg->intercept is set. 0 or -ENOMEM. */
int deliveries_new(struct egress *eg, struct deliveries **out);

/* Answers x, now or later. */
void deliveries_start(struct deliveries *d, struct http_exchange *x, const char *body, size_t len);
