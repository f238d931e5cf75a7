/* The text of GET /metrics, family by family: each begins with its # TYPE and # HELP lines, names
 * end with their unit, and counters with _total, as OpenMetrics 1.0 wants it. */
#include "api/openmetrics.h"

#include "base/clock.h"
#include "base/text_writer.h"
#include "core/counters.h"
#include "core/trace.h"

#include <string.h>

#define TEXT_MAX (256u * 1024) /* about 35 KiB are used */

static const char *const dialects[API_METRICS_COUNT] = {
    [API_METRICS_E2B] = "e2b", [API_METRICS_DAYTONA] = "daytona", [API_METRICS_CAY] = "cay"};

static const char *const step_words[COUNTER_STEP_COUNT] = {
    [COUNTER_CREATE] = "create",
    [COUNTER_CREATE_MADE] = "create_made",
    [COUNTER_CREATE_AGENT] = "create_agent",
    [COUNTER_KILL] = "kill",
    [COUNTER_PAUSE_FROZEN] = "pause_frozen",
    [COUNTER_PAUSE_MEMORY] = "pause_memory",
    [COUNTER_PAUSE_FILES] = "pause_files",
    [COUNTER_RESUME_FROZEN] = "resume_frozen",
    [COUNTER_RESUME_MEMORY] = "resume_memory",
    [COUNTER_RESUME_FILES] = "resume_files",
    [COUNTER_SNAPSHOT] = "snapshot",
    [COUNTER_FORK] = "fork"};

/* -- writing ----------------------------------------------------------------------------------- */

static void family(struct text_writer *t, const char *name, const char *type, const char *help)
{
    text_writer_put(t, "# TYPE %s %s\n# HELP %s %s\n", name, type, name, help);
}

static void put_count(struct text_writer *t, const char *name, const char *label, const char *value,
                      uint64_t n)
{
    if (label)
        text_writer_put(t, "%s{%s=\"%s\"} %llu\n", name, label, value, (unsigned long long)n);
    else
        text_writer_put(t, "%s %llu\n", name, (unsigned long long)n);
}

/* Classes of the format hold all that are below them too. */
static void put_histogram(struct text_writer *t, const char *name, const char *label,
                          const char *value, const struct histogram *h)
{
    uint64_t below = 0;

    for (unsigned i = 0; i < HISTOGRAM_CLASSES - 1; i++) {
        below += h->classes[i];
        text_writer_put(t, "%s_bucket{%s=\"%s\",le=\"%.4f\"} %llu\n", name, label, value,
                        (double)histogram_bound_us(i) / 1e6, (unsigned long long)below);
    }
    text_writer_put(t, "%s_bucket{%s=\"%s\",le=\"+Inf\"} %llu\n", name, label, value,
                    (unsigned long long)h->count);
    text_writer_put(t, "%s_sum{%s=\"%s\"} %.6f\n", name, label, value, (double)h->sum_us / 1e6);
    text_writer_put(t, "%s_count{%s=\"%s\"} %llu\n", name, label, value,
                    (unsigned long long)h->count);
}

static void put_sandboxes(struct text_writer *t, const struct core *c)
{
    const struct counters *n = core_counters(c);

    family(t, "cay_sandboxes", "gauge", "Sandboxes by state.");
    for (enum sandbox_state s = 0; s < SANDBOX_STATE_COUNT; s++)
        if (!life_of(s)->gone) /* no sandbox is in that state for longer than a turn */
            put_count(t, "cay_sandboxes", "state", life_of(s)->name, core_count_in(c, s));
    family(t, "cay_sandboxes_paused", "gauge", "Paused sandboxes by what is kept of them.");
    for (size_t i = 0; core_paused_tier(i); i++)
        put_count(t, "cay_sandboxes_paused", "tier", core_paused_tier(i), core_count_paused(c, i));
    family(t, "cay_sandboxes_created", "counter", "Creates that were answered with a sandbox.");
    put_count(t, "cay_sandboxes_created_total", NULL, NULL, n->created);
    family(t, "cay_sandbox_creates_failed", "counter", "Creates that were refused or failed.");
    for (unsigned i = ERR_INVALID; i < ERR_CODE_COUNT; i++)
        put_count(t, "cay_sandbox_creates_failed_total", "error", err_code_name(i),
                  n->create_failed[i]);
    family(t, "cay_sandboxes_ended", "counter",
           "Sandboxes that ended, by reason (docs/events.md).");
    for (size_t i = 0; counters_reason(i); i++)
        put_count(t, "cay_sandboxes_ended_total", "reason", counters_reason(i), n->ended[i]);
    family(t, "cay_sandbox_step_seconds", "histogram", "How long steps of a sandbox's life took.");
    for (unsigned i = 0; i < COUNTER_STEP_COUNT; i++)
        put_histogram(t, "cay_sandbox_step_seconds", "step", step_words[i], &n->steps[i]);
    family(t, "cay_sandbox_steps_failed", "counter",
           "Pauses, resumes, snapshots and forks that were begun and failed.");
    for (unsigned i = COUNTER_PAUSE_FROZEN; i < COUNTER_STEP_COUNT; i++)
        put_count(t, "cay_sandbox_steps_failed_total", "step", step_words[i], n->step_failed[i]);
}

static void put_egress(struct text_writer *t, const struct core *c)
{
    const struct counters *n = core_counters(c);

    family(t, "cay_egress_violations", "counter", "Refusals that cay-egress told cayd of.");
    put_count(t, "cay_egress_violations_total", NULL, NULL, n->violations);
    family(t, "cay_egress_asks", "counter", "Connections that waited for their owner's answer.");
    put_count(t, "cay_egress_asks_total", NULL, NULL, n->asks);
    family(t, "cay_events_dropped", "counter", "Events that say that others are missing.");
    put_count(t, "cay_events_dropped_total", NULL, NULL, n->events_dropped);
}

static void put_traces(struct text_writer *t, const struct core *c)
{
    const struct trace_counts n = core_trace_counts(c);

    family(t, "cay_trace_spans_waiting", "gauge", "Spans that were not sent yet.");
    put_count(t, "cay_trace_spans_waiting", NULL, NULL, n.waiting);
    family(t, "cay_trace_spans_sent", "counter", "Spans that the collector has taken.");
    put_count(t, "cay_trace_spans_sent_total", NULL, NULL, n.sent);
    family(t, "cay_trace_spans_dropped", "counter", "Spans that were given up.");
    for (enum trace_dropped i = 0; i < TRACE_DROPPED_COUNT; i++)
        put_count(t, "cay_trace_spans_dropped_total", "reason", core_trace_dropped_name(i),
                  n.dropped[i]);
}

static void put_api(struct text_writer *t, const struct api_metrics *m)
{
    family(t, "cay_api_requests", "counter", "Requests of the control plane that were answered.");
    for (unsigned d = 0; d < API_METRICS_COUNT; d++)
        for (unsigned s = 0; s < 6; s++)
            if (s > 0 || m->answered[d][s] > 0)
                text_writer_put(t, "cay_api_requests_total{dialect=\"%s\",status=\"%uxx\"} %llu\n",
                                dialects[d], s, (unsigned long long)m->answered[d][s]);
    family(t, "cay_api_request_seconds", "histogram", "How long they took.");
    for (unsigned d = 0; d < API_METRICS_COUNT; d++)
        put_histogram(t, "cay_api_request_seconds", "dialect", dialects[d], &m->took[d]);
}

static void put_machine(struct text_writer *t, const struct core_status *s)
{
    family(t, "cay", "info", "What runs.");
    text_writer_put(t, "cay_info{version=\"%s\",disk_backend=\"%s\"} 1\n", CAY_VERSION,
                    s->disk_backend);
    family(t, "cay_start_time_seconds", "gauge", "When cayd was started.");
    text_writer_put(t, "cay_start_time_seconds %.3f\n", (double)s->started_real_ms / 1e3);
    family(t, "cay_ready", "gauge", "1: sandboxes can be made.");
    put_count(t, "cay_ready", NULL, NULL, s->ready);
    family(t, "cay_privd_up", "gauge", "1: cay-privd is connected.");
    put_count(t, "cay_privd_up", NULL, NULL, s->privd_up);
    family(t, "cay_slots", "gauge", "Slots: how many there can be, and how many wait ready.");
    put_count(t, "cay_slots", "kind", "max", s->slots_max);
    put_count(t, "cay_slots", "kind", "ready", s->slots_ready);
    family(t, "cay_disk_bytes", "gauge", "The state disk.");
    put_count(t, "cay_disk_bytes", "kind", "total", s->disk_total_bytes);
    put_count(t, "cay_disk_bytes", "kind", "free", s->disk_free_bytes);
}

/* A sample of each template that the pool has. */
static void put_pool_samples(struct text_writer *t, const struct core_status *s, const char *name,
                             size_t at)
{
    for (size_t i = 0; i < s->n_pool; i++)
        if (s->pool[i].template)
            put_count(t, name, "template", s->pool[i].template,
                      *(const uint32_t *)((const char *)&s->pool[i] + at));
}

static void put_pool(struct text_writer *t, const struct core_status *s)
{
    static const struct {
        const char *family, *type, *help, *sample;
        size_t at;
    } rows[] = {
        {"cay_pool_ready", "gauge", "Sandboxes that wait, started, to be claimed.",
         "cay_pool_ready", offsetof(struct core_pool, ready)},
        {"cay_pool_target", "gauge", "How many there shall be.", "cay_pool_target",
         offsetof(struct core_pool, target)},
        {"cay_pool_claims", "counter", "Creates that got one at once.", "cay_pool_claims_total",
         offsetof(struct core_pool, claims)},
        {"cay_pool_misses", "counter", "Creates that might have had one, and there was none.",
         "cay_pool_misses_total", offsetof(struct core_pool, misses)},
        {"cay_pool_refills", "counter", "Sandboxes that were started for it.",
         "cay_pool_refills_total", offsetof(struct core_pool, refills)},
    };

    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        family(t, rows[i].family, rows[i].type, rows[i].help);
        put_pool_samples(t, s, rows[i].sample, rows[i].at);
    }
}

static void answer(void *arg, const struct core_status *s)
{
    struct api_call *call = arg;
    struct text_writer t = {.failed = 0};

    buf_init(&t.buf, TEXT_MAX);
    put_machine(&t, s);
    put_pool(&t, s);
    put_sandboxes(&t, call->core);
    put_egress(&t, call->core);
    put_traces(&t, call->core);
    put_api(&t, api_metrics_of(call->api));
    text_writer_put(&t, "# EOF\n");
    if (t.failed < 0) {
        api_fail(call, 503, "memory is out");
    } else {
        call->response.type = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        api_reply_text(call, 200, t.buf.data, t.buf.len);
    }
    buf_free(&t.buf);
}

void api_openmetrics(struct api_call *call)
{
    core_status(call->core, answer, call);
}
