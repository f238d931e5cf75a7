#pragma once
/* Answers to what cayd asks of cay-egress. */

#include <jansson.h>

struct http_exchange;

/* Takes the reference to o; NULL: memory was out, which is the answer then. */
void reply_json(struct http_exchange *x, int status, json_t *o);
