#include "base/port.h"

#include <string.h>

uint16_t port_from_digits(const char *text, size_t n)
{
    unsigned value = 0;

    if (n > 5)
        return 0;
    for (size_t i = 0; i < n; i++) {
        if (text[i] < '0' || text[i] > '9')
            return 0;
        value = value * 10 + (unsigned)(text[i] - '0');
    }
    return value <= UINT16_MAX ? (uint16_t)value : 0;
}

uint16_t port_from_text(const char *text)
{
    return port_from_digits(text, strlen(text));
}
