#include "base/utf8.h"

#include "base/util.h"

#include <string.h>

/* Smallest code point that may be written with that many bytes: shorter forms exist below it. */
static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};

static size_t decode(const char *bytes, size_t n, uint32_t *code)
{
    const unsigned char *b = (const unsigned char *)bytes;
    size_t len;
    uint32_t c;

    if (n == 0)
        return 0;
    if (b[0] < 0x80) {
        *code = b[0];
        return 1;
    }
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
    *code = c;
    return len;
}

size_t utf8_char(const char *bytes, size_t n)
{
    uint32_t code;

    return decode(bytes, n, &code);
}

bool utf8_code_is_shown(uint32_t code)
{
    static const struct {
        uint32_t first, last;
    } hidden[] = {{0x00, 0x1f},     {0x7f, 0x9f},     {0x061c, 0x061c},
                  {0x200e, 0x200f}, {0x2028, 0x202e}, {0x2066, 0x206f}};

    for (size_t i = 0; i < ARRAY_SIZE(hidden); i++)
        if (code >= hidden[i].first && code <= hidden[i].last)
            return false;
    return true;
}

size_t utf8_shown(const char *bytes, size_t n)
{
    uint32_t code = 0;
    size_t len = decode(bytes, n, &code);

    return utf8_code_is_shown(code) ? len : 0;
}

void utf8_neutralise(char *text)
{
    for (size_t left = strlen(text); left > 0;) {
        size_t len = utf8_shown(text, left);

        if (len == 0)
            *text = '?';
        len = len ? len : 1;
        text += len;
        left -= len;
    }
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
