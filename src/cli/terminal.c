#include "cli/terminal.h"

#include "base/io.h"
#include "base/utf8.h"
#include "cli/cli.h"

#include <jansson.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#define INVALID    -1
#define INCOMPLETE -2

/* The character of UTF-8 that text of len bytes begins with, of *n bytes; or INVALID: it begins
 * with a byte that is part of none, which a terminal of another character set may take for a
 * control; INCOMPLETE: more of it may follow. */
static int decode(const char *text, size_t len, size_t *n)
{
    const unsigned char c = (unsigned char)text[0];
    const size_t more = c < 0x80 ? 0 : c < 0xe0 ? 1 : c < 0xf0 ? 2 : 3;
    unsigned code = more == 0 ? c : c & (0x3fu >> more);

    *n = 1;
    if ((c >= 0x80 && c < 0xc2) || c > 0xf4)
        return INVALID;
    for (size_t i = 1; i <= more; i++) {
        if (i == len)
            return INCOMPLETE;
        if ((text[i] & 0xc0) != 0x80)
            return INVALID;
        code = code << 6 | ((unsigned)text[i] & 0x3fu);
    }
    *n = 1 + more;
    return (int)code;
}

/* A NUL of a program's output goes to the terminal, which passes it over. */
static bool is_shown(int c)
{
    return c == 0 || (c > 0 && utf8_code_is_shown((uint32_t)c));
}

/* Bytes of the character that text begins with; *shown: as it is, or as one '?'. */
static size_t take(const char *text, bool *shown)
{
    size_t n;

    *shown = is_shown(decode(text, strnlen(text, 4), &n));
    return n;
}

void terminal_clean(char *text)
{
    char *to = text;
    bool shown;

    for (const char *from = text; *from;) {
        size_t n = take(from, &shown);

        memmove(to, shown ? from : "?", shown ? n : 1);
        to += shown ? n : 1;
        from += n;
    }
    *to = '\0';
}

void terminal_put(FILE *out, const char *before, const char *text)
{
    bool shown;

    fputs(before, out);
    while (*text) {
        size_t n = take(text, &shown);

        fwrite(shown ? text : "?", shown ? n : 1, 1, out);
        text += n;
    }
}

/* -- all that is printed ----------------------------------------------------------------------- */

struct guarded {
    int fd;
    char part[4]; /* of a character whose rest has not been printed yet */
    size_t len;
    char out[4096];
    size_t out_len;
};

static struct guarded guarded[] = {{.fd = STDOUT_FILENO}, {.fd = STDERR_FILENO}};

static int flush_guarded(struct guarded *g)
{
    size_t n = g->out_len;

    g->out_len = 0;
    return io_write_full(g->fd, g->out, n);
}

static void take_char(struct guarded *g, size_t n, int c)
{
    bool shown = c == '\n' || c == '\t' || is_shown(c);

    memcpy(g->out + g->out_len, shown ? g->part : "?", shown ? n : 1);
    g->out_len += shown ? n : 1;
    g->len -= n;
    memmove(g->part, g->part + n, g->len);
}

/* Takes a byte more, and the characters that are whole with it. */
static void take_byte(struct guarded *g, char byte)
{
    size_t n;
    int c;

    g->part[g->len++] = byte;
    while (g->len > 0 && (c = decode(g->part, g->len, &n)) != INCOMPLETE)
        take_char(g, n, c);
}

static ssize_t write_guarded(void *cookie, const char *text, size_t n)
{
    struct guarded *g = cookie;

    for (size_t i = 0; i < n; i++) {
        take_byte(g, text[i]);
        if (g->out_len + sizeof(g->part) > sizeof(g->out) && flush_guarded(g) < 0)
            return 0;
    }
    return flush_guarded(g) < 0 ? 0 : (ssize_t)n;
}

static void guard(FILE **stream, struct guarded *g, int buffering)
{
    FILE *f;

    if (!isatty(g->fd))
        return;
    f = fopencookie(g, "w", (cookie_io_functions_t){.write = write_guarded});
    if (!f)
        _exit(CLI_FAILED);
    (void)setvbuf(f, NULL, buffering, 0);
    *stream = f;
}

void terminal_guard(void)
{
    guard(&stdout, &guarded[0], _IOLBF);
    guard(&stderr, &guarded[1], _IONBF);
}

void terminal_control(FILE *out, const char *sequence)
{
    fflush(out);
    (void)!io_write_full(out == stderr ? STDERR_FILENO : STDOUT_FILENO, sequence, strlen(sequence));
}

size_t terminal_json_flags(FILE *out)
{
    return isatty(out == stderr ? STDERR_FILENO : STDOUT_FILENO) ? JSON_ENSURE_ASCII : 0;
}
