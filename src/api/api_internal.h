#pragma once
/* The API of a control loop: api.c makes it and gives it requests, api_reply.c and api_call.c know
 * what is in it. No other file includes this. */

#include "api/api.h"
#include "api/api_metrics.h"

struct api {
    struct core *core;
    struct api_config config;
    char *domain, *state_dir;
    struct cay_v1 *cay_v1;
    struct api_metrics metrics;
};
