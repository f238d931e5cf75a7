#include "agent/tail.h"

#include <string.h>

void tail_add(struct tail *t, const char *bytes, size_t n)
{
    size_t taken = MIN(n, sizeof(t->bytes)), kept = MIN(t->n, sizeof(t->bytes) - taken);

    memmove(t->bytes, t->bytes + t->n - kept, kept);
    memcpy(t->bytes + kept, bytes + n - taken, taken);
    t->n = kept + taken;
}

void tail_text(const struct tail *t, char out[static TAIL_MAX + 1])
{
    size_t at = 0, n = 0;

    while (t->n == sizeof(t->bytes) && at < 3 && ((unsigned char)t->bytes[at] & 0xc0) == 0x80)
        at++;
    for (; at < t->n; at++)
        out[n++] = (unsigned char)t->bytes[at] < ' ' || t->bytes[at] == 0x7f ? ' ' : t->bytes[at];
    while (n > 0 && out[n - 1] == ' ')
        n--;
    out[n] = '\0';
}
