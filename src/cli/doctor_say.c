/* The result of one of doctor's checks. */

#include "cli/doctor.h"

#include <stdarg.h>
#include <stdio.h>

void doctor_say(struct doctor_result *r, enum doctor_level level, const char *fmt, ...)
{
    va_list ap;

    r->level = level;
    va_start(ap, fmt);
    vsnprintf(r->text, sizeof(r->text), fmt, ap);
    va_end(ap);
}
