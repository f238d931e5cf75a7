#pragma once
/* A name that goes into a path or a URL as it is: the one alphabet for all who take such names.
 * Pure. */

#include <stdbool.h>
#include <stddef.h>

/* 1 to max_len letters, digits, '-', '_' and '.'. It may be ".." still: who puts it into a path of
 * its own refuses a leading dot, or text of dots alone. */
bool plain_name_is_valid(const char *text, size_t max_len);

/* The same, and it does not begin with '-', '_' or '.': a name that a tenant gives. */
bool plain_name_is_label(const char *text, size_t max_len);

/* As plain_name_is_valid, and it is more than dots: it may be a segment of a URL's path. */
bool plain_name_is_segment(const char *text, size_t max_len);
