/* Quotas of tenants, and what they used. See cay_v1.h. */
#include "api/cay_v1.h"

#include "base/clock.h"
#include "core/key.h"
#include "core/quota.h"
#include "core/usage.h"

#include <string.h>

/* Its own, or the operator: else it is answered. */
static bool may_see(struct api_call *call)
{
    if (strcmp(call->params[0], call->who.tenant) == 0 || call->who.role == CORE_ROLE_OPERATOR)
        return true;
    cay_v1_no_tenant(call, call->params[0]);
    return false;
}

static void answer(struct api_call *call)
{
    json_t *most = json_object(), *used = json_object();
    struct core_quotas q;
    struct err e;

    if (core_tenant_quotas(call->core, call->params[0], &q, &e) != ERR_OK) {
        json_decref(most);
        json_decref(used);
        api_fail_err(call, &e);
        return;
    }
    for (int i = 0; i < QUOTA_COUNT; i++) {
        json_object_set_new(most, quota_name((enum quota)i),
                            q.most[i] == QUOTA_NONE ? json_null() : json_integer(q.most[i]));
        json_object_set_new(used, quota_name((enum quota)i), json_integer(q.used[i]));
    }
    api_reply_json(
        call, 200,
        json_pack("{s:s, s:o, s:o}", "tenant", call->params[0], "quota", most, "used", used));
}

void cay_v1_quota_get(struct api_call *call)
{
    if (may_see(call))
        answer(call);
}

static enum err_code read_quotas(const json_t *body, int64_t *most, bool *given, struct err *e)
{
    const char *name;
    json_t *value;

    json_object_foreach ((json_t *)body, name, value) {
        int i = quota_from(name);

        if (i < 0)
            return err_set(
                e, ERR_INVALID,
                "\"%.64s\" is no quota: there are sandboxes, createdPerMinute, cpuMilli, "
                "memoryBytes, diskBytes, paused, snapshots, volumes, templates and templateBytes",
                name);
        if (!json_is_null(value) && (!json_is_integer(value) || json_integer_value(value) < 0 ||
                                     json_integer_value(value) > QUOTA_MAX))
            return err_set(e, ERR_INVALID,
                           "%s must be a whole number, 0 or more, or null for no quota", name);
        most[i] = json_is_null(value) ? QUOTA_NONE : json_integer_value(value);
        given[i] = true;
    }
    return ERR_OK;
}

void cay_v1_quota_set(struct api_call *call)
{
    int64_t most[QUOTA_COUNT] = {0};
    bool given[QUOTA_COUNT] = {false};
    struct err e;

    if (!api_call_body(call))
        return;
    if (read_quotas(call->body, most, given, &e) != ERR_OK ||
        core_tenant_set_quotas(call->core, call->params[0], most, given, &e) != ERR_OK)
        api_fail_err(call, &e);
    else
        answer(call);
}

static void add_hour(void *arg, const struct core_usage *u)
{
    const uint64_t *n = u->n;

    json_array_append_new(
        arg, json_pack("{s:o, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:f}", "hour",
                       api_json_time(u->hour_real_ms), "created", (json_int_t)n[USAGE_CREATED],
                       "commands", (json_int_t)n[USAGE_COMMANDS], "sandboxSeconds",
                       (double)n[USAGE_SANDBOX_MS] / 1e3, "pausedSeconds",
                       (double)n[USAGE_PAUSED_MS] / 1e3, "cpuSeconds",
                       (double)n[USAGE_CPU_MILLI_MS] / 1e6, "memoryGiBSeconds",
                       (double)n[USAGE_MEMORY_MIB_MS] / 1024e3, "diskGiBSeconds",
                       (double)n[USAGE_DISK_MIB_MS] / 1024e3, "peakSandboxes",
                       (json_int_t)n[USAGE_PEAK_SANDBOXES], "builds", (json_int_t)n[USAGE_BUILDS],
                       "templateGiBSeconds", (double)n[USAGE_TEMPLATE_MIB_MS] / 1024e3));
}

void cay_v1_usage_get(struct api_call *call)
{
    int64_t hours = 24, now_ms = clock_real_ms();
    json_t *out;
    struct err e;

    if (!may_see(call) || !api_call_query_int(call, "hours", 1, USAGE_HOURS_MAX, &hours))
        return;
    out = json_array();
    if (core_tenant_usage(call->core, call->params[0], now_ms - hours * 3600000, INT64_MAX,
                          add_hour, out, &e) == ERR_OK) {
        api_reply_json(call, 200, out);
        return;
    }
    json_decref(out);
    api_fail_err(call, &e);
}
