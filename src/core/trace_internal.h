#pragma once
/* Shared by trace.c (spans, the queue), trace_encode.c (OTLP) and trace_send.c (requests). */

#include "core/timers.h"
#include "core/trace.h"

#define TRACE_INSTANCE_SIZE 17u

/* A span that has ended. */
struct trace_record {
    struct trace_span span;
    uint64_t ended_us;
    enum err_code code;
    char tenant[CORE_TENANT_SIZE], sandbox[IDS_SANDBOX_SIZE], snapshot[IDS_SANDBOX_SIZE];
    const char *tier, *reason;
};

struct traces {
    struct core *core;
    struct trace_record *ring; /* TRACE_WAITING_MAX of them; from first on, n are used */
    size_t first, n;
    struct trace_counts counts;
    char instance[TRACE_INSTANCE_SIZE]; /* of this cayd */

    struct timer due;
    /* being sent: it is in the ring no more */
    char *body;
    size_t body_spans;
    unsigned attempts; /* of it */
    bool under_way, failing;
};

/* The oldest, at most TRACE_BATCH_MAX, as the body of a request; they leave the queue. NULL: memory
 * is out, and nothing has left. real_offset_us: CLOCK_REALTIME less CLOCK_MONOTONIC. */
char *trace_encode(struct traces *t, int64_t real_offset_us, size_t *spans);

/* "sandbox.create" */
const char *trace_name(enum trace_name name);

/* The queue has one more. */
void trace_send_soon(struct traces *t);
void trace_on_due(struct timer *timer);
