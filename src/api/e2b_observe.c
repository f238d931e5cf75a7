/* Metrics and logs of a sandbox, in E2B's shapes. Core asks the agent and cay-privd (metrics.c,
 * logs.c); the handlers filter, order and print. The list form of metrics asks for one sandbox
 * after the other, so that one call has one question under way; a sandbox that is unknown or has
 * ended meanwhile is left out, as upstream does. */

#include "api/e2b.h"
#include "http/json.h"

#include <stdio.h>
#include <string.h>

#define LOGS_MAX           1000
#define LOG_SEARCH_SIZE    257
#define METRICS_IDS_MAX    100u
#define UNIX_SECONDS_MAX   253402300799 /* the year 9999 */
#define METRICS_QUERY_SIZE (METRICS_IDS_MAX * (IDS_SANDBOX_SIZE + 1))

/* -- metrics ----------------------------------------------------------------------------------- */

static json_t *metric_json(const struct sandbox_metric *m)
{
    json_t *out = json_object();

    json_object_set_new(out, "timestamp", api_json_time(m->at_real_ms));
    json_object_set_new(out, "timestampUnix", json_integer(m->at_real_ms / 1000));
    json_object_set_new(out, "cpuCount", json_integer(m->cpu_count));
    json_object_set_new(out, "cpuUsedPct", json_real(m->cpu_used_pct));
    json_object_set_new(out, "memUsed", json_integer((json_int_t)m->memory_used_bytes));
    json_object_set_new(out, "memTotal", json_integer((json_int_t)m->memory_total_bytes));
    json_object_set_new(out, "memCache", json_integer((json_int_t)m->memory_cache_bytes));
    json_object_set_new(out, "diskUsed", json_integer((json_int_t)m->disk_used_bytes));
    json_object_set_new(out, "diskTotal", json_integer((json_int_t)m->disk_total_bytes));
    return out;
}

static void metrics_done(void *arg, const struct sandbox_metric *items, size_t n,
                         const struct err *why)
{
    struct api_call *call = arg;
    json_t *out = json_array();

    for (size_t i = 0; !why && i < n; i++)
        json_array_append_new(out, metric_json(&items[i]));
    e2b_reply(call, 200, out, why);
}

void e2b_sandbox_metrics(struct api_call *call)
{
    int64_t start = 0, end = 0;

    if (!api_call_query_int(call, "start", 0, UNIX_SECONDS_MAX, &start) ||
        !api_call_query_int(call, "end", 0, UNIX_SECONDS_MAX, &end))
        return;
    if (start && end && start > end) {
        api_fail(call, 400, "the query parameter \"start\" is after \"end\"");
        return;
    }
    /* end is a whole second: a sample within it belongs to the window. */
    core_sandbox_metrics(call->core, call->who.tenant, call->params[0], start * 1000,
                         end ? end * 1000 + 999 : 0, metrics_done, call);
}

/* The list form asks core for one sandbox after the other. */
struct metrics_list {
    char *ids, *rest, *now;
    json_t *sandboxes;
};

static void metrics_list_free(void *state)
{
    struct metrics_list *l = state;

    free(l->ids);
    json_decref(l->sandboxes);
    free(l);
}

static void metrics_list_next(struct api_call *call);

/* A sandbox that is unknown, or ended meanwhile, is left out. */
static void metrics_list_one(void *arg, const struct sandbox_metric *items, size_t n,
                             const struct err *why)
{
    struct api_call *call = arg;
    struct metrics_list *l = call->state;

    if (!why && n > 0)
        json_object_set_new(l->sandboxes, l->now, metric_json(&items[n - 1]));
    metrics_list_next(call);
}

static void metrics_list_next(struct api_call *call)
{
    struct metrics_list *l = call->state;

    /* Unknown ones are passed over here, so that core's answers, which may come at once, nest only
     * as deep as there are live ones. */
    while ((l->now = strtok_r(l->rest ? NULL : l->ids, ",", &l->rest)))
        if (core_sandbox_find(call->core, call->who.tenant, l->now))
            break;
    if (l->now)
        core_sandbox_metrics(call->core, call->who.tenant, l->now, 0, 0, metrics_list_one, call);
    else
        api_reply_json(call, 200, json_pack("{s:O}", "sandboxes", l->sandboxes));
}

void e2b_sandboxes_metrics(struct api_call *call)
{
    char text[METRICS_QUERY_SIZE];
    struct metrics_list *l;
    size_t count = 1;

    if (!api_call_query(call, "sandbox_ids", text, sizeof(text)))
        return;
    for (const char *c = text; *c; c++)
        count += *c == ',';
    if (!text[0] || count > METRICS_IDS_MAX) {
        api_fail(call, 400,
                 "the query parameter \"sandbox_ids\" must be 1 to %u ids joined by commas",
                 METRICS_IDS_MAX);
        return;
    }
    l = calloc(1, sizeof(*l));
    if (l) {
        l->ids = strdup(text);
        l->sandboxes = json_object();
        call->state = l;
        call->state_free = metrics_list_free;
    }
    if (!l || !l->ids || !l->sandboxes)
        api_fail(call, 503, "no memory for the list of metrics");
    else
        metrics_list_next(call);
}

/* -- logs -------------------------------------------------------------------------------------- */

struct logs_query {
    bool v2, backward;
    int64_t from_ms, limit;
    int level; /* lowest that is wanted */
    char search[LOG_SEARCH_SIZE];
};

static const char *const level_names[] = {"debug", "info", "warn", "error"};

static int level_number(const char *name)
{
    for (size_t i = 0; i < ARRAY_SIZE(level_names); i++)
        if (strcmp(name, level_names[i]) == 0)
            return (int)i;
    return -1;
}

static bool wanted(const struct logs_query *q, const struct sandbox_log *l)
{
    if (q->backward ? q->from_ms && l->at_real_ms > q->from_ms : l->at_real_ms < q->from_ms)
        return false;
    if (level_number(l->level) < q->level)
        return false;
    return !q->search[0] || strstr(l->message, q->search);
}

static const char *log_level(const struct sandbox_log *l)
{
    return level_number(l->level) >= 0 ? l->level : "info";
}

static json_t *entry_json(const struct sandbox_log *l)
{
    json_t *out = json_object();

    json_object_set_new(out, "timestamp", api_json_time(l->at_real_ms));
    json_object_set_new(out, "level", json_string(log_level(l)));
    json_object_set_new(out, "message", json_string(l->message));
    json_object_set_new(out, "fields", l->fields ? json_deep_copy(l->fields) : json_object());
    return out;
}

/* In the first version a line is a text that holds JSON: @e2b/cli (2.19.0) parses it, and prints
 * the time, level, logger, message, and each further field. */
static json_t *line_json(const struct sandbox_log *l)
{
    json_t *out = json_object(), *line = l->fields ? json_deep_copy(l->fields) : json_object();
    char *text;

    json_object_set_new(line, "level", json_string(log_level(l)));
    json_object_set_new(line, "logger", json_string("cay"));
    json_object_set_new(line, "message", json_string(l->message));
    text = json_text(line, JSON_COMPACT);
    json_decref(line);
    json_object_set_new(out, "timestamp", api_json_time(l->at_real_ms));
    json_object_set_new(out, "line", json_string(text ? text : "{}"));
    free(text);
    return out;
}

static void logs_reply(struct api_call *call, const struct sandbox_log *items, size_t n)
{
    const struct logs_query *q = call->state;
    json_t *entries = json_array(), *lines = json_array(), *out = json_object();

    for (size_t i = 0; i < n && json_array_size(entries) < (size_t)q->limit; i++) {
        const struct sandbox_log *l = &items[q->backward ? n - 1 - i : i];

        if (!wanted(q, l))
            continue;
        json_array_append_new(entries, entry_json(l));
        json_array_append_new(lines, line_json(l));
    }
    json_object_set(out, "logs", q->v2 ? entries : lines);
    if (!q->v2)
        json_object_set(out, "logEntries", entries);
    json_decref(entries);
    json_decref(lines);
    api_reply_json(call, 200, out);
}

static void logs_done(void *arg, const struct sandbox_log *items, size_t n, const struct err *why)
{
    struct api_call *call = arg;

    if (why)
        e2b_fail(call, why);
    else
        logs_reply(call, items, n);
}

static bool read_v2(struct api_call *call, struct logs_query *q)
{
    char direction[16], level[16];

    if (!api_call_query_int(call, "cursor", 0, INT64_MAX, &q->from_ms) ||
        !api_call_query(call, "direction", direction, sizeof(direction)) ||
        !api_call_query(call, "level", level, sizeof(level)) ||
        !api_call_query(call, "search", q->search, sizeof(q->search)))
        return false;
    q->backward = strcmp(direction, "backward") == 0;
    if (direction[0] && !q->backward && strcmp(direction, "forward") != 0) {
        api_fail(call, 400, "the query parameter \"direction\" must be forward or backward");
        return false;
    }
    q->level = level[0] ? level_number(level) : 0;
    if (q->level < 0) {
        api_fail(call, 400, "the query parameter \"level\" must be debug, info, warn or error");
        return false;
    }
    return true;
}

static void logs(struct api_call *call, bool v2)
{
    struct logs_query *q = calloc(1, sizeof(*q));

    if (!q) {
        api_fail(call, 503, "no memory for the logs");
        return;
    }
    call->state = q;
    call->state_free = free;
    q->v2 = v2;
    q->limit = LOGS_MAX;
    if (!api_call_query_int(call, "limit", 0, v2 ? LOGS_MAX : INT32_MAX, &q->limit))
        return;
    if (v2 ? !read_v2(call, q) : !api_call_query_int(call, "start", 0, INT64_MAX, &q->from_ms))
        return;
    core_sandbox_logs(call->core, call->who.tenant, call->params[0], logs_done, call);
}

void e2b_sandbox_logs_v1(struct api_call *call)
{
    logs(call, false);
}

void e2b_sandbox_logs_v2(struct api_call *call)
{
    logs(call, true);
}
