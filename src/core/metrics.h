#pragma once
/* Samples of what a sandbox uses, taken while there is a reader of them. */

#include "core/core.h"

struct sandbox_obj;
struct timer;

/* o->sample: a sample is due. */
void metrics_on_timer(struct timer *t);

/* It was used: samples are taken for a while. */
void metrics_touch(struct sandbox_obj *o, uint64_t for_ms);

/* Waiting callers are told why not; the samples are freed. */
void metrics_free(struct sandbox_obj *o, const struct err *why);
