#pragma once
/* JSON as kernels write it where a program's output is no Unicode text: Python puts the bytes that
 * it could not decode (surrogateescape) into a message as they were, and others write halves of
 * surrogate pairs as escapes. Both are no JSON for jansson, and become U+FFFD here. */

#include <stddef.h>

/* A copy with each byte that is no UTF-8, and each escape that is half a pair, replaced. Allocated,
 * of at most three times the length; NULL: memory is out. */
char *repair_json(const char *text, size_t len, size_t *out_len);
