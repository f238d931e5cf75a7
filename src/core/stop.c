/* A pause with the files alone of a sandbox that is paused with its processes: files are kept of
 * what runs (keep.c), so it goes on before. Where that fails pause.c pauses it again, by
 * paused_before. */

#include "core/core.h"
#include "core/deferred.h"
#include "core/keep.h"
#include "core/sandbox.h"

/* The pause waits for it, and tells how it went. */
static void on_resumed(void *arg, const struct sandbox *s, const struct err *why)
{
}

/* Where none can be kept it is refused before its programs go on. */
void core_sandbox_stop_paused(struct core *c, const char *tenant, const char *id, int64_t ttl_ms,
                              core_sandbox_cb done, void *arg)
{
    struct sandbox_obj *o = NULL;
    struct err e;
    enum err_code code = sandbox_visible(c, tenant, id, &o, &e);

    if (code == ERR_OK)
        code = keep_check(c, &e);
    /* A sandbox that is just being paused would go on after that, and not be paused again. */
    if (code == ERR_OK && sandbox_life(o)->change != LIFE_CHANGE_NONE)
        code = err_set(&e, ERR_CONFLICT, "Sandbox %s was not stopped: it is %s; try again", id,
                       sandbox_state_text(o));
    if (code != ERR_OK) {
        core_defer_error(c, done, arg, &e);
        return;
    }
    const enum sandbox_pause_reason before = o->s.pause_reason;
    core_sandbox_resume(c, tenant, id, ttl_ms, false, on_resumed, NULL);
    o->paused_before = before;
    core_sandbox_pause(c, tenant, id, SANDBOX_TIER_FILES, done, arg);
}
