#include "checkpoint/checkpoint.h"

#include <stdarg.h>
#include <stdio.h>

int checkpoint_fail(struct checkpoint_why *why, int rc, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why->text, sizeof(why->text), format, args);
    va_end(args);
    return rc;
}
