#pragma once
/* A stream's life, and bytes on their way through it. */

#include "egress/h2/h2_internal.h"

/* NULL: there are too many, or memory is out. */
struct h2_stream *stream_new(struct h2 *conn, int32_t id);

/* nghttp2 has closed it on that side. */
void stream_closed(struct h2_stream *s, enum side side, uint32_t code);

/* The server has its request: the answer may come at once, where there is room for it. */
void stream_begin_wide(struct h2_stream *s);

/* n bytes of its body came from that side. 0 or -errno. */
int stream_data(struct h2_stream *s, enum side from, const char *data, size_t n);

/* No more comes from that side. */
int stream_ended(struct h2_stream *s, enum side from);
int stream_trailers(struct h2_stream *s, enum side from, const struct h2_fields *f);

/* n bytes of a head, until the stream is gone. False: there is no room for them. */
bool stream_hold_head(struct h2_stream *s, size_t n);

/* Where nghttp2 gets a body for that side from. */
nghttp2_data_provider stream_provider(struct h2_stream *s);

/* It ends on both sides, without another word. */
void stream_cut(struct h2_stream *s, uint32_t code);

/* Further bytes of the client are dropped. */
void stream_give_up(struct h2_stream *s);
void stream_forget_job(struct h2_stream *s);

/* The client has its whole answer; does it still send? Clients that are told at once to stop (RFC
 * 9113 8.1) do not always look at the answer: they are given some time, and some bytes. */
void stream_hush(struct h2_stream *s, uint64_t now);
void stream_free(struct h2_stream *s);

/* n bytes that came for that side have been passed on, or used up: their sender may send more. */
void stream_pay(struct h2_stream *s, enum side to, size_t n);
