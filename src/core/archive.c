/* A sandbox that has been stopped for a while, or that its owner says is not needed for now, is
 * archived: its files alone are kept, as of any that is stopped, and a start makes a running one of
 * it. Whether it counts as archived by time follows from when its files were kept (sandbox.c);
 * where its owner says so, they also become one file, where they can (archive_file.h). */
#include "core/archive.h"

#include "core/archive_file.h"
#include "core/core_internal.h"
#include "core/life.h"
#include "core/sandbox.h"
#include "core/state_follow.h"

bool core_sandbox_is_archived(const struct sandbox *s, int64_t now_real_ms)
{
    return core_sandbox_is_stopped(s) &&
           (s->archived || s->kept_real_ms + s->auto_archive_ms <= now_real_ms);
}

enum err_code core_sandbox_archive(struct core *c, const char *tenant, const char *id,
                                   const struct sandbox **out, struct err *e)
{
    struct sandbox_obj *o = NULL;
    struct sandbox changed;
    enum err_code code = sandbox_visible(c, tenant, id, &o, e);

    if (code == ERR_OK && !core_sandbox_is_stopped(&o->s))
        code = err_set(e, ERR_CONFLICT, "sandbox %s is %s: stop it first, then archive it", id,
                       sandbox_state_text(o));
    if (code != ERR_OK)
        return code;
    changed = o->s;
    changed.archived = true;
    code = sandbox_write_through(o, &changed, out, e);
    if (code == ERR_OK) {
        state_follow_notify(o, o->s.state);
        archive_file_try(o);
    }
    return code;
}

enum err_code core_sandbox_set_auto_archive(struct core *c, const char *tenant, const char *id,
                                            int64_t after_ms, const struct sandbox **out,
                                            struct err *e)
{
    struct sandbox_obj *o = NULL;
    struct sandbox changed;
    enum err_code code = sandbox_visible(c, tenant, id, &o, e);

    if (code == ERR_OK && (after_ms <= 0 || after_ms > CORE_ARCHIVE_MAX_MS))
        code = err_set(e, ERR_INVALID, "a sandbox is archived 1 ms to 30 days after its stop");
    if (code != ERR_OK)
        return code;
    changed = o->s;
    changed.auto_archive_ms = after_ms;
    return sandbox_write_through(o, &changed, out, e);
}
