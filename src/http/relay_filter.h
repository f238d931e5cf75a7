#pragma once
/* The bytes that pass through a relay's filter. */

#include <stdbool.h>
#include <stddef.h>

struct relay;

/* Bytes of the request, through the filter where there is one. False: the relay has ended. */
bool relay_write(struct relay *r, const char *data, size_t n);

void relay_filter_start(struct relay *r);

/* Reads once and passes on what comes of it. */
void relay_filter_read(struct relay *r);

/* Passes on what the filter still holds, as far as the client takes it. */
void relay_filter_pour(struct relay *r);
