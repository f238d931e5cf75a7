/* GET /system/metrics: processor time, memory and disk of the sandbox as its agent counts them, in
 * Daytona's names. Samples of the past are the control plane's (telemetry/metrics). */
#include "toolbox/system.h"

#include "base/clock.h"
#include "http/json.h"
#include "toolbox/agent.h"
#include "toolbox/call.h"
#include "toolbox/reply.h"
#include "toolbox/toolbox_internal.h"

#include <string.h>

#define ANSWER_MAX 4096u

static json_int_t whole(const json_t *said, const char *name)
{
    return MAX(json_integer_value(json_object_get(said, name)), 0);
}

static json_t *metrics_json(const json_t *said)
{
    json_int_t disk_used = whole(said, "disk_used"), disk_total = whole(said, "disk_total");
    int64_t now_ms = clock_real_ms();
    char now[CLOCK_RFC3339_SIZE];

    clock_format_rfc3339(now_ms, now);
    return json_pack("{s:I, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:s, s:I}", "cpuCount",
                     whole(said, "cpu_count"), "cpuUsedPct",
                     json_number_value(json_object_get(said, "cpu_used_pct")), "memTotal",
                     whole(said, "mem_total"), "memUsed", whole(said, "mem_used"), "memCache",
                     whole(said, "mem_cache"), "diskTotal", disk_total, "diskUsed", disk_used,
                     "diskFree", MAX(disk_total - disk_used, 0), "timestamp", now, "timestampUnix",
                     (json_int_t)(now_ms / 1000));
}

static void measured(void *arg, const struct http_head *head, const char *body, size_t len,
                     const struct err *why)
{
    struct toolbox_call *c = arg;
    json_t *said = !why && head->status == 200 ? json_load_answer(body, len) : NULL;

    if (why)
        toolbox_fail_err(c, why);
    else if (json_is_object(said))
        toolbox_reply_json(c, 200, metrics_json(said));
    else
        toolbox_fail(c, 500, NULL, "the sandbox did not say what it uses");
    json_decref(said);
}

void toolbox_system_metrics(struct toolbox_call *c)
{
    struct toolbox_agent_request r = {.method = "GET",
                                      .target = strdup("/metrics"),
                                      .max_response_bytes = ANSWER_MAX,
                                      .timeout_ms = c->toolbox->config.agent_timeout_ms,
                                      .done = measured,
                                      .arg = c};

    toolbox_agent(c, &r);
}
