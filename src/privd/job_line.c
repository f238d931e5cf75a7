#include "privd/job_line.h"

#include "base/util.h"

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>

static void make_printable(char *text)
{
    for (; *text; text++)
        if (!isprint((unsigned char)*text))
            *text = '?';
}

static struct job_said parse(const char *line)
{
    unsigned long n;
    char *rest;

    if ((line[0] != 'P' && line[0] != 'E') || line[1] != ' ' || !isdigit((unsigned char)line[2]))
        return (struct job_said){.kind = JOB_SAID_OTHER, .text = line};
    n = strtoul(line + 2, &rest, 10);
    rest += *rest == ' ';
    if (line[0] == 'P')
        return (struct job_said){
            .kind = JOB_SAID_PROGRESS, .percent = (unsigned)MIN(n, 100ul), .text = rest};
    return (struct job_said){.kind = JOB_SAID_FAILURE,
                             .percent = 100,
                             .failure = n >= 1 && n < 4096 ? -(int)n : -EIO,
                             .text = rest};
}

void job_line_take(struct job_line *l, const char *bytes, size_t n,
                   void (*on_said)(void *arg, const struct job_said *said), void *arg)
{
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] == '\n') {
            l->text[l->len] = '\0';
            make_printable(l->text);
            const struct job_said said = parse(l->text);

            l->len = 0;
            l->cut = false;
            on_said(arg, &said);
        } else if (!l->cut && l->len < sizeof(l->text) - 1) {
            l->text[l->len++] = bytes[i];
        } else {
            l->cut = true;
        }
    }
}
