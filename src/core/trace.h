#pragma once
/* Traces: spans of creates, pauses, resumes, snapshots and forks and of their steps, for a
 * collector of the operator's (docs/traces.md). Without one ([traces] otlp_url) nothing of this is
 * recorded; how long each took is counted for GET /metrics all the same (counters.h).
 *
 * A span belongs to what it measures: begun there, and ended there once. Ending it copies it to a
 * queue of TRACE_WAITING_MAX, whose oldest entry goes, counted, for a new one: nothing ever waits
 * for the collector. trace_send.c sends the queue.
 *
 * Whose child a span is says the context in force (core->trace): the caller's traceparent during a
 * call of the API, another span's inside a fork. A span has the tenant's name and ids that cay
 * gave, and no text of the tenant's. */

#include "core/core.h"

#define TRACE_WAITING_MAX   2048u
#define TRACE_BATCH_MAX     128u /* spans of a request */
#define TRACE_BODY_MAX      (256u * 1024u)
#define TRACE_ATTEMPTS      5u
#define TRACE_WAIT_MS       1000u  /* until what is fewer than a batch is sent */
#define TRACE_DELAY_MAX_MS  60000u /* between two attempts; webhook_delay_ms until then */
#define TRACE_ID_BYTES      16u
#define TRACE_SPAN_ID_BYTES 8u

enum trace_name {
    TRACE_CREATE,
    TRACE_CREATE_MADE, /* as COUNTER_CREATE_MADE */
    TRACE_CREATE_AGENT,
    TRACE_PAUSE,
    TRACE_PAUSE_ENV,  /* with the files: until the agent has told its environment */
    TRACE_PAUSE_KEPT, /* the rest: until they are on the disk */
    TRACE_RESUME,
    TRACE_RESUME_MADE, /* with the files: as of a create */
    TRACE_RESUME_AGENT,
    TRACE_SNAPSHOT,
    TRACE_SNAPSHOT_COPY, /* without the wait for an earlier one of the same sandbox */
    TRACE_FORK,
    TRACE_FORK_ENV,
    TRACE_NAME_COUNT
};

enum trace_dropped {
    TRACE_DROPPED_FULL,    /* the queue was */
    TRACE_DROPPED_REFUSED, /* the collector's answer says that no other attempt helps */
    TRACE_DROPPED_FAILED,  /* TRACE_ATTEMPTS have failed */
    TRACE_DROPPED_MEMORY,
    TRACE_DROPPED_COUNT
};

/* The parent of new spans, or the decision not to record them. */
struct trace_context {
    bool is_call; /* of the API */
    bool is_set;  /* else what begins has a trace of its own */
    bool sampled; /* false: its caller records nothing, nor is it recorded here */
    uint8_t trace[TRACE_ID_BYTES], span[TRACE_SPAN_ID_BYTES];
};

/* A span that is under way; zeroed: there is none. */
struct trace_span {
    bool on;        /* it will be recorded */
    bool unsampled; /* it will not, nor what is below it */
    bool timed;     /* its end is counted, with a collector or without */
    bool is_call, has_parent;
    enum trace_name name;
    uint8_t trace[TRACE_ID_BYTES], id[TRACE_SPAN_ID_BYTES], parent[TRACE_SPAN_ID_BYTES];
    uint64_t begun_us; /* clock_mono_us */
};

/* The attributes of a span. NULL: none. tier and reason are literals. */
struct trace_about {
    const char *tenant, *sandbox, *snapshot, *tier, *reason;
};

struct trace_counts {
    uint64_t sent, waiting;
    uint64_t dropped[TRACE_DROPPED_COUNT];
};

/* -- for api ----------------------------------------------------------------------------------- */

/* A call of the API begins, with the traceparent of its request (NULL: none; one that is not
 * well-formed counts as none). Spans that begin belong to its caller until trace_enter is called
 * with the returned context. */
struct trace_context core_trace_call(struct core *c, const char *traceparent);

/* *to is the context in force; the one that was. */
struct trace_context trace_enter(struct core *c, const struct trace_context *to);

/* "queue_full", ...; and how many there are since the start. All 0 without a collector. */
const char *core_trace_dropped_name(enum trace_dropped why);
struct trace_counts core_trace_counts(const struct core *c);

/* -- for core's other files -------------------------------------------------------------------- */

/* Exactly as W3C Trace Context says; *out is untouched otherwise. */
bool trace_context_parse(const char *traceparent, struct trace_context *out);

/* Of what begins below s. */
struct trace_context trace_below(const struct trace_span *s);

/* Below the context in force. at_us: when. */
void trace_begin(struct core *c, struct trace_span *s, enum trace_name name, uint64_t at_us);

/* Once; on one that was not begun, or has ended, it does nothing. */
void trace_end(struct core *c, struct trace_span *s, const struct trace_about *about,
               enum err_code code);

/* A step of parent's that is over. */
void trace_step(struct core *c, const struct trace_span *parent, enum trace_name name,
                uint64_t from_us, uint64_t until_us, const struct trace_about *about);

/* -- the span of a sandbox: of its create, pause or resume under way (trace_sandbox.c) -- */

struct sandbox_obj;

/* A call asks for a change, which may begin later: it will be below the context of now. */
void trace_sandbox_requested(struct sandbox_obj *o);

/* Below the context in force, else that of the call that asked. tier: a literal or NULL. */
void trace_sandbox_begin(struct sandbox_obj *o, enum trace_name name, const char *tier,
                         uint64_t at_us);
void trace_sandbox_step(struct sandbox_obj *o, enum trace_name name, uint64_t from_us,
                        uint64_t until_us);
void trace_sandbox_end(struct sandbox_obj *o, enum err_code code);

/* With config.traces. */
enum err_code traces_init(struct core *c, struct err *e);
void traces_free(struct core *c);
