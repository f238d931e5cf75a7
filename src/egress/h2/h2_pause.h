#pragma once
/* Bytes of an answer that are kept back pass when its server pauses. */

#include <uv.h>

struct h2_stream;

/* More of its answer came. */
void pause_await(struct h2_stream *s);

/* The connection's timer. */
void pause_over(uv_timer_t *t);
