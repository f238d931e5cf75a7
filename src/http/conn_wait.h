#pragma once
/* The events and times that a connection waits for. */

#include "http/conn.h"

/* UV_READABLE and the like; 0: nothing. */
void conn_wait_events(struct conn *c, int events);

/* Is there a use for more bytes of the peer's now? */
bool conn_wait_wants_read(const struct conn *c);

/* After a pump: events and waits as what is left to do wants them. */
void conn_wait_settle(struct conn *c);
void conn_timed_out(struct conn *c, struct wait *w);
