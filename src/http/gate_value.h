#pragma once
/* Functions by which gate.c reads heads, beside those that gate.h gives to all. Pure. */

#include "http/gate.h"

/* Classes of bytes: of a token, a field value, a request target, a host name. */
enum { GATE_TOKEN = 1, GATE_VALUE = 2, GATE_TARGET = 4, GATE_NAME = 8 };

/* Is each of the n bytes at s of that class? */
bool gate_all_of(const char *s, size_t n, unsigned char class);

/* The next element of a comma-separated list at *p, trimmed; false at the end. */
bool gate_list_next(const char **p, const char **out, size_t *len);

/* Is that word at s, of n bytes? Case does not count. */
bool gate_span_is(const char *s, size_t n, const char *word);
