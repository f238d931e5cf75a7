#pragma once
/* Lists of words in a string. */

#include <stdbool.h>

/* `word` is one of those that `list` has between any of the bytes `separators`. An empty word is in
 * no list. */
bool word_list_has(const char *list, const char *separators, const char *word);
