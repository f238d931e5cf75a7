/* The limits of a template's sandboxes: its own where it has some, else the server's. */
#include "core/core.h"
#include "core/core_internal.h"
#include "core/limit.h"
#include "core/store_template.h"
#include "core/template.h"

static struct privsep_limits merge(const struct privsep_limits *own, const struct privsep_limits *d)
{
    return (struct privsep_limits){.memory_bytes = own->memory_bytes ? own->memory_bytes
                                                                     : d->memory_bytes,
                                   .disk_bytes = own->disk_bytes ? own->disk_bytes : d->disk_bytes,
                                   .cpu_milli = own->cpu_milli ? own->cpu_milli : d->cpu_milli,
                                   .pids = own->pids ? own->pids : d->pids,
                                   .open_files = own->open_files ? own->open_files : d->open_files,
                                   .filters = own->filters};
}

struct privsep_limits core_template_limits(const struct core *c, const struct template_info *t)
{
    return merge(&t->limits, &c->config.limits);
}

static enum err_code check(const struct privsep_limits *l, struct err *e)
{
    enum err_code code;

    if ((code = core_limit_check(CORE_LIMIT_MEMORY, (int64_t)l->memory_bytes, true, e)) != ERR_OK ||
        (code = core_limit_check(CORE_LIMIT_DISK, (int64_t)l->disk_bytes, true, e)) != ERR_OK ||
        (code = core_limit_check(CORE_LIMIT_CPU, l->cpu_milli, true, e)) != ERR_OK)
        return code;
    return core_limit_check(CORE_LIMIT_PIDS, l->pids, true, e);
}

enum err_code core_template_set_limits(struct core *c, const char *name,
                                       const struct privsep_limits *limits, struct err *e)
{
    struct template_info *t = templates_entry(c, name);
    struct privsep_limits own = *limits;

    if (!t)
        return err_set(e, ERR_NOT_FOUND, "there is no template '%.64s'", name);
    own.open_files = 0;
    if (check(&own, e) != ERR_OK || store_template_put(c->store, t->id, &own, e) != ERR_OK)
        return e->code;
    t->limits = own;
    return ERR_OK;
}

/* A template that is not there any more keeps its row, and has the same limits when it comes
 * again. */
static void load_one(void *arg, const char *id, const struct privsep_limits *l)
{
    struct template_info *t = templates_entry(arg, id);

    if (t)
        t->limits = *l;
}

enum err_code templates_load_limits(struct core *c, struct err *e)
{
    return store_template_each(c->store, load_one, c, e);
}
