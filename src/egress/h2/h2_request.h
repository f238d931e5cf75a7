#pragma once
/* A request of HTTP/2: evaluated, given its credential, sent on. */

#include "egress/h2/h2_internal.h"

/* Its head is whole, in the client's fields. */
void request_begin(struct h2_stream *s, bool ends);
int request_collect(struct h2_stream *s, const char *data, size_t n);

/* Nothing more comes of a body that was collected. */
void request_collected(struct h2_stream *s);
int request_trailers(struct h2_stream *s, const struct h2_fields *f, struct h2_fields *out);
