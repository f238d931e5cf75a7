#include "base/text_writer.h"

#include <stdarg.h>

void text_writer_put(struct text_writer *t, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    if (t->failed == 0)
        t->failed = buf_vprintf(&t->buf, fmt, ap);
    va_end(ap);
}
