#include "kernels/repair.h"

#include "base/util.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define REPLACEMENT        "\xef\xbf\xbd" /* U+FFFD */
#define REPLACEMENT_ESCAPE "\\ufffd"
#define ESCAPE_LEN         6u /* "\uXXXX" */

/* Bytes of the character that begins there, 0: none does (Unicode 15, table 3-7). */
static size_t character(const uint8_t *at, size_t len)
{
    static const struct {
        uint8_t first, last, low, high; /* of the first byte; of the second */
        size_t n;
    } forms[] = {
        {0x00, 0x7f, 0, 0, 1},       {0xc2, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3},
        {0xe1, 0xec, 0x80, 0xbf, 3}, {0xed, 0xed, 0x80, 0x9f, 3}, {0xee, 0xef, 0x80, 0xbf, 3},
        {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4}, {0xf4, 0xf4, 0x80, 0x8f, 4},
    };

    for (size_t i = 0; i < ARRAY_SIZE(forms); i++) {
        size_t n = forms[i].n;

        if (at[0] < forms[i].first || at[0] > forms[i].last)
            continue;
        if (n > len || (n > 1 && (at[1] < forms[i].low || at[1] > forms[i].high)))
            return 0;
        for (size_t k = 2; k < n; k++)
            if ((at[k] & 0xc0) != 0x80)
                return 0;
        return n;
    }
    return 0;
}

/* The number of an escape "\uXXXX", -1: none is there. */
static int escaped(const char *at, size_t len)
{
    int value = 0;

    if (len < ESCAPE_LEN || at[0] != '\\' || at[1] != 'u')
        return -1;
    for (size_t i = 2; i < ESCAPE_LEN; i++) {
        static const char digits[] = "0123456789abcdef";
        const char *d = at[i] ? strchr(digits, at[i] | 0x20) : NULL;

        if (!d)
            return -1;
        value = value * 16 + (int)(d - digits);
    }
    return value;
}

static bool is_half(int value, int from)
{
    return value >= from && value < from + 0x400;
}

/* Bytes to take over from there, 0: it is half a pair. */
static size_t escape(const char *at, size_t len)
{
    int value = escaped(at, len);

    if (value < 0)
        return MIN(len, 2); /* "\n" and the like; jansson refuses any other */
    if (is_half(value, 0xd800))
        return is_half(escaped(at + ESCAPE_LEN, len - ESCAPE_LEN), 0xdc00) ? 2 * ESCAPE_LEN : 0;
    return is_half(value, 0xdc00) ? 0 : ESCAPE_LEN;
}

char *repair_json(const char *text, size_t len, size_t *out_len)
{
    char *out = malloc(len * 3 + 1), *to = out;

    for (size_t at = 0; out && at < len;) {
        bool is_escape = text[at] == '\\';
        size_t n = is_escape ? escape(text + at, len - at)
                             : character((const uint8_t *)text + at, len - at);
        const char *from = text + at, *instead = is_escape ? REPLACEMENT_ESCAPE : REPLACEMENT;

        at += n > 0 ? n : is_escape ? ESCAPE_LEN : 1;
        if (n == 0) {
            from = instead;
            n = strlen(instead);
        }
        memcpy(to, from, n);
        to += n;
    }
    if (out)
        *out_len = (size_t)(to - out);
    return out;
}
