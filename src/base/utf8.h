#pragma once
/* Well-formed UTF-8: the shortest form of each character, no surrogates, none beyond U+10FFFF.
 * Pure. */

#include <stdbool.h>
#include <stddef.h>

/* Length of the character that the n bytes begin with, or 0: they begin with none. */
size_t utf8_char(const char *bytes, size_t n);

bool utf8_is_valid(const char *bytes, size_t n);
