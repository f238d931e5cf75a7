#include "http/range.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <strings.h>

/* Digits at *p as a number, saturating: beyond any size they mean "the end". False without any. */
static bool digits(const char **p, uint64_t *out)
{
    uint64_t value = 0;
    const char *s = *p;

    for (; *s >= '0' && *s <= '9'; s++)
        value = value > (UINT64_MAX - 9) / 10 ? UINT64_MAX : value * 10 + (uint64_t)(*s - '0');
    if (s == *p)
        return false;
    *p = s;
    *out = value;
    return true;
}

int range_parse(const char *value, uint64_t size, struct range *out)
{
    uint64_t first = 0, last = UINT64_MAX;
    bool has_first, has_last;

    if (strncasecmp(value, "bytes=", 6) != 0)
        return -ENOENT;
    value += 6 + strspn(value + 6, " \t");
    has_first = digits(&value, &first);
    if (*value++ != '-')
        return -ENOENT;
    has_last = digits(&value, &last);
    if (value[strspn(value, " \t")] != '\0' || (!has_first && !has_last))
        return -ENOENT;
    if (!has_first) { /* the last so many */
        if (last == 0 || size == 0)
            return -ERANGE;
        *out = (struct range){last >= size ? 0 : size - last, last >= size ? size : last};
        return 0;
    }
    if (has_last && last < first)
        return -ENOENT;
    if (first >= size)
        return -ERANGE;
    *out = (struct range){first, (last >= size ? size - 1 : last) - first + 1};
    return 0;
}
