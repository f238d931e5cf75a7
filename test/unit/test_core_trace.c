/* Traces: which callers' contexts are taken, what a span says, what becomes of a batch that is not taken, and
 * which spans go when too many wait. */
#include "base/clock.h"
#include "base/otlp_url.h"
#include "core/core_internal.h"
#include "core/counters.h"
#include "core/fork.h"
#include "core/snapshot.h"
#include "core/trace_internal.h"
#include "core_proxy.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#define TRACE  "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"
#define CALLER "00-" TRACE "-" PARENT "-01"
#define TAKEN  "{\"status\":200}"

/* -- whose child it is ------------------------------------------------------------------------- */

static void a_traceparent_is_taken_as_w3c_says(void **state)
{
    static const char *const good[] = {CALLER, "00-" TRACE "-" PARENT "-00",
                                       "00-" TRACE "-" PARENT "-ff", "01-" TRACE "-" PARENT "-01",
                                       "fe-" TRACE "-" PARENT "-01-more"};
    static const char *const bad[] = {"",
                                      "00",
                                      "ff-" TRACE "-" PARENT "-01",
                                      "00-" TRACE "-" PARENT "-01-more",
                                      "01-" TRACE "-" PARENT "-01x",
                                      "00-" TRACE "-" PARENT "-0",
                                      "00-" TRACE "-" PARENT "-0g",
                                      "00-" TRACE "-" PARENT,
                                      " 00-" TRACE "-" PARENT "-01",
                                      "00_" TRACE "-" PARENT "-01",
                                      "00-" TRACE "_" PARENT "-01",
                                      "00-4BF92F3577B34DA6A3CE929D0E0E4736-" PARENT "-01",
                                      "00-00000000000000000000000000000000-" PARENT "-01",
                                      "00-" TRACE "-0000000000000000-01"};
    struct trace_context c;

    for (size_t i = 0; i < ARRAY_SIZE(good); i++)
        if (!trace_context_parse(good[i], &c) || !c.is_set)
            fail_msg("\"%s\" was not taken", good[i]);
    memset(&c, 0x55, sizeof(c));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (trace_context_parse(bad[i], &c) || c.trace[0] != 0x55)
            fail_msg("\"%s\" was taken", bad[i]);
    assert_true(trace_context_parse(CALLER, &c));
    assert_true(c.sampled);
    assert_int_equal(c.trace[0], 0x4b);
    assert_int_equal(c.span[7], 0xb7);
    assert_true(trace_context_parse("00-" TRACE "-" PARENT "-02", &c));
    assert_false(c.sampled);
}

static void a_collectors_address_is_in_digits(void **state)
{
    static const char *const bad[] = {"",
                                      "http://",
                                      "https://127.0.0.1:4318",
                                      "http://collector:4318",
                                      "127.0.0.1:4318",
                                      "http://127.0.0.1:0",
                                      "http://127.0.0.1:65536",
                                      "http://127.0.0.1:",
                                      "http://127.0.0.1:+1",
                                      "http://::1:4318",
                                      "http://[::1",
                                      "http://[127.0.0.1]",
                                      "http://u@127.0.0.1:4318",
                                      "http://127.0.0.1/?x=1",
                                      "http://127.0.0.1/#x",
                                      "http://127.0.0.1/a b",
                                      "http://127.0.0.1\r\nX: y"};
    char long_path[OTLP_URL_PATH_MAX + 64];
    struct otlp_url u;

    memset(&u, 0x55, sizeof(u));
    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        if (!otlp_url_parse(bad[i], &u) || u.path[0] != 0x55)
            fail_msg("\"%s\" was taken", bad[i]);
    memset(long_path, 'a', sizeof(long_path));
    memcpy(long_path, "http://127.0.0.1/", strlen("http://127.0.0.1/"));
    long_path[sizeof(long_path) - 1] = '\0';
    assert_non_null(otlp_url_parse(long_path, &u));
    assert_null(otlp_url_parse("http://localhost", &u));
    assert_int_equal(u.to.v4.sin_addr.s_addr, htonl(INADDR_LOOPBACK));
    assert_int_equal(ntohs(u.to.v4.sin_port), OTLP_URL_PORT);
    assert_string_equal(u.path, "/v1/traces");
    assert_null(otlp_url_parse("http://[2001:db8::1]:9/otlp/v1/traces", &u));
    assert_int_equal(u.to.any.sa_family, AF_INET6);
    assert_int_equal(ntohs(u.to.v6.sin6_port), 9);
    assert_string_equal(u.authority, "[2001:db8::1]:9");
    assert_string_equal(u.path, "/otlp/v1/traces");
}

/* -- what is sent ------------------------------------------------------------------------------ */

static void with_collector(struct world *w, struct proxy *p)
{
    *p = (struct proxy){.status = 204, .delivered = NULL, .traced = TAKEN};
    w->config.traces = true;
    proxy_known_to(w, NULL);
    proxy_start(p, w);
    world_run_until(w, &p->lives, 1);
}

static json_t *spans_of(const struct proxy *p)
{
    json_t *all = json_loads(p->trace_body, 0, NULL), *spans;
    json_t *scope = json_array_get(
        json_object_get(json_array_get(json_object_get(all, "resourceSpans"), 0), "scopeSpans"), 0);

    spans = json_incref(json_object_get(scope, "spans"));
    json_decref(all);
    assert_true(json_is_array(spans));
    return spans;
}

static const char *text_of(const json_t *span, const char *key)
{
    const char *text = json_string_value(json_object_get(span, key));

    return text ? text : "";
}

static json_t *named(json_t *spans, const char *name)
{
    json_t *one;
    size_t i;

    json_array_foreach (spans, i, one)
        if (strcmp(text_of(one, "name"), name) == 0)
            return one;
    fail_msg("there is no span %s", name);
    return NULL;
}

static const char *attribute(const json_t *span, const char *key)
{
    const json_t *one;
    size_t i;

    json_array_foreach (json_object_get(span, "attributes"), i, one)
        if (strcmp(text_of(one, "key"), key) == 0)
            return text_of(json_object_get(one, "value"), "stringValue");
    return "";
}

static int status_of(const json_t *span)
{
    return (int)json_integer_value(json_object_get(json_object_get(span, "status"), "code"));
}

/* Spans that end meanwhile go in one batch. */
static void hold(struct world *w)
{
    w->core->traces->under_way = true;
}

static void release(struct world *w, struct proxy *p)
{
    unsigned before = p->traces;

    w->core->traces->under_way = false;
    trace_on_due(&w->core->traces->due);
    world_run_until(w, &p->traces, before + 1);
}

/* With that traceparent. */
static void create_for(struct world *w, const char *traceparent, struct answer *a)
{
    struct sandbox_request r = world_request();
    const struct trace_context before = core_trace_call(w->core, traceparent);

    *a = (struct answer){0};
    core_sandbox_create(w->core, &r, world_on_answer, a);
    (void)trace_enter(w->core, &before);
    world_run_until(w, &a->calls, 1);
}

static bool all_sent(struct world *w)
{
    const struct trace_counts n = core_trace_counts(w->core);

    return n.waiting == 0 && n.sent > 0;
}

static void check_child(const json_t *child, const json_t *parent)
{
    assert_string_equal(text_of(child, "traceId"), text_of(parent, "traceId"));
    assert_string_equal(text_of(child, "parentSpanId"), text_of(parent, "spanId"));
    assert_string_not_equal(text_of(child, "spanId"), text_of(parent, "spanId"));
    assert_true(strcmp(text_of(child, "startTimeUnixNano"), text_of(parent, "startTimeUnixNano")) >=
                0);
    assert_true(strcmp(text_of(child, "endTimeUnixNano"), text_of(parent, "endTimeUnixNano")) <= 0);
}

static void a_create_and_its_steps_are_the_callers(void **state)
{
    struct world *w = *state;
    json_t *spans, *root, *made, *agent;
    struct answer a;
    struct proxy p;

    with_collector(w, &p);
    create_for(w, CALLER, &a);
    assert_true(a.good);
    world_run_until_true(w, all_sent);
    spans = spans_of(&p);
    assert_int_equal(json_array_size(spans), 3);
    root = named(spans, "sandbox.create");
    made = named(spans, "sandbox.create.made");
    agent = named(spans, "sandbox.create.agent");
    assert_string_equal(text_of(root, "traceId"), TRACE);
    assert_string_equal(text_of(root, "parentSpanId"), PARENT);
    assert_int_equal(strlen(text_of(root, "spanId")), 16);
    assert_int_equal(json_integer_value(json_object_get(root, "kind")), 2);
    assert_int_equal(json_integer_value(json_object_get(made, "kind")), 1);
    assert_string_equal(attribute(root, "cay.tenant"), "default");
    assert_string_equal(attribute(root, "cay.sandbox.id"), a.id);
    assert_int_equal(status_of(root), 1);
    check_child(made, root);
    check_child(agent, root);
    assert_string_equal(text_of(made, "startTimeUnixNano"), text_of(root, "startTimeUnixNano"));
    assert_string_equal(text_of(made, "endTimeUnixNano"), text_of(agent, "startTimeUnixNano"));
    assert_true(llabs(atoll(text_of(root, "endTimeUnixNano")) / 1000000 -
                      (long long)clock_real_ms()) < 60000);
    json_decref(spans);
    proxy_stop(&p);
}

static void one_that_fails_says_how(void **state)
{
    struct world *w = *state;
    json_t *spans, *root;
    struct answer a;
    struct proxy p;

    with_collector(w, &p);
    fake_set(w->fake, FAKE_FAIL_CREATES, 1);
    create_for(w, "no traceparent", &a);
    assert_false(a.good);
    world_run_until_true(w, all_sent);
    spans = spans_of(&p);
    assert_int_equal(json_array_size(spans), 1);
    root = named(spans, "sandbox.create");
    assert_string_equal(text_of(root, "parentSpanId"), "");
    assert_string_not_equal(text_of(root, "traceId"), TRACE);
    assert_int_equal(status_of(root), 2);
    assert_string_equal(attribute(root, "error.type"), err_code_name(a.why.code));
    json_decref(spans);
    proxy_stop(&p);
}

static void what_a_caller_does_not_sample_is_not_recorded(void **state)
{
    struct world *w = *state;
    struct answer a;
    struct proxy p;

    with_collector(w, &p);
    create_for(w, "00-" TRACE "-" PARENT "-00", &a);
    assert_true(a.good);
    assert_int_equal(core_trace_counts(w->core).waiting, 0);
    create_for(w, CALLER, &a); /* the control */
    assert_int_equal(core_trace_counts(w->core).waiting, 3);
    proxy_stop(&p);
}

static void without_a_collector_there_are_none(void **state)
{
    struct world *w = *state;
    struct answer a;

    create_for(w, CALLER, &a);
    assert_true(a.good);
    assert_null(w->core->traces);
    assert_int_equal(core_trace_counts(w->core).waiting, 0);
}

static void on_forked(void *arg, const struct core_fork *forks, size_t n, const struct err *why)
{
    struct answer *a = arg;

    a->calls++;
    a->good = forks && n == 2 && forks[0].id[0] && forks[1].id[0];
}

static void a_fork_has_all_that_it_begins_below_it(void **state)
{
    struct world *w = *state;
    json_t *spans, *root, *one;
    struct answer a, forked = {0};
    struct trace_context before;
    unsigned creates = 0;
    struct proxy p;
    size_t i;

    with_collector(w, &p);
    create_for(w, NULL, &a);
    world_run_until_true(w, all_sent);
    hold(w);
    before = core_trace_call(w->core, CALLER);
    core_sandbox_fork(w->core, "default", a.id,
                      &(struct core_fork_request){.count = 2, .ttl_ms = 60000}, on_forked, &forked);
    (void)trace_enter(w->core, &before);
    world_run_until(w, &forked.calls, 1);
    assert_true(forked.good);
    release(w, &p);
    spans = spans_of(&p);
    root = named(spans, "sandbox.fork");
    assert_string_equal(text_of(root, "parentSpanId"), PARENT);
    check_child(named(spans, "sandbox.fork.environment"), root);
    check_child(named(spans, "snapshot.create"), root);
    check_child(named(spans, "snapshot.create.copy"), named(spans, "snapshot.create"));
    assert_int_equal(attribute(named(spans, "snapshot.create"), "cay.snapshot.id")[0], 's');
    json_array_foreach (spans, i, one) {
        assert_string_equal(text_of(one, "traceId"), TRACE);
        if (strcmp(text_of(one, "name"), "sandbox.create") == 0) {
            check_child(one, root);
            creates++;
        }
    }
    assert_int_equal(creates, 2);
    json_decref(spans);
    proxy_stop(&p);
}

static void pause_for(struct world *w, const char *id, enum sandbox_tier tier,
                      const char *traceparent)
{
    const struct trace_context before = core_trace_call(w->core, traceparent);
    struct answer a = {0};

    core_sandbox_pause(w->core, "default", id, tier, world_on_answer, &a);
    (void)trace_enter(w->core, &before);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
}

static void resume_for(struct world *w, const char *id, const char *traceparent)
{
    const struct trace_context before = core_trace_call(w->core, traceparent);
    struct answer a = {0};

    core_sandbox_resume(w->core, "default", id, 0, false, world_on_answer, &a);
    (void)trace_enter(w->core, &before);
    world_run_until(w, &a.calls, 1);
    assert_true(a.good);
}

static void a_pause_and_a_resume_say_their_tier(void **state)
{
    static const struct {
        enum sandbox_tier tier;
        const char *word;
        size_t spans;
    } rows[] = {{SANDBOX_TIER_FROZEN, "frozen", 2}, {SANDBOX_TIER_FILES, "files", 6}};
    struct world *w = *state;
    json_t *spans, *one;
    struct answer a;
    struct proxy p;

    with_collector(w, &p);
    create_for(w, NULL, &a);
    world_run_until_true(w, all_sent);
    for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
        hold(w);
        pause_for(w, a.id, rows[i].tier, CALLER);
        resume_for(w, a.id, CALLER);
        release(w, &p);
        spans = spans_of(&p);
        assert_int_equal(json_array_size(spans), rows[i].spans);
        one = named(spans, "sandbox.pause");
        assert_string_equal(text_of(one, "parentSpanId"), PARENT);
        assert_string_equal(attribute(one, "cay.pause.tier"), rows[i].word);
        assert_string_equal(attribute(one, "cay.pause.reason"), "api");
        one = named(spans, "sandbox.resume");
        assert_string_equal(text_of(one, "parentSpanId"), PARENT);
        assert_string_equal(attribute(one, "cay.pause.tier"), rows[i].word);
        assert_string_equal(attribute(one, "cay.pause.reason"), "");
        if (rows[i].tier == SANDBOX_TIER_FILES) {
            check_child(named(spans, "sandbox.pause.environment"), named(spans, "sandbox.pause"));
            check_child(named(spans, "sandbox.pause.kept"), named(spans, "sandbox.pause"));
            check_child(named(spans, "sandbox.resume.made"), one);
            check_child(named(spans, "sandbox.resume.agent"), one);
        }
        json_decref(spans);
    }
    proxy_stop(&p);
}

/* -- what is not taken ------------------------------------------------------------------------- */

static void record(struct world *w, unsigned n)
{
    const struct trace_about about = {.tenant = "default"};

    for (unsigned i = 0; i < n; i++) {
        struct trace_span s;

        trace_begin(w->core, &s, TRACE_CREATE, clock_mono_us());
        trace_end(w->core, &s, &about, ERR_OK);
        trace_end(w->core, &s, &about, ERR_OK); /* once is enough */
    }
}

/* For GET /metrics; a create's are counted elsewhere. */
static void ends_are_counted_by_step(void **state)
{
    struct world *w = *state;
    const struct counters *n = core_counters(w->core);
    struct trace_about about = {.tenant = "default", .tier = "memory"};
    struct trace_span s;
    uint64_t count = 0;

    trace_begin(w->core, &s, TRACE_PAUSE, clock_mono_us() - 3000);
    trace_end(w->core, &s, &about, ERR_OK);
    trace_end(w->core, &s, &about, ERR_OK);
    trace_begin(w->core, &s, TRACE_RESUME, clock_mono_us());
    trace_end(w->core, &s, &about, ERR_TIMEOUT);
    trace_begin(w->core, &s, TRACE_CREATE, clock_mono_us());
    trace_end(w->core, &s, &about, ERR_OK);
    about.tier = NULL;
    trace_begin(w->core, &s, TRACE_FORK, clock_mono_us());
    trace_end(w->core, &s, &about, ERR_OK);
    assert_int_equal(n->steps[COUNTER_PAUSE_MEMORY].count, 1);
    assert_true(n->steps[COUNTER_PAUSE_MEMORY].sum_us >= 3000);
    assert_int_equal(n->step_failed[COUNTER_RESUME_MEMORY], 1);
    assert_int_equal(n->steps[COUNTER_FORK].count, 1);
    for (unsigned i = 0; i < COUNTER_STEP_COUNT; i++)
        count += n->steps[i].count + n->step_failed[i];
    assert_int_equal(count, 3);
}

/* The time of the next attempt has come. */
static void attempt(struct world *w, struct proxy *p, const char *answer)
{
    struct traces *t = w->core->traces;
    unsigned before = p->traces;

    p->traced = answer;
    assert_false(t->under_way);
    trace_on_due(&t->due);
    world_run_until(w, &p->traces, before + 1);
}

static bool is_answered(struct world *w)
{
    return !w->core->traces->under_way;
}

static void what_may_be_sent_again_is_until_it_is_given_up(void **state)
{
    static const char *const again[] = {"{\"status\":429}", "{\"status\":502}", "{\"status\":503}",
                                        "{\"status\":504}"};
    struct world *w = *state;
    char *first;
    struct proxy p;

    with_collector(w, &p);
    record(w, 1);
    for (size_t i = 0; i < ARRAY_SIZE(again); i++) {
        attempt(w, &p, again[i]);
        world_run_until_true(w, is_answered);
        assert_int_equal(core_trace_counts(w->core).waiting, 1);
        assert_true(timer_armed(&w->core->traces->due));
        if (i == 0)
            first = strdup(p.trace_body);
        assert_string_equal(p.trace_body, first);
    }
    free(first);
    attempt(w, &p, "{\"failed\":\"cannot connect\"}");
    world_run_until_true(w, is_answered);
    assert_int_equal(core_trace_counts(w->core).waiting, 0);
    assert_int_equal(core_trace_counts(w->core).dropped[TRACE_DROPPED_FAILED], 1);
    record(w, 2);
    attempt(w, &p, TAKEN);
    world_run_until_true(w, is_answered);
    assert_int_equal(core_trace_counts(w->core).sent, 2);
    proxy_stop(&p);
}

static void what_may_not_is_given_up_at_once(void **state)
{
    static const char *const never[] = {"{\"status\":500}", "{\"status\":400}", "{\"status\":301}",
                                        "{\"status\":404}"};
    struct world *w = *state;
    struct proxy p;

    with_collector(w, &p);
    for (unsigned i = 0; i < ARRAY_SIZE(never); i++) {
        record(w, 3);
        attempt(w, &p, never[i]);
        world_run_until_true(w, is_answered);
        assert_int_equal(core_trace_counts(w->core).dropped[TRACE_DROPPED_REFUSED], (i + 1) * 3);
        assert_int_equal(core_trace_counts(w->core).waiting, 0);
    }
    proxy_stop(&p);
}

static void an_egress_that_is_away_is_no_attempt(void **state)
{
    struct world *w = *state;
    struct proxy p;

    with_collector(w, &p);
    record(w, 1);
    for (unsigned i = 0; i < 2 * TRACE_ATTEMPTS; i++) {
        attempt(w, &p, i % 2 ? "" : "no JSON");
        world_run_until_true(w, is_answered);
    }
    assert_int_equal(core_trace_counts(w->core).waiting, 1);
    attempt(w, &p, TAKEN);
    world_run_until_true(w, is_answered);
    assert_int_equal(core_trace_counts(w->core).sent, 1);
    proxy_stop(&p);
}

static void the_oldest_goes_when_too_many_wait(void **state)
{
    struct world *w = *state;
    uint8_t second[TRACE_SPAN_ID_BYTES];
    char hex[2 * TRACE_SPAN_ID_BYTES + 1];
    json_t *spans;
    struct proxy p;

    with_collector(w, &p);
    p.traced = NULL; /* it takes a batch and says nothing */
    record(w, TRACE_BATCH_MAX);
    world_run_until(w, &p.traces, 1);
    record(w, 2); /* the oldest of those that wait */
    memcpy(second, w->core->traces->ring[(w->core->traces->first + 1) % TRACE_WAITING_MAX].span.id,
           sizeof(second));
    record(w, TRACE_WAITING_MAX - 1);
    assert_int_equal(core_trace_counts(w->core).dropped[TRACE_DROPPED_FULL], 1);
    assert_int_equal(core_trace_counts(w->core).waiting, TRACE_WAITING_MAX + TRACE_BATCH_MAX);
    assert_int_equal(core_trace_counts(w->core).sent, 0);
    free(w->core->traces->body); /* as if that batch were settled */
    w->core->traces->body = NULL;
    w->core->traces->body_spans = 0;
    w->core->traces->under_way = false;
    attempt(w, &p, NULL);
    spans = spans_of(&p);
    assert_int_equal(json_array_size(spans), TRACE_BATCH_MAX);
    assert_true(strlen(p.trace_body) < TRACE_BODY_MAX);
    for (size_t i = 0; i < sizeof(second); i++)
        (void)snprintf(hex + 2 * i, 3, "%02x", second[i]);
    assert_string_equal(text_of(json_array_get(spans, 0), "spanId"), hex);
    json_decref(spans);
    proxy_stop(&p);
}

static void a_batch_of_the_longest_fits(void **state)
{
    struct world *w = *state;
    char tenant[CORE_TENANT_SIZE], id[IDS_SANDBOX_SIZE];
    const struct trace_about about = {tenant, id, id, "frozen", "timeout"};
    size_t n = 0;
    json_t *read;
    char *body;

    w->config.traces = true;
    proxy_known_to(w, NULL);
    memset(tenant, 't', sizeof(tenant) - 1);
    memset(id, 'i', sizeof(id) - 1);
    tenant[0] = '"'; /* nothing that is no JSON, whatever came in */
    tenant[1] = '\\';
    tenant[2] = '\n';
    tenant[sizeof(tenant) - 1] = id[sizeof(id) - 1] = '\0';
    for (unsigned i = 0; i < TRACE_BATCH_MAX; i++) {
        struct trace_span s;

        trace_begin(w->core, &s, TRACE_RESUME_AGENT, clock_mono_us());
        trace_end(w->core, &s, &about, ERR_UNIMPLEMENTED);
    }
    body = trace_encode(w->core->traces, 0, &n);
    assert_non_null(body);
    assert_int_equal(n, TRACE_BATCH_MAX);
    assert_true(strlen(body) < TRACE_BODY_MAX);
    read = json_loads(body, 0, NULL);
    assert_non_null(read);
    json_decref(read);
    free(body);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_traceparent_is_taken_as_w3c_says),
        cmocka_unit_test(a_collectors_address_is_in_digits),
        WORLD(a_create_and_its_steps_are_the_callers),
        WORLD(one_that_fails_says_how),
        WORLD(what_a_caller_does_not_sample_is_not_recorded),
        WORLD(without_a_collector_there_are_none),
        WORLD(a_fork_has_all_that_it_begins_below_it),
        WORLD(a_pause_and_a_resume_say_their_tier),
        WORLD(ends_are_counted_by_step),
        WORLD(what_may_be_sent_again_is_until_it_is_given_up),
        WORLD(what_may_not_is_given_up_at_once),
        WORLD(an_egress_that_is_away_is_no_attempt),
        WORLD(the_oldest_goes_when_too_many_wait),
        WORLD(a_batch_of_the_longest_fits),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
