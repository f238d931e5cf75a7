#include "cli/terminal.h"

#include <jansson.h>
#include <string.h>
#include <unistd.h>

/* Bytes of the control or directional character that text begins with; 0: it begins with none. */
static size_t control_len(const unsigned char *text)
{
    if (text[0] < 0x20 || text[0] == 0x7f)
        return text[0] != '\0';
    if (text[0] == 0xc2 && text[1] >= 0x80 && text[1] <= 0x9f) /* U+0080 to U+009F */
        return 2;
    if (text[0] == 0xe2 && text[1] == 0x80 && text[2] >= 0xa8 && text[2] <= 0xae)
        return 3; /* U+2028 to U+202E */
    if (text[0] == 0xe2 && text[1] == 0x81 && text[2] >= 0xa6 && text[2] <= 0xa9)
        return 3; /* U+2066 to U+2069 */
    return 0;
}

void terminal_clean(char *text)
{
    char *to = text;

    for (const char *from = text; *from;) {
        size_t n = control_len((const unsigned char *)from);

        *to++ = n > 0 ? '?' : *from;
        from += n > 0 ? n : 1;
    }
    *to = '\0';
}

void terminal_put(FILE *out, const char *before, const char *text)
{
    fputs(before, out);
    while (*text) {
        size_t n = control_len((const unsigned char *)text);

        putc(n > 0 ? '?' : *text, out);
        text += n > 0 ? n : 1;
    }
}

size_t terminal_json_flags(FILE *out)
{
    return isatty(fileno(out)) ? JSON_ENSURE_ASCII : 0;
}
