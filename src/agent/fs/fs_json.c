#include "agent/fs/fs_json.h"

#include "base/utf8.h"

#include <string.h>

#define REPLACEMENT "\xef\xbf\xbd" /* U+FFFD */

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
        len = utf8_char(bytes + at, n - at);
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
