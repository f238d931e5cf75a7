#pragma once
/* GET /metrics: what happens on this server, for the operator's Prometheus and what reads its
 * format. Source: OpenMetrics 1.0. Counters begin at 0 when cayd is started. No tenant, sandbox or
 * name is in a label, so the number of lines is fixed. docs/metrics.md lists the families. */

#include "api/api.h"
#include "base/histogram.h"

enum api_metrics_dialect {
    API_METRICS_E2B,
    API_METRICS_DAYTONA,
    API_METRICS_CAY,
    API_METRICS_COUNT
};

/* Requests of the control plane that were answered, by dialect; part of struct api. */
struct api_metrics {
    uint64_t answered[API_METRICS_COUNT][6]; /* by the first digit of the status; 0: any other */
    struct histogram took[API_METRICS_COUNT];
};

/* An answer is about to be handed on. */
void api_metrics_answered(struct api_metrics *m, const char *path, int status, uint64_t took_us);

/* The handler of the route. */
void api_openmetrics(struct api_call *call);
