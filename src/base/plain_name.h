#pragma once
/* A name that goes into a path or a URL as it is: the one alphabet for all who take such names.
 * Pure. */

#include <stdbool.h>
#include <stddef.h>

/* 1 to max_len letters, digits, '-', '_' and '.'. It may be ".." still: who puts it into a path of
 * its own refuses a leading dot, or text of dots alone. */
bool plain_name_is_valid(const char *text, size_t max_len);
