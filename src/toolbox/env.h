#pragma once
/* A handler (routes.h): Daytona's updateEnv. */

struct toolbox_call;

void toolbox_env(struct toolbox_call *c);
