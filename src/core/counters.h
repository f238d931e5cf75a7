#pragma once
/* Counters of events of sandboxes since cayd was started, for the operator (GET /metrics). Numbers
 * only: no tenant, sandbox or name stands in them, so that their size is fixed. Written by the
 * control loop, at the places where events are told and creates and kills end. */

#include "base/err.h"
#include "base/histogram.h"
#include "core/life.h"

#include <stddef.h>
#include <stdint.h>

#define COUNTERS_REASONS 16u

enum counter_step {
    COUNTER_CREATE,       /* from the call to the answer */
    COUNTER_CREATE_MADE,  /* of it: until cay-privd had made the sandbox */
    COUNTER_CREATE_AGENT, /* of it: until its agent had its environment */
    COUNTER_KILL,         /* from the call until nothing of the sandbox is left */
    /* From here on trace.c adds, as the spans of docs/traces.md begin and end. */
    COUNTER_PAUSE_FROZEN,
    COUNTER_PAUSE_MEMORY,
    COUNTER_PAUSE_FILES,
    COUNTER_RESUME_FROZEN,
    COUNTER_RESUME_MEMORY,
    COUNTER_RESUME_FILES,
    COUNTER_SNAPSHOT,
    COUNTER_FORK,
    COUNTER_STEP_COUNT
};

struct counters {
    uint64_t created;
    uint64_t create_failed[ERR_CODE_COUNT];
    uint64_t ended[COUNTERS_REASONS]; /* in the order of counters_reason */
    uint64_t violations, asks, events_dropped;
    struct histogram steps[COUNTER_STEP_COUNT];
    uint64_t step_failed[COUNTER_STEP_COUNT]; /* from COUNTER_PAUSE_FROZEN on */
};

/* The i-th word of docs/events.md that an end may have as its reason; "other" for the last; NULL:
 * past it. */
const char *counters_reason(size_t i);

/* A word that is not in the table counts as "other"; NULL counts as "unknown". */
void counters_ended(struct counters *n, const char *reason);

/* The counters that GET /metrics shows. Valid as long as the core; read in the control loop
 * only. */
const struct counters *core_counters(const struct core *c);

/* How many sandboxes are in that state now. */
size_t core_count_in(const struct core *c, enum sandbox_state state);

/* How many are paused, by the i-th word of core_pause_tier_name. NULL: past the last. */
const char *core_paused_tier(size_t i);
size_t core_count_paused(const struct core *c, size_t i);
