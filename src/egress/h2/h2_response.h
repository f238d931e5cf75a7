#pragma once
/* An answer of HTTP/2: searched and sent back, or made here. */

#include "egress/h2/h2_internal.h"

/* A head of so many lines has left towards the client. */
void response_head_sent(struct h2_stream *s, const nghttp2_nv *lines, size_t n);

/* A head in the server's fields: of an answer, or of an interim one. */
int response_head(struct h2_stream *s, bool ends);
int response_data(struct h2_stream *s, const char *data, size_t n);
int response_ended(struct h2_stream *s);

/* Of a compressed answer, some more for the client to read; -errno. unzip is gone when that was
 * all. */
int response_more(struct h2_stream *s);
int response_trailers(struct h2_stream *s, const struct h2_fields *f, struct h2_fields *out);

/* The bytes of the answer that are kept back may pass. 0 or -errno. */
int response_paused(struct h2_stream *s);

/* Answered here, if nothing was yet; the server's stream is given up. */
void response_here(struct h2_stream *s, const struct h2_verdict *v);
void response_fail(struct h2_stream *s, int status, const char *why);
