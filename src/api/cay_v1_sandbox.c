/* GET /cay/v1/sandboxes/{id}: what cay has of a sandbox beside what E2B's API shows. */
#include "api/cay_v1.h"
#include "api/e2b.h"
#include "base/ids.h"
#include "core/ended.h"

#include <stdio.h>
#include <string.h>

#define NOTE_SIZE 512

/* In the words of a create. */
static json_t *host_mounts_json(const struct sandbox *s)
{
    json_t *all = json_array(), *m;
    size_t i;

    json_array_foreach (s->volumes, i, m)
        if (json_object_get(m, "host"))
            json_array_append_new(all, json_pack("{s:O, s:O}", "name", json_object_get(m, "name"),
                                                 "path", json_object_get(m, "path")));
    return all;
}

/* Which template took the place of the one that was asked for, and why that is not there. */
static void put_note(struct core *c, const struct sandbox *s, char note[static NOTE_SIZE])
{
    const struct template_info *t = core_template_by_id(c, s->template_requested);

    note[0] = '\0';
    if (strcmp(s->template_id, s->template_requested) == 0 || !s->template_requested[0] ||
        core_sandbox_has_files_of(s))
        return;
    (void)snprintf(note, NOTE_SIZE,
                   "%.100s was not built when this was created: it runs %.100s%s%.224s",
                   s->template_requested, s->template_id, t ? "; " : "",
                   !t         ? ""
                   : t->ready ? "it is built now"
                              : t->note);
}

json_t *cay_v1_sandbox_json(struct core *c, const struct sandbox *s)
{
    const struct privsep_limits *l = &s->limits;
    char note[NOTE_SIZE];

    put_note(c, s, note);
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:o, s:o, "
        "s:o}",
        "id", s->id, "state", e2b_state_name(s->state), "reason",
        core_pause_reason_name(s->pause_reason), "tier", core_pause_tier_name(s), "memoryError",
        core_sandbox_fell(s), "templateAsked", s->template_requested, "templateID", s->template_id,
        "note", note, "level", privsep_level_name(s->level), "cpuMilli", (json_int_t)l->cpu_milli,
        "memoryBytes", (json_int_t)l->memory_bytes, "diskBytes", (json_int_t)l->disk_bytes, "pids",
        (json_int_t)l->pids, "openFiles", (json_int_t)l->open_files, "seccompFilters",
        l->filters != 0, "idle", cay_v1_idle_json(s), "hostMounts", host_mounts_json(s),
        "toDiskAfter", s->to_disk_ms ? json_integer(MAX(s->to_disk_ms, 0) / 1000) : json_null());
}

void cay_v1_no_sandbox(struct api_call *call)
{
    struct err e;

    (void)core_sandbox_absent(call->core, call->who.tenant, call->params[0], &e);
    api_fail_err(call, &e);
}

void cay_v1_sandbox_get(struct api_call *call)
{
    const struct sandbox *s = core_sandbox_find(call->core, call->who.tenant, call->params[0]);

    if (s)
        api_reply_json(call, 200, cay_v1_sandbox_json(call->core, s));
    else
        cay_v1_no_sandbox(call);
}

static void add_ended(void *arg, const struct core_ended *one)
{
    json_array_append_new(arg, json_pack("{s:s, s:s, s:s, s:o, s:o}", "sandboxID", one->id,
                                         "templateID", one->template_id, "reason", one->reason,
                                         "startedAt", api_json_time(one->started_real_ms),
                                         "endedAt", api_json_time(one->ended_real_ms)));
}

void cay_v1_ended_list(struct api_call *call)
{
    int64_t limit = ENDED_OF_A_TENANT;
    json_t *out;
    struct err e;

    if (!api_call_query_int(call, "limit", 1, ENDED_OF_A_TENANT, &limit))
        return;
    out = json_array();
    if (core_ended_each(call->core, call->who.tenant, (size_t)limit, add_ended, out, &e) ==
        ERR_OK) {
        api_reply_json(call, 200, out);
        return;
    }
    json_decref(out);
    api_fail_err(call, &e);
}
