#include "base/plain_name.h"

#include <string.h>

bool plain_name_is_valid(const char *text, size_t max_len)
{
    size_t n = strnlen(text, max_len + 1);

    return n > 0 && n <= max_len &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == n;
}

bool plain_name_is_label(const char *text, size_t max_len)
{
    return plain_name_is_valid(text, max_len) && !strchr("-_.", text[0]);
}

bool plain_name_is_segment(const char *text, size_t max_len)
{
    return plain_name_is_valid(text, max_len) && strspn(text, ".") != strlen(text);
}
