#include "agent/fs/fs_json.h"

#include <stdint.h>
#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

/* Smallest code point that may be written with that many bytes: shorter forms exist below it. */
static const uint32_t smallest[] = {0, 0, 0x80, 0x800, 0x10000};

size_t fs_json_utf8(const char *bytes, size_t n)
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

bool fs_json_is_utf8(const char *bytes, size_t n)
{
    while (n > 0) {
        size_t len = fs_json_utf8(bytes, n);

        if (len == 0)
            return false;
        bytes += len;
        n -= len;
    }
    return true;
}

static int append_escaped(struct buf *out, unsigned char c)
{
    static const char *const short_forms[0x20] = {
        ['\b'] = "\\b", ['\f'] = "\\f", ['\n'] = "\\n", ['\r'] = "\\r", ['\t'] = "\\t",
    };

    if (c == '"')
        return buf_append(out, "\\\"", 2);
    if (c == '\\')
        return buf_append(out, "\\\\", 2);
    if (c < ARRAY_SIZE(short_forms) && short_forms[c])
        return buf_append(out, short_forms[c], 2);
    return buf_printf(out, "\\u%04x", c);
}

/* How many bytes from the start may be copied as they are. */
static size_t plain_run(const char *bytes, size_t n)
{
    size_t at = 0, len;

    while (at < n && (unsigned char)bytes[at] >= 0x20 && bytes[at] != '"' && bytes[at] != '\\') {
        len = fs_json_utf8(bytes + at, n - at);
        if (len == 0)
            break;
        at += len;
    }
    return at;
}

int fs_json_string(struct buf *out, const char *bytes, size_t n)
{
    int r = buf_append(out, "\"", 1);

    while (r == 0 && n > 0) {
        size_t run = plain_run(bytes, n);

        r = buf_append(out, bytes, run);
        bytes += run;
        n -= run;
        if (r < 0 || n == 0)
            break;
        r = (unsigned char)*bytes < 0x80 ? append_escaped(out, (unsigned char)*bytes)
                                         : buf_append_str(out, REPLACEMENT);
        bytes++;
        n--;
    }
    return r < 0 ? r : buf_append(out, "\"", 1);
}

int fs_json_field(struct buf *out, const char *name, const char *value)
{
    char last = out->len > 0 ? out->data[out->len - 1] : '{';
    int r = buf_printf(out, "%s\"%s\":", last == '{' || last == '[' ? "" : ",", name);

    return r < 0 ? r : fs_json_string(out, value, strlen(value));
}
