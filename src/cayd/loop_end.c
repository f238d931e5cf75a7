#include "cayd/loop_end.h"

#include "base/log.h"

#include <stdlib.h>

static void report(uv_handle_t *h, void *arg)
{
    log_error("%s: a handle is left: %s, %s", (const char *)arg, uv_handle_type_name(h->type),
              uv_is_closing(h)  ? "closing"
              : uv_is_active(h) ? "active"
                                : "idle");
}

void loop_end(uv_loop_t *loop, const char *name)
{
    if (uv_loop_close(loop) == 0)
        return;
    uv_walk(loop, report, (void *)(uintptr_t)name);
    abort();
}
