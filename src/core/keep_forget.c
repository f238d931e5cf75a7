/* A sandbox runs: its kept files, the memory beside them and their archive are its own no more.
 * Below all that pauses, keeps and resumes, which call this. */

#include "core/keep.h"

#include "core/archive_file.h"
#include "core/core_internal.h"
#include "core/dump.h"
#include "core/pause_waiters.h"
#include "core/sandbox.h"

void dump_forget(struct sandbox_obj *o)
{
    o->dump_requested = o->dump_waits = o->dump_prepared = o->dump_ends = o->restoring = false;
    o->restart_refused = false;
}

void archive_file_forget(struct sandbox_obj *o)
{
    struct err why;

    o->s.in_archive = o->archive_tried = o->archive_requested = false;
    o->archive_sent = o->archive_here = o->fetching = false;
    (void)err_set(&why, ERR_UNAVAILABLE, "the sandbox was not archived: it was started first");
    pause_waiters_fail_later(o, &o->archivers, &why);
}

void keep_forget(struct sandbox_obj *o)
{
    o->s.kept = 0;
    o->s.kept_memory = o->s.or_files = false;
    dump_forget(o);
    archive_file_forget(o);
    o->hooks_requested = o->env_requested = o->keep_requested = o->rolled_back = false;
    json_decref(o->s.env);
    o->s.env = NULL;
}
