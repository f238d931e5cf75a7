#include "base/utf8.h"

#include <stdint.h>
#include <string.h>

/* Smallest code point that may be written with that many bytes: shorter forms exist below it. */
static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};

size_t utf8_char(const char *bytes, size_t n)
{
    const unsigned char *b = (const unsigned char *)bytes;
    size_t len;
    uint32_t c;

    if (n == 0)
        return 0;
    if (b[0] < 0x80)
        return 1;
    len = b[0] >= 0xf0 && b[0] < 0xf8   ? 4
          : b[0] >= 0xe0 && b[0] < 0xf0 ? 3
          : b[0] >= 0xc0 && b[0] < 0xe0 ? 2
                                        : 0;
    if (len == 0 || len > n)
        return 0;
    c = b[0] & (0x7fu >> len);
    for (size_t i = 1; i < len; i++) {
        if ((b[i] & 0xc0) != 0x80)
            return 0;
        c = c << 6 | (b[i] & 0x3fu);
    }
    if (c < smallest[len] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return 0;
    return len;
}

size_t utf8_shown(const char *bytes, size_t n)
{
    static const struct {
        char first[3];          /* of the character's bytes, all but the last */
        unsigned char from, to; /* of the last */
    } hidden[] = {{"", 0x00, 0x1f},        {"", 0x7f, 0x7f},         {"\xc2", 0x80, 0x9f},
                  {"\xd8", 0x9c, 0x9c},    {"\xe2\x80", 0x8e, 0x8f}, {"\xe2\x80", 0xa8, 0xae},
                  {"\xe2\x81", 0xa6, 0xaf}};
    size_t len = utf8_char(bytes, n);

    for (size_t i = 0; len > 0 && i < sizeof(hidden) / sizeof(hidden[0]); i++) {
        unsigned char last = (unsigned char)bytes[len - 1];

        if (strlen(hidden[i].first) == len - 1 && memcmp(hidden[i].first, bytes, len - 1) == 0 &&
            last >= hidden[i].from && last <= hidden[i].to)
            return 0;
    }
    return len;
}

bool utf8_is_valid(const char *bytes, size_t n)
{
    while (n > 0) {
        size_t len = utf8_char(bytes, n);

        if (len == 0)
            return false;
        bytes += len;
        n -= len;
    }
    return true;
}
