#pragma once
/* The ends of a relay: whole, failed, handed back, or out of time. */

#include "base/err.h"

struct http_exchange;
struct relay;
struct wire;

/* The exchange goes on without the relay. */
struct http_exchange *relay_detach(struct relay *r);

/* The upstream cannot be relayed any further: the exchange is cut where its answer has begun,
 * else told to on_fail. errnum: as err_set_sys, 0 for none. r is gone. */
void relay_fail(struct relay *r, enum err_code code, const char *text, int errnum);

/* The answer is whole. r is gone. */
void relay_finish(struct relay *r);

/* The upstream has gone without announcing the end of its answer, which may be a part that looks
 * like the whole: the client's connection ends likewise, behind what came. r is gone. */
void relay_finish_unannounced(struct relay *r);

/* (Re)starts the timer for what is due next, and its end. */
void relay_arm(struct relay *r);
void relay_timed_out(struct wire *w);
