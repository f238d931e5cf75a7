#include "base/err.h"

#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const char *const code_names[ERR_CODE_COUNT] = {
    [ERR_OK] = "ok",
    [ERR_INVALID] = "invalid",
    [ERR_UNAUTHENTICATED] = "unauthenticated",
    [ERR_DENIED] = "denied",
    [ERR_NOT_FOUND] = "not_found",
    [ERR_EXISTS] = "exists",
    [ERR_CONFLICT] = "conflict",
    [ERR_EXHAUSTED] = "exhausted",
    [ERR_TOO_LARGE] = "too_large",
    [ERR_NO_SPACE] = "no_space",
    [ERR_TIMEOUT] = "timeout",
    [ERR_UNAVAILABLE] = "unavailable",
    [ERR_UNIMPLEMENTED] = "unimplemented",
    [ERR_CANCELED] = "canceled",
    [ERR_INTERNAL] = "internal",
};

PRINTF(3, 0)
static void set_text(struct err *e, enum err_code code, const char *fmt, va_list ap)
{
    e->code = code;
    e->sys = 0;
    e->hint[0] = '\0';
    vsnprintf(e->text, sizeof(e->text), fmt, ap);
    utf8_neutralise(e->text);
}

enum err_code err_set(struct err *e, enum err_code code, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return code;
    va_start(ap, fmt);
    set_text(e, code, fmt, ap);
    va_end(ap);
    return code;
}

enum err_code err_set_sys(struct err *e, enum err_code code, int errnum, const char *fmt, ...)
{
    va_list ap;
    size_t used;

    if (!e)
        return code;
    va_start(ap, fmt);
    set_text(e, code, fmt, ap);
    va_end(ap);
    e->sys = abs(errnum);
    used = strlen(e->text);
    snprintf(e->text + used, sizeof(e->text) - used, ": %s", strerror(e->sys));
    return code;
}

void err_hint(struct err *e, const char *fmt, ...)
{
    va_list ap;

    if (!e)
        return;
    va_start(ap, fmt);
    vsnprintf(e->hint, sizeof(e->hint), fmt, ap);
    va_end(ap);
    utf8_neutralise(e->hint);
}

enum err_code err_code_from_errno(int errnum)
{
    switch (abs(errnum)) {
    case 0: return ERR_OK;
    case ENOENT:
    case ESRCH: return ERR_NOT_FOUND;
    case EEXIST: return ERR_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS: return ERR_DENIED;
    case ENOSPC:
    case EDQUOT: return ERR_NO_SPACE;
    case EINVAL:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP: return ERR_INVALID;
    case EFBIG:
    case EMSGSIZE: return ERR_TOO_LARGE;
    case EAGAIN:
    case EMFILE:
    case ENFILE:
    case ENOMEM: return ERR_EXHAUSTED;
    case ETIMEDOUT: return ERR_TIMEOUT;
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE: return ERR_UNAVAILABLE;
    case EBUSY: return ERR_CONFLICT;
    case ENOSYS:
    case EOPNOTSUPP: return ERR_UNIMPLEMENTED;
    case ECANCELED: return ERR_CANCELED;
    default: return ERR_INTERNAL;
    }
}

const char *err_code_name(enum err_code code)
{
    return (unsigned)code < ERR_CODE_COUNT ? code_names[code] : "unknown";
}
