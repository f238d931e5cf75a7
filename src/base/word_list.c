#include "base/word_list.h"

#include <string.h>

bool word_list_has(const char *list, const char *separators, const char *word)
{
    size_t n = strlen(word);

    for (const char *at = list; *at; at += strspn(at, separators)) {
        size_t len = strcspn(at, separators);

        if (len > 0 && len == n && memcmp(at, word, n) == 0)
            return true;
        at += len;
    }
    return false;
}
