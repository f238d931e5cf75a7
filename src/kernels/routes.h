#pragma once
/* The routes of the code interpreter on port 49999: /health, /execute, /contexts. Bodies and
 * answers as e2b-code-interpreter sends and reads them. */

#include "http/server.h"
#include "kernels/context.h"

#define ROUTES_BODY_MAX (16u * 1024u * 1024u)

/* ctx is the struct contexts. */
void routes_dispatch(struct http_exchange *x, void *ctx);
