/* The memory was made with the limits, the variables and the certificate of its own sandbox, and
 * programs have read them: where a create wants others, they are started anew. */

#include "core/create_memory.h"

#include "base/log.h"
#include "core/core_internal.h"
#include "core/create_error.h"
#include "core/logs.h"
#include "core/sandbox.h"
#include "core/snapshot.h"
#include "core/snapshot_memory.h"
#include "core/tenant.h"
#include "policy/policy.h"

#include <errno.h>
#include <string.h>

static bool same_limits(const struct privsep_limits *a, const struct privsep_limits *b)
{
    return a->memory_bytes == b->memory_bytes && a->disk_bytes == b->disk_bytes &&
           a->cpu_milli == b->cpu_milli && a->pids == b->pids && a->open_files == b->open_files &&
           !a->filters && !b->filters;
}

/* Whether cay-egress may have to read TLS by it. True of one that cannot be read now: memory is
 * out. */
static bool may_read_tls(const json_t *policy)
{
    struct policy *read = NULL;
    struct err e;
    bool may = policy_new(policy, &read, &e) != ERR_OK || policy_reads_requests(read);

    policy_free(read);
    return may;
}

/* Its rules are asked beside the sandbox's. */
static bool ceiling_may_read_tls(struct tenant *t)
{
    json_t *ceiling = NULL;
    struct err e;
    bool may = tenant_ceiling(t, &ceiling, &e) != ERR_OK || (ceiling && may_read_tls(ceiling));

    json_decref(ceiling);
    return may;
}

/* TLS that is read is signed with the CA of the sandbox's tenant, which programs of another's do
 * not know. */
static bool trusts_another(const struct sandbox_obj *o, const struct sandbox_request *r,
                           const struct snapshot *s)
{
    return strcmp(r->tenant, s->tenant) != 0 &&
           (json_object_size(r->credentials) > 0 || may_read_tls(r->policy) ||
            ceiling_may_read_tls(o->tenant));
}

/* NULL: nothing. */
static const char *obstacle(const struct sandbox_obj *o, const struct sandbox_request *r,
                            const struct snapshot *s)
{
    if (r->level != s->level)
        return "it has another isolation level";
    if (!same_limits(&o->s.limits, &s->limits))
        return "it has other limits";
    if (json_array_size(o->s.volumes) > 0)
        return "it has volumes";
    if (r->no_start_command)
        return "its start command is not to run";
    if (trusts_another(o, r, s))
        return "its policy may read TLS, and it is of another tenant than the template";
    return NULL;
}

bool create_memory_fits(struct sandbox_obj *o, const struct sandbox_request *r,
                        const struct snapshot *s)
{
    const char *why = s->memory ? obstacle(o, r, s) : NULL;

    if (why)
        err_set(&o->fell, ERR_CONFLICT, "it does not begin with its template's memory: %s", why);
    return s->memory && !why;
}

/* It is of no use to any later create. */
static bool is_lost(int status, const struct privsep_msg *m)
{
    return m && m->stage == PRIVSEP_STAGE_MEMORY &&
           (status == -EBADMSG || status == -ESTALE || status == -ENOENT);
}

static void say(struct sandbox_obj *o, int status, const struct privsep_msg *m)
{
    if (m && m->stage == PRIVSEP_STAGE_MEMORY && status != -EAGAIN)
        create_explain_memory(&o->fell, status);
    else
        err_set(&o->fell, ERR_UNAVAILABLE, "its template's memory was not used: %s",
                status == -EAGAIN ? "others are being made of it" : strerror(-status));
    log_warn("sandbox %s: begins with its template's files alone: %s", o->s.id, o->fell.text);
    logs_add(o, "warn", "begins with its template's files alone: %s", o->fell.text);
}

const struct snapshot *create_memory_refused(struct sandbox_obj *o, int status,
                                             const struct privsep_msg *m)
{
    struct core *c = o->core;
    const struct snapshot *s = o->memory_snapshot[0] ? snapshots_ready(c, o->memory_snapshot)
                                                     : NULL;

    if (!o->copies_memory || !s || o->kill_wanted || c->stopping)
        return NULL;
    say(o, status, m);
    if (is_lost(status, m))
        snapshot_memory_drop(c, s->id, o->copy_of);
    o->copies_memory = o->no_start_command = false;
    o->copy_of = s->number;
    free(o->init_body); /* it is made anew, with the start command */
    o->init_body = NULL;
    return s;
}
