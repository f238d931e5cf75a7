/* Translates a refusal by cay-egress to an error: its own sentence where it sent one. */

#include "base/err.h"
#include "core/egress.h"
#include "http/json.h"

#include <stdarg.h>
#include <stdio.h>

enum err_code egress_refusal(struct err *e, int status, const char *body, size_t len,
                             const char *fmt, ...)
{
    json_t *answer = body ? json_load(body, len) : NULL;
    const char *message = json_string_value(json_object_get(answer, "message"));
    enum err_code code = status == 400 ? ERR_INVALID : ERR_UNAVAILABLE;
    char what[128];
    va_list ap;

    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof(what), fmt, ap);
    va_end(ap);
    if (message)
        err_set(e, code, "%s: %s", what, message);
    else
        err_set(e, code, "%s: cay-egress answered %d: %.*s", what, status, (int)MIN(len, 256u),
                body ? body : "");
    json_decref(answer);
    return code;
}
