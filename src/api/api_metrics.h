#pragma once
/* The API's own counters: requests that were answered, and how long they took. */

#include "base/histogram.h"

#include <stdint.h>

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
