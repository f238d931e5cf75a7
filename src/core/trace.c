/* Spans and their queue: see trace.h. Runs on the control loop, as all of core does. */

#include "core/trace_internal.h"

#include "base/clock.h"
#include "base/ids.h"
#include "core/core_internal.h"

#include <stdio.h>
#include <string.h>

/* -- whose child it is ------------------------------------------------------------------------- */

#define VERSION_END 2u
#define TRACE_AT    3u
#define SPAN_AT     36u
#define FLAGS_AT    53u
#define PARENT_LEN  55u /* of version 00; later ones may have more behind a dash */

static bool is_zero(const uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (bytes[i])
            return false;
    return true;
}

/* Capitals are no hex here. */
static bool has_form(const char *text)
{
    static const char hex[] = "0123456789abcdef";

    for (size_t i = 0; i < PARENT_LEN; i++) {
        bool dash = i == VERSION_END || i == SPAN_AT - 1 || i == FLAGS_AT - 1;

        if (!text[i] || (dash ? text[i] != '-' : !strchr(hex, text[i])))
            return false;
    }
    return true;
}

/* W3C Trace Context, section 3.2.2: version 00 has nothing behind the flags, ff is none, and of a
 * later one the same fields are read. */
bool trace_context_parse(const char *text, struct trace_context *out)
{
    struct trace_context c = {.is_set = true};
    char ids[2 * TRACE_ID_BYTES + 1] = "";
    uint8_t flags;

    if (!has_form(text) || strncmp(text, "ff", VERSION_END) == 0 ||
        (text[PARENT_LEN] && (strncmp(text, "00", VERSION_END) == 0 || text[PARENT_LEN] != '-')))
        return false;
    memcpy(ids, text + TRACE_AT, sizeof(ids) - 1);
    if (ids_unhex(ids, c.trace, sizeof(c.trace)) < 0)
        return false;
    (void)snprintf(ids, sizeof(ids), "%.16s", text + SPAN_AT);
    if (ids_unhex(ids, c.span, sizeof(c.span)) < 0)
        return false;
    (void)snprintf(ids, sizeof(ids), "%.2s", text + FLAGS_AT);
    if (ids_unhex(ids, &flags, 1) < 0 || is_zero(c.trace, sizeof(c.trace)) ||
        is_zero(c.span, sizeof(c.span)))
        return false;
    c.sampled = flags & 1;
    *out = c;
    return true;
}

struct trace_context trace_enter(struct core *c, const struct trace_context *to)
{
    struct trace_context before = c->trace;

    c->trace = *to;
    return before;
}

struct trace_context trace_below(const struct trace_span *s)
{
    struct trace_context c = {.is_set = s->on || s->unsampled, .sampled = s->on};

    memcpy(c.trace, s->trace, sizeof(c.trace));
    memcpy(c.span, s->id, sizeof(c.span));
    return c;
}

struct trace_context core_trace_call(struct core *c, const char *traceparent)
{
    struct trace_context caller = {.is_set = false};

    if (traceparent && c->traces)
        (void)trace_context_parse(traceparent, &caller);
    caller.is_call = true;
    return trace_enter(c, &caller);
}

/* -- spans ------------------------------------------------------------------------------------- */

static void begin(struct trace_span *s, const struct trace_context *above, enum trace_name name,
                  uint64_t at_us)
{
    *s = (struct trace_span){.on = !above->is_set || above->sampled,
                             .is_call = above->is_call,
                             .has_parent = above->is_set,
                             .name = name,
                             .begun_us = at_us};
    s->unsampled = !s->on;
    if (above->is_set) {
        memcpy(s->trace, above->trace, sizeof(s->trace));
        memcpy(s->parent, above->span, sizeof(s->parent));
    } else {
        ids_random_bytes(s->trace, sizeof(s->trace));
        s->trace[0] |= 1; /* all zeros are none */
    }
    ids_random_bytes(s->id, sizeof(s->id));
    s->id[0] |= 1;
}

void trace_begin(struct core *c, struct trace_span *s, enum trace_name name, uint64_t at_us)
{
    if (c->traces)
        begin(s, &c->trace, name, at_us);
    else
        *s = (struct trace_span){.name = name, .begun_us = at_us};
    s->timed = true;
}

/* A row without a tier is for all. A create is counted where its steps are known (create.c). */
static const struct change {
    enum trace_name name;
    const char *tier;
    enum counter_step step;
} changes[] = {
    {TRACE_PAUSE, "frozen", COUNTER_PAUSE_FROZEN},
    {TRACE_PAUSE, "memory", COUNTER_PAUSE_MEMORY},
    {TRACE_PAUSE, "files", COUNTER_PAUSE_FILES},
    {TRACE_RESUME, "frozen", COUNTER_RESUME_FROZEN},
    {TRACE_RESUME, "memory", COUNTER_RESUME_MEMORY},
    {TRACE_RESUME, "files", COUNTER_RESUME_FILES},
    {TRACE_SNAPSHOT, NULL, COUNTER_SNAPSHOT},
    {TRACE_FORK, NULL, COUNTER_FORK},
};

static void count(struct counters *n, const struct trace_span *s, const char *tier,
                  uint64_t ended_us, enum err_code code)
{
    const struct change *ch = changes, *end = changes + ARRAY_SIZE(changes);

    while (ch < end &&
           (ch->name != s->name || (ch->tier && (!tier || strcmp(ch->tier, tier) != 0))))
        ch++;
    if (ch == end)
        return;
    if (code == ERR_OK)
        histogram_add(&n->steps[ch->step], ended_us - MIN(s->begun_us, ended_us));
    else
        n->step_failed[ch->step]++;
}

static void copy_text(char *out, size_t size, const char *text)
{
    (void)snprintf(out, size, "%s", text ? text : "");
}

/* The oldest goes where there is no room. */
static void record(struct traces *t, const struct trace_span *s, uint64_t ended_us,
                   const struct trace_about *about, enum err_code code)
{
    struct trace_record *r = &t->ring[(t->first + t->n) % TRACE_WAITING_MAX];

    if (t->n == TRACE_WAITING_MAX) {
        t->first = (t->first + 1) % TRACE_WAITING_MAX;
        t->counts.dropped[TRACE_DROPPED_FULL]++;
    } else {
        t->n++;
    }
    *r = (struct trace_record){.span = *s,
                               .ended_us = MAX(ended_us, s->begun_us),
                               .code = code,
                               .tier = about->tier,
                               .reason = about->reason};
    copy_text(r->tenant, sizeof(r->tenant), about->tenant);
    copy_text(r->sandbox, sizeof(r->sandbox), about->sandbox);
    copy_text(r->snapshot, sizeof(r->snapshot), about->snapshot);
    trace_send_soon(t);
}

void trace_end(struct core *c, struct trace_span *s, const struct trace_about *about,
               enum err_code code)
{
    if (s->timed)
        count(&c->counters, s, about->tier, clock_mono_us(), code);
    if (c->traces && s->on)
        record(c->traces, s, clock_mono_us(), about, code);
    s->on = s->unsampled = s->timed = false;
}

void trace_step(struct core *c, const struct trace_span *parent, enum trace_name name,
                uint64_t from_us, uint64_t until_us, const struct trace_about *about)
{
    const struct trace_context above = trace_below(parent);
    struct trace_span s;

    if (!c->traces || !parent->on || from_us == 0 || until_us < from_us)
        return;
    begin(&s, &above, name, from_us);
    record(c->traces, &s, until_us, about, ERR_OK);
}

/* -- counts ------------------------------------------------------------------------------------ */

const char *core_trace_dropped_name(enum trace_dropped why)
{
    static const char *const names[TRACE_DROPPED_COUNT] = {[TRACE_DROPPED_FULL] = "queue_full",
                                                           [TRACE_DROPPED_REFUSED] = "refused",
                                                           [TRACE_DROPPED_FAILED] = "not_sent",
                                                           [TRACE_DROPPED_MEMORY] = "memory"};

    return (unsigned)why < TRACE_DROPPED_COUNT ? names[why] : "";
}

struct trace_counts core_trace_counts(const struct core *c)
{
    struct trace_counts counts = {.sent = 0};

    if (!c->traces)
        return counts;
    counts = c->traces->counts;
    counts.waiting = c->traces->n + c->traces->body_spans;
    return counts;
}

/* -- start and end ----------------------------------------------------------------------------- */

enum err_code traces_init(struct core *c, struct err *e)
{
    struct traces *t;
    uint8_t instance[TRACE_INSTANCE_SIZE / 2];

    if (!c->config.traces)
        return ERR_OK;
    t = calloc(1, sizeof(*t));
    if (t)
        t->ring = calloc(TRACE_WAITING_MAX, sizeof(*t->ring));
    if (!t || !t->ring) {
        free(t);
        return err_set(e, ERR_EXHAUSTED, "memory is out");
    }
    t->core = c;
    t->due.fire = trace_on_due;
    ids_random_bytes(instance, sizeof(instance));
    ids_hex(instance, sizeof(instance), t->instance);
    c->traces = t;
    return ERR_OK;
}

void traces_free(struct core *c)
{
    struct traces *t = TAKE_PTR(c->traces);

    if (!t)
        return;
    timers_cancel(&c->timers, &t->due);
    free(t->body);
    free(t->ring);
    free(t);
}
