#pragma once
/* Exchanges of one connection loop that wait for the control loop's answer.
 *
 * A waiting exchange is known by a ticket (place and count of its use), never by a pointer: when
 * its client goes away the ticket is void, and the answer is dropped. Every wait has a deadline.
 * Uses the exchange's data and close callback while it waits. Belongs to one loop. */

#include "http/server.h"

struct pending;

int pending_new(size_t max, struct pending **out);
void pending_free(struct pending *p);

/* A ticket, or 0 when max wait already. data is kept for pending_take; data_free (may be NULL) is
 * called with it when the client goes away first. */
uint64_t pending_add(struct pending *p, struct http_exchange *x, uint64_t due_mono_ms, void *data,
                     void (*data_free)(void *data));

/* The exchange of a ticket, which is void after it, or NULL. *data (may be NULL) is the
 * caller's. */
struct http_exchange *pending_take(struct pending *p, uint64_t ticket, void **data);

/* Calls late for every exchange that is past its time, after it was taken. */
void pending_sweep(struct pending *p, uint64_t now_mono_ms, void (*late)(struct http_exchange *x));

size_t pending_count(const struct pending *p);
