/* Spans as OTLP 1 in JSON (opentelemetry-proto, "JSON Protobuf Encoding"): ids in hex, 64-bit
 * numbers as texts, enumerations as numbers. All texts are literals, ids of cay's own and tenants'
 * names, so that none needs escaping; a character that would is replaced. */

#include "core/trace_internal.h"

#include "base/ids.h"
#include "base/text_writer.h"

#include <inttypes.h>
#include <string.h>

#define KIND_INTERNAL 1
#define KIND_SERVER   2
#define STATUS_OK     1
#define STATUS_ERROR  2

static const char *const names[TRACE_NAME_COUNT] = {
    [TRACE_CREATE] = "sandbox.create",
    [TRACE_CREATE_MADE] = "sandbox.create.made",
    [TRACE_CREATE_AGENT] = "sandbox.create.agent",
    [TRACE_PAUSE] = "sandbox.pause",
    [TRACE_PAUSE_ENV] = "sandbox.pause.environment",
    [TRACE_PAUSE_KEPT] = "sandbox.pause.kept",
    [TRACE_RESUME] = "sandbox.resume",
    [TRACE_RESUME_MADE] = "sandbox.resume.made",
    [TRACE_RESUME_AGENT] = "sandbox.resume.agent",
    [TRACE_SNAPSHOT] = "snapshot.create",
    [TRACE_SNAPSHOT_COPY] = "snapshot.create.copy",
    [TRACE_FORK] = "sandbox.fork",
    [TRACE_FORK_ENV] = "sandbox.fork.environment",
};

const char *trace_name(enum trace_name name)
{
    return (unsigned)name < TRACE_NAME_COUNT ? names[name] : "";
}

/* comma: one stands before it. Nothing for a value that is not there. */
static bool put_attribute(struct text_writer *t, bool comma, const char *key, const char *value)
{
    char plain[64];
    size_t n = 0;

    if (!value || !*value)
        return comma;
    for (; n < sizeof(plain) - 1 && value[n]; n++)
        plain[n] = value[n];
    plain[n] = '\0';
    for (char *p = plain; *p; p++)
        if (*p < ' ' || *p > '~' || *p == '"' || *p == '\\')
            *p = '_';
    text_writer_put(t, "%s{\"key\":\"%s\",\"value\":{\"stringValue\":\"%s\"}}", comma ? "," : "",
                    key, plain);
    return true;
}

static void put_id(struct text_writer *t, const char *key, const uint8_t *id, size_t n)
{
    char hex[2 * TRACE_ID_BYTES + 1];

    ids_hex(id, n, hex);
    text_writer_put(t, "\"%s\":\"%s\",", key, hex);
}

static void put_span(struct text_writer *t, const struct trace_record *r, int64_t offset_us)
{
    const struct trace_span *s = &r->span;
    bool comma = false;

    text_writer_put(t, "{");
    put_id(t, "traceId", s->trace, sizeof(s->trace));
    put_id(t, "spanId", s->id, sizeof(s->id));
    if (s->has_parent)
        put_id(t, "parentSpanId", s->parent, sizeof(s->parent));
    text_writer_put(t, "\"name\":\"%s\",\"kind\":%d,", trace_name(s->name),
                    s->is_call ? KIND_SERVER : KIND_INTERNAL);
    text_writer_put(t, "\"startTimeUnixNano\":\"%" PRId64 "\",\"endTimeUnixNano\":\"%" PRId64 "\",",
                    ((int64_t)s->begun_us + offset_us) * 1000,
                    ((int64_t)r->ended_us + offset_us) * 1000);
    text_writer_put(t, "\"attributes\":[");
    comma = put_attribute(t, comma, "cay.tenant", r->tenant);
    comma = put_attribute(t, comma, "cay.sandbox.id", r->sandbox);
    comma = put_attribute(t, comma, "cay.snapshot.id", r->snapshot);
    comma = put_attribute(t, comma, "cay.pause.tier", r->tier);
    comma = put_attribute(t, comma, "cay.pause.reason", r->reason);
    if (r->code != ERR_OK)
        (void)put_attribute(t, comma, "error.type", err_code_name(r->code));
    text_writer_put(t, "],\"status\":{\"code\":%d}}", r->code == ERR_OK ? STATUS_OK : STATUS_ERROR);
}

static void put_head(struct text_writer *t, const char *instance)
{
    text_writer_put(t, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
    put_attribute(t, false, "service.name", "cay");
    put_attribute(t, true, "service.version", CAY_VERSION);
    put_attribute(t, true, "service.instance.id", instance);
    text_writer_put(t, "]},\"scopeSpans\":[{\"scope\":{\"name\":\"cay\"},\"spans\":[");
}

char *trace_encode(struct traces *t, int64_t real_offset_us, size_t *spans)
{
    const size_t n = MIN(t->n, (size_t)TRACE_BATCH_MAX);
    struct text_writer text = {.failed = 0};
    char *body;

    buf_init(&text.buf, TRACE_BODY_MAX);
    put_head(&text, t->instance);
    for (size_t i = 0; i < n; i++) {
        text_writer_put(&text, "%s", i ? "," : "");
        put_span(&text, &t->ring[(t->first + i) % TRACE_WAITING_MAX], real_offset_us);
    }
    text_writer_put(&text, "]}]}]}");
    body = text.failed == 0 ? buf_take(&text.buf) : NULL;
    buf_free(&text.buf);
    if (!body)
        return NULL;
    t->first = (t->first + n) % TRACE_WAITING_MAX;
    t->n -= n;
    *spans = n;
    return body;
}
