#pragma once
/* A handler (routes.h): Daytona's getSystemMetrics. */

struct toolbox_call;

void toolbox_system_metrics(struct toolbox_call *c);
