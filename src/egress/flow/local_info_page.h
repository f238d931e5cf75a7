#pragma once
/* cay.internal: what a sandbox is told about its own way out. Nothing is dialled for it. */

#include "egress/flow/egress.h"
#include "http/server.h"

/* Answers x, whose connection is f. */
void local_info_page_serve(struct http_exchange *x, const struct flow *f);
