#pragma once
/* The heads that a relay makes: the request's and its answer's. */

#include "base/buf.h"

struct relay;

/* The request as the upstream gets it, appended to b. Decides about an upgrade. */
void relay_request_head(struct relay *r, struct buf *b);

/* The response's head without its framing and end, in the server's scratch buffer. */
struct buf *relay_response_head(struct relay *r);
