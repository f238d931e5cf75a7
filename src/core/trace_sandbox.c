/* The span of a sandbox: of its create, pause or resume, of which it has one at a time. */

#include "base/clock.h"
#include "core/core_internal.h"
#include "core/sandbox.h"

static struct trace_about about(const struct sandbox_obj *o)
{
    const bool pause = o->trace.name == TRACE_PAUSE;

    return (struct trace_about){.tenant = o->s.tenant,
                                .sandbox = o->s.id,
                                .tier = o->trace_tier,
                                .reason = pause ? core_pause_reason_name(o->s.pause_reason) : NULL};
}

void trace_sandbox_requested(struct sandbox_obj *o)
{
    o->trace_requested = o->core->trace;
}

void trace_sandbox_begin(struct sandbox_obj *o, enum trace_name name, const char *tier,
                         uint64_t at_us)
{
    struct core *c = o->core;
    struct trace_context before = c->trace;

    if (!before.is_call && !before.is_set)
        (void)trace_enter(c, &o->trace_requested);
    trace_begin(c, &o->trace, name, at_us);
    o->trace_tier = tier;
    (void)trace_enter(c, &before);
}

void trace_sandbox_step(struct sandbox_obj *o, enum trace_name name, uint64_t from_us,
                        uint64_t until_us)
{
    struct trace_about all = about(o);

    all.reason = NULL;
    trace_step(o->core, &o->trace, name, from_us, until_us, &all);
}

void trace_sandbox_end(struct sandbox_obj *o, enum err_code code)
{
    const struct trace_about all = about(o);

    trace_end(o->core, &o->trace, &all, code);
}
