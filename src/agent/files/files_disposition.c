#include "agent/files/files_disposition.h"

#include <stdbool.h>
#include <string.h>

static bool is_token(unsigned char c)
{
    return c > ' ' && c < 0x7f && !strchr("()<>@,;:\\\"/[]?=", c);
}

static bool all_bytes(const char *s, bool (*is)(unsigned char))
{
    for (; *s; s++)
        if (!is((unsigned char)*s))
            return false;
    return true;
}

static bool is_printable(unsigned char c)
{
    return c >= ' ' && c < 0x7f;
}

int files_disposition(struct buf *out, const char *name)
{
    bool quoted = all_bytes(name, is_printable);
    int r;

    if (name[0] && all_bytes(name, is_token))
        return buf_printf(out, "inline; filename=%s", name);
    r = buf_append_str(out, quoted ? "inline; filename=\"" : "inline; filename*=utf-8''");
    for (; r == 0 && *name; name++) {
        unsigned char c = (unsigned char)*name;

        if (!quoted && (!is_token(c) || strchr("%*'", c)))
            r = buf_printf(out, "%%%02X", c);
        else if (c == '"' || c == '\\')
            r = buf_printf(out, "\\%c", c);
        else
            r = buf_append(out, name, 1);
    }
    return r == 0 && quoted ? buf_append(out, "\"", 1) : r;
}
