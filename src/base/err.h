#pragma once
/* Errors, from core up: a struct err on the caller's stack with a mandatory code and a sentence.
 *
 * Below core, functions return 0 or -errno and touch no output on failure; a caller turns that into
 * a struct err once, where it knows what was tried. An error is logged once, by the function that
 * ends its journey. A table per dialect turns a code into that dialect's status. Nothing
 * allocates. */

#include "base/util.h"

enum err_code {
    ERR_OK = 0,
    ERR_INVALID,         /* the request itself is wrong */
    ERR_UNAUTHENTICATED, /* no key, token or signature, or not a good one */
    ERR_DENIED,          /* known who asks, and not allowed */
    ERR_NOT_FOUND,
    ERR_EXISTS,
    ERR_CONFLICT,  /* the thing is in a state that does not allow it */
    ERR_EXHAUSTED, /* a limit or quota is reached; may work later */
    ERR_TOO_LARGE, /* this request can never fit its limit */
    ERR_NO_SPACE,
    ERR_TIMEOUT,
    ERR_UNAVAILABLE, /* the other side is gone, or not ready */
    ERR_UNIMPLEMENTED,
    ERR_CANCELED,
    ERR_INTERNAL,
    ERR_CODE_COUNT
};

struct err {
    enum err_code code;
    int sys;        /* errno that caused it, or 0 */
    char text[384]; /* the attempt and why it failed; one sentence, no newline; safe to show */
    char hint[192]; /* the caller's next step, or empty */
};

/* Sets code and text (cut at its size) and clears hint and sys. e may be NULL. Returns code, so
 * that `return err_set(e, ...)` works in functions that return enum err_code. Control characters in
 * the result are replaced by '?': texts may hold what a peer sent. */
enum err_code err_set(struct err *e, enum err_code code, const char *fmt, ...) PRINTF(3, 4);

/* The same from an errno (positive or negative): appends ": " and its strerror, keeps sys. */
enum err_code err_set_sys(struct err *e, enum err_code code, int errnum, const char *fmt, ...)
    PRINTF(4, 5);

/* Adds what the caller can do. */
void err_hint(struct err *e, const char *fmt, ...) PRINTF(2, 3);

/* The code that an errno from a kernel call stands for: ENOENT is ERR_NOT_FOUND, ENOSPC and EDQUOT
 * ERR_NO_SPACE, ... and ERR_INTERNAL for what has no better one. */
enum err_code err_code_from_errno(int errnum);

/* "not_found", "invalid", ...: stable, for logs and JSON. */
const char *err_code_name(enum err_code code);
