#pragma once
/* GET /metrics: figures of this server, for the operator's Prometheus and others that read its
 * format. Source: OpenMetrics 1.0. Counters begin at 0 when cayd is started. No tenant, sandbox or
 * name is in a label, so the number of lines is fixed. docs/metrics.md lists the families. */

#include "api/api.h"
#include "api/api_metrics.h"

/* The handler of the route. */
void api_openmetrics(struct api_call *call);
