#pragma once
/* The list of sandboxes, a page at a time. */

#include "core/core.h"

struct sandbox_filter {
    const char *tenant;
    bool running, paused;      /* neither: both */
    const json_t *metadata;    /* all of these must be equal; NULL: any */
    const char *template_name; /* NULL: any */
    int64_t started_after_ms;  /* inclusive; 0: any */
    bool ascending;            /* by started_real_ms, then id */
    size_t limit;              /* 1..1000 */
    int64_t cursor_ms;         /* with cursor_id: only what comes strictly after it */
    const char *cursor_id;     /* NULL: from the start */
};

struct sandbox_page {
    const struct sandbox **items; /* in the caller's arena */
    size_t count;
    bool more;
    size_t total_running;
};

struct arena;
enum err_code core_sandbox_list(struct core *c, const struct sandbox_filter *f, struct arena *arena,
                                struct sandbox_page *out, struct err *e);
