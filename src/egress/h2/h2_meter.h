#pragma once
/* Counts a peer's frames that make no progress, and refuses them beyond a rate. */

#include "egress/h2/h2_internal.h"

void meter_begin(struct h2_end *e);

/* Before the session sees them. */
void meter_bytes(struct h2_end *e, const uint8_t *data, size_t n);

/* Counts a frame that nghttp2 has taken. */
void meter_frame(struct h2_end *e, const nghttp2_frame *f);

/* A stream is reset here that was not to be: its peer has broken a rule of it, which costs the same
 * as a reset of the peer's own. */
void meter_reset(struct h2_end *e, const struct h2_stream *s);

/* A DATA frame was sent to it. */
void meter_data_sent(struct h2_end *e);
