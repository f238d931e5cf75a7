#include "base/base64.h"

#include <errno.h>
#include <stdint.h>

static const char alphabet[64] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* Value of each character plus one, so that what is not named is 0: no entry is forgotten. */
static const uint8_t values[256] = {
    ['A'] = 1,  ['B'] = 2,  ['C'] = 3,  ['D'] = 4,  ['E'] = 5,  ['F'] = 6,  ['G'] = 7,  ['H'] = 8,
    ['I'] = 9,  ['J'] = 10, ['K'] = 11, ['L'] = 12, ['M'] = 13, ['N'] = 14, ['O'] = 15, ['P'] = 16,
    ['Q'] = 17, ['R'] = 18, ['S'] = 19, ['T'] = 20, ['U'] = 21, ['V'] = 22, ['W'] = 23, ['X'] = 24,
    ['Y'] = 25, ['Z'] = 26, ['a'] = 27, ['b'] = 28, ['c'] = 29, ['d'] = 30, ['e'] = 31, ['f'] = 32,
    ['g'] = 33, ['h'] = 34, ['i'] = 35, ['j'] = 36, ['k'] = 37, ['l'] = 38, ['m'] = 39, ['n'] = 40,
    ['o'] = 41, ['p'] = 42, ['q'] = 43, ['r'] = 44, ['s'] = 45, ['t'] = 46, ['u'] = 47, ['v'] = 48,
    ['w'] = 49, ['x'] = 50, ['y'] = 51, ['z'] = 52, ['0'] = 53, ['1'] = 54, ['2'] = 55, ['3'] = 56,
    ['4'] = 57, ['5'] = 58, ['6'] = 59, ['7'] = 60, ['8'] = 61, ['9'] = 62, ['+'] = 63, ['/'] = 64,
};

size_t base64_encoded_len(size_t n)
{
    return (n + 2) / 3 * 4;
}

void base64_encode(const void *bytes, size_t n, char *out)
{
    const uint8_t *in = bytes;

    for (; n >= 3; n -= 3, in += 3, out += 4) {
        uint32_t v = (uint32_t)in[0] << 16 | (uint32_t)in[1] << 8 | in[2];

        out[0] = alphabet[v >> 18];
        out[1] = alphabet[v >> 12 & 63];
        out[2] = alphabet[v >> 6 & 63];
        out[3] = alphabet[v & 63];
    }
    if (n > 0) {
        uint32_t v = (uint32_t)in[0] << 16 | (n == 2 ? (uint32_t)in[1] << 8 : 0);

        out[0] = alphabet[v >> 18];
        out[1] = alphabet[v >> 12 & 63];
        out[2] = n == 2 ? alphabet[v >> 6 & 63] : '=';
        out[3] = '=';
        out += 4;
    }
    *out = '\0';
}

size_t base64_decoded_max(size_t n)
{
    return n / 4 * 3;
}

/* Four characters to 24 bits, or -1. */
static int32_t quad(const uint8_t in[4])
{
    uint32_t a = values[in[0]] - 1u, b = values[in[1]] - 1u;
    uint32_t c = values[in[2]] - 1u, d = values[in[3]] - 1u;

    if ((a | b | c | d) & ~63u)
        return -1;
    return (int32_t)(a << 18 | b << 12 | c << 6 | d);
}

/* The last four characters, which may be padded. Bytes written, or -EINVAL. */
static ssize_t last_quad(const uint8_t in[4], uint8_t *out)
{
    size_t pad = in[3] != '=' ? 0 : in[2] != '=' ? 1 : 2;
    uint8_t full[4] = {in[0], in[1], pad == 2 ? 'A' : in[2], pad > 0 ? 'A' : in[3]};
    int32_t v = quad(full);

    if (v < 0 || (pad == 1 && v & 0xff) || (pad == 2 && v & 0xffff))
        return -EINVAL;
    out[0] = (uint8_t)(v >> 16);
    if (pad < 2)
        out[1] = (uint8_t)(v >> 8);
    if (pad < 1)
        out[2] = (uint8_t)v;
    return (ssize_t)(3 - pad);
}

ssize_t base64_decode(const char *text, size_t n, void *out)
{
    const uint8_t *in = (const uint8_t *)text;
    uint8_t *to = out;
    ssize_t last;

    if (n % 4 != 0)
        return -EINVAL;
    if (n == 0)
        return 0;
    for (; n > 4; n -= 4, in += 4, to += 3) {
        int32_t v = quad(in);

        if (v < 0)
            return -EINVAL;
        to[0] = (uint8_t)(v >> 16);
        to[1] = (uint8_t)(v >> 8);
        to[2] = (uint8_t)v;
    }
    last = last_quad(in, to);
    return last < 0 ? last : to - (uint8_t *)out + last;
}
