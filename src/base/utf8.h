#pragma once
/* Well-formed UTF-8: the shortest form of each character, no surrogates, none beyond U+10FFFF.
 * Pure. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Length of the character that the n bytes begin with, or 0: they begin with none. */
size_t utf8_char(const char *bytes, size_t n);

/* Whether a character is text for people, and no control (line feed and tab among them), separator
 * of lines or paragraphs, or one that turns the direction of text. */
bool utf8_code_is_shown(uint32_t code);

/* utf8_char, but 0 too of a character that is not shown. */
size_t utf8_shown(const char *bytes, size_t n);

/* Puts '?' for each byte with which no character that is shown begins: of a text that a peer's
 * bytes are part of, or that was cut. Terminals obey others, and readers of UTF-8 stop at them. */
void utf8_neutralise(char *text);

bool utf8_is_valid(const char *bytes, size_t n);
