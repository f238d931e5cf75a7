/* POST /api/sandbox/{id}/resize: Daytona's rules over core's. A running sandbox can only grow, and
 * its disk not at all; a stopped one has its new limits from its next start. */
#include "api/daytona.h"
#include "core/life.h"
#include "core/resize.h"
#include "http/json.h"

#include <string.h>

#define NO_CHANGE "No resource changes specified - sandbox is already at the desired configuration"

struct wanted {
    int64_t cpu, memory, disk; /* 0: not given */
};

/* As upstream's, in this order. NULL: none is broken. */
static const char *broken_rule(const struct sandbox *s, const struct wanted *w,
                               const struct privsep_limits *to)
{
    bool stopped = core_sandbox_is_stopped(s) && strcmp(daytona_state(s), "stopped") == 0;

    if (!stopped && !life_of(s->state)->reachable)
        return "Sandbox must be in started or stopped state to resize";
    if (!w->cpu && !w->memory && !w->disk)
        return NO_CHANGE;
    if (w->disk && !stopped)
        return "Disk resize can only be performed on a stopped sandbox";
    if (!stopped && w->cpu && to->cpu_milli < s->limits.cpu_milli)
        return "Sandbox must be in stopped state to decrease the number of CPU cores";
    if (!stopped && w->memory && to->memory_bytes < s->limits.memory_bytes)
        return "Sandbox must be in stopped state to decrease memory";
    if (w->disk && to->disk_bytes < s->limits.disk_bytes)
        return "Sandbox disk size cannot be decreased";
    if ((!w->cpu || to->cpu_milli == s->limits.cpu_milli) &&
        (!w->memory || to->memory_bytes == s->limits.memory_bytes) &&
        (!w->disk || to->disk_bytes == s->limits.disk_bytes))
        return NO_CHANGE;
    return NULL;
}

static enum err_code read_wanted(const json_t *body, struct wanted *w, struct err *e)
{
    enum err_code rc;

    if ((rc = json_get_int(body, "cpu", NULL, JSON_OPTIONAL, 1, INT16_MAX, &w->cpu, e)) != ERR_OK ||
        (rc = json_get_int(body, "memory", NULL, JSON_OPTIONAL, 1, INT16_MAX, &w->memory, e)) !=
            ERR_OK)
        return rc;
    return json_get_int(body, "disk", NULL, JSON_OPTIONAL, 1, INT16_MAX, &w->disk, e);
}

/* In the client's units; core, whose own are others, refuses the same. A limit that does not grow
 * is not held against a maximum that was lowered since. */
static enum err_code check_most(struct api_call *call, const struct sandbox *s,
                                const struct wanted *w, const struct privsep_limits *to,
                                struct err *e)
{
    const struct template_info *t = core_template_by_id(call->core, s->template_id);
    const struct privsep_limits *from = &s->limits;
    struct privsep_limits most = t ? core_template_limits(call->core, t)
                                   : api_config_of(call->api)->limits;

    if (to->cpu_milli > from->cpu_milli && to->cpu_milli > most.cpu_milli)
        return daytona_too_much("cpu", w->cpu, 1000, most.cpu_milli, e);
    if (to->memory_bytes > from->memory_bytes && to->memory_bytes > most.memory_bytes)
        return daytona_too_much("memory", w->memory, DAYTONA_GIB, most.memory_bytes, e);
    if (to->disk_bytes > from->disk_bytes && to->disk_bytes > most.disk_bytes)
        return daytona_too_much("disk", w->disk, DAYTONA_GIB, most.disk_bytes, e);
    return ERR_OK;
}

void daytona_resize(struct api_call *call)
{
    const struct sandbox *s = daytona_find(call);
    struct wanted w = {0};
    struct privsep_limits to;
    const char *broken;
    struct err e;

    if (!s || !api_call_body(call))
        return;
    if (read_wanted(call->body, &w, &e) != ERR_OK) {
        api_fail_err(call, &e);
        return;
    }
    to = (struct privsep_limits){.memory_bytes = (uint64_t)w.memory * DAYTONA_GIB,
                                 .disk_bytes = (uint64_t)w.disk * DAYTONA_GIB,
                                 .cpu_milli = (uint32_t)w.cpu * 1000};
    broken = broken_rule(s, &w, &to);
    if (broken)
        api_fail(call, 400, "%s", broken);
    else if (check_most(call, s, &w, &to, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        core_sandbox_resize(call->core, call->who.tenant, s->id, &to, daytona_sandbox_done, call);
}
