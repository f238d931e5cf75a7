#pragma once
/* Well-formed UTF-8: the shortest form of each character, no surrogates, none beyond U+10FFFF.
 * Pure. */

#include <stdbool.h>
#include <stddef.h>

/* Length of the character that the n bytes begin with, or 0: they begin with none. */
size_t utf8_char(const char *bytes, size_t n);

/* The same, but 0 too of a character that is no text for people: a control (line feed and tab among
 * them), a separator of lines or paragraphs, one that turns the direction of text. */
size_t utf8_shown(const char *bytes, size_t n);

bool utf8_is_valid(const char *bytes, size_t n);
