#pragma once
/* Starting a process: the request, and the fork. */

#include "agent/process/proc.h"

struct proc_start {
    const struct user *user;
    const char *cwd; /* absolute */
    const char *cmd;
    const json_t *args; /* array of strings, or NULL */
    const json_t *envs; /* object of strings, or NULL */
    const char *tag;    /* or NULL */
    bool want_stdin, terminal;
    uint16_t cols, rows;
    uint64_t timeout_ms; /* 0: none */
    json_t *config;      /* kept (a reference is taken) */
    size_t config_bytes;
    struct proc_watcher *watcher; /* or NULL; lives until `ended`, or until proc_unwatch */
};

/* Starts a process and answers x, at once or later: with a stream that begins with the start event
 * and tells all that comes, or with why not. Other than CONNECT_OK: x is the caller's to answer, *e
 * has the text. A process whose start is not known to have worked yet is in no list. x NULL: the
 * log alone is told. */
enum connect_code proc_start(struct agent *a, const struct proc_start *s, struct http_exchange *x,
                             struct err *e);
