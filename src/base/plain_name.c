#include "base/plain_name.h"

#include <string.h>

bool plain_name_is_valid(const char *text, size_t max_len)
{
    size_t n = strnlen(text, max_len + 1);

    return n > 0 && n <= max_len &&
           strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.") == n;
}
