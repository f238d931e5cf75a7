#include "agent/pem_list.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* The next certificate at or behind *at, and *at behind the end of its line. Its length and *from,
 * or 0: there is no more. */
static size_t next(const char **at, const char **from)
{
    static const char begin[] = "-----BEGIN CERTIFICATE-----", end[] = "-----END CERTIFICATE-----";
    const char *to;

    *from = strstr(*at, begin);
    to = *from ? strstr(*from, end) : NULL;
    if (!to)
        return 0;
    to += sizeof(end) - 1;
    *at = to + strspn(to, "\r\n");
    return (size_t)(to - *from);
}

static bool has(const char *list, const char *certificate, size_t n)
{
    const char *from;
    size_t len;

    while ((len = next(&list, &from)) > 0)
        if (len == n && memcmp(from, certificate, n) == 0)
            return true;
    return false;
}

int pem_list_without(const char *text, const char *these, struct buf *out)
{
    const char *at = text, *from, *done = text;
    int left_out = 0;
    size_t n;

    while ((n = next(&at, &from)) > 0) {
        if (!has(these, from, n))
            continue;
        if (buf_append(out, done, (size_t)(from - done)) < 0)
            return -ENOMEM;
        done = at;
        left_out++;
    }
    return buf_append_str(out, done) < 0 ? -ENOMEM : left_out;
}
