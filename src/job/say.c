#include "job/say.h"

#include "base/log.h"
#include "contract/meta.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int say_fd = 1;

void say_to(int fd)
{
    say_fd = fd;
}

PRINTF(2, 0) static void put_line(const char *head, const char *fmt, va_list ap)
{
    char line[JOB_LINE_MAX];
    size_t n = (size_t)snprintf(line, sizeof(line), "%s", head);

    (void)vsnprintf(line + n, sizeof(line) - n - 1, fmt, ap); /* one byte is left for the end */
    for (n = 0; line[n]; n++)
        if (line[n] == '\n')
            line[n] = ' ';
    line[n++] = '\n';
    (void)!write(say_fd, line, n);
}

void say_progress(unsigned percent, const char *fmt, ...)
{
    char head[32];
    va_list ap;

    snprintf(head, sizeof(head), "P %u ", MIN(percent, 100u));
    va_start(ap, fmt);
    put_line(head, fmt, ap);
    va_end(ap);
}

int say_failure(int errnum, const char *fmt, ...)
{
    static bool said;
    char head[32], text[JOB_LINE_MAX];
    va_list ap;

    errnum = abs(errnum);
    if (said)
        return -errnum;
    said = true;
    snprintf(head, sizeof(head), "E %d ", errnum);
    va_start(ap, fmt);
    put_line(head, fmt, ap);
    va_end(ap);
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    log_error("%s", text);
    return -errnum;
}

int say_again(const char *fmt, ...)
{
    char head[32];
    va_list ap;

    snprintf(head, sizeof(head), "E %d ", EAGAIN);
    va_start(ap, fmt);
    put_line(head, fmt, ap);
    va_end(ap);
    return -EAGAIN;
}
