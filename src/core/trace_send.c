/* The queue goes to the collector in batches, one under way at a time, by way of cay-egress, which
 * alone connects to the outside and alone knows where the collector is. A batch leaves the queue
 * when it is encoded; it is sent, or given up after TRACE_ATTEMPTS, with the waits of webhooks up
 * to TRACE_DELAY_MAX_MS between them; what OTLP/HTTP does not allow to be sent again (every status
 * but 429, 502, 503 and 504) is given up at once. While cay-egress is away nothing is counted as an
 * attempt. Meanwhile the queue takes what comes, and its oldest spans go for new ones. */

#include "core/trace_internal.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/call.h"
#include "core/core_internal.h"
#include "core/egress.h"
#include "core/webhook_internal.h"
#include "http/json.h"

#include <stdio.h>
#include <string.h>

#define ANSWER_MAX   4096u
#define TIMEOUT_MS   15000u /* cay-egress answers sooner (COLLECTOR_TIME_MS), or is not there */
#define NO_EGRESS_MS 5000u

static void send_later(struct traces *t, uint64_t in_ms)
{
    if (!t->core->stopping)
        timers_set(&t->core->timers, &t->due, clock_mono_ms() + in_ms);
}

void trace_send_soon(struct traces *t)
{
    if (t->body || t->under_way)
        return; /* its end looks for more */
    if (t->n >= TRACE_BATCH_MAX)
        send_later(t, 0);
    else if (!timer_armed(&t->due))
        send_later(t, TRACE_WAIT_MS);
}

static void settle(struct traces *t)
{
    free(TAKE_PTR(t->body));
    t->body_spans = 0;
    t->attempts = 0;
    if (t->n > 0)
        trace_send_soon(t);
}

static void sent(struct traces *t)
{
    if (t->failing)
        log_info("traces: the collector takes them again");
    t->failing = false;
    t->counts.sent += t->body_spans;
    settle(t);
}

/* Said once, until one is taken again. */
static void say_failing(struct traces *t, const char *why)
{
    if (!t->failing)
        log_warn("traces: the collector does not take them: %s", why);
    t->failing = true;
}

static void give_up(struct traces *t, enum trace_dropped why)
{
    t->counts.dropped[why] += t->body_spans;
    settle(t);
}

static bool may_send_again(int status)
{
    return status == 0 || status == 429 || status == 502 || status == 503 || status == 504;
}

static void take_answer(struct traces *t, const json_t *o)
{
    const char *failed = json_string_value(json_object_get(o, "failed"));
    int status = (int)json_integer_value(json_object_get(o, "status"));
    char text[64];

    t->attempts++;
    if (status >= 200 && status < 300) {
        sent(t);
        return;
    }
    (void)snprintf(text, sizeof(text), "it has answered %d", status);
    say_failing(t, failed ? failed : text);
    if (!may_send_again(status))
        give_up(t, TRACE_DROPPED_REFUSED);
    else if (t->attempts >= TRACE_ATTEMPTS)
        give_up(t, TRACE_DROPPED_FAILED);
    else
        send_later(t, MIN(webhook_delay_ms(t->attempts), (uint64_t)TRACE_DELAY_MAX_MS));
}

static void on_answer(struct core *c, const char *id, const struct err *why, int status,
                      const char *body, size_t len, void *arg)
{
    struct traces *t = arg;
    json_t *o = !why && status == 200 ? json_load(body, len) : NULL;

    t->under_way = false;
    if (c->stopping) {
        /* spans that wait are lost with this cayd */
    } else if (json_is_object(o)) {
        take_answer(t, o);
    } else { /* cay-egress is away, or is out of places: not an attempt */
        say_failing(t, why ? why->text : "cay-egress cannot send them now");
        send_later(t, NO_EGRESS_MS);
    }
    json_decref(o);
}

/* False: memory is out. */
static bool make_body(struct traces *t)
{
    int64_t offset_us = clock_real_us() - (int64_t)clock_mono_us();

    t->body = trace_encode(t, offset_us, &t->body_spans);
    if (t->body)
        return true;
    t->counts.dropped[TRACE_DROPPED_MEMORY] += t->n;
    t->n = 0;
    return false;
}

void trace_on_due(struct timer *timer)
{
    struct traces *t = CONTAINER_OF(timer, struct traces, due);
    struct call_agent_request q = {.method = "POST",
                                   .target = "/v1/traces",
                                   .max_response_bytes = ANSWER_MAX,
                                   .timeout_ms = TIMEOUT_MS};
    const char *path = egress_any_path(t->core);

    if (t->under_way || (!t->body && t->n == 0))
        return;
    if (!path) {
        send_later(t, NO_EGRESS_MS);
        return;
    }
    if (!t->body && !make_body(t))
        return;
    q.body = strdup(t->body);
    if (!q.body) {
        send_later(t, NO_EGRESS_MS);
        return;
    }
    t->under_way = true;
    call_unix(t->core, "", path, &q, on_answer, t);
}
