#pragma once
/* cay.internal: what a sandbox is told about its own way out. Nothing is dialled for it. */

#include "http/server.h"

struct flow;

/* Answers x, whose connection is f. */
void local_info_page_serve(struct http_exchange *x, const struct flow *f);
