#pragma once
/* The use of resources of each tenant, by the hour: counters in the store, for bills and graphs.
 * tenant.c counts in memory while things are charged; this file writes that down once a minute, at
 * an hour's end and at the core's, so that a killed cayd loses a minute at most. Nothing wakes
 * while no sandbox is there and all is written.
 *
 * Control loop only; a write is one commit of the store. */

#include "core/core.h"

#define USAGE_HOURS_MAX 744u /* that are kept of a tenant: 31 days */

enum usage {
    USAGE_CREATED,      /* sandboxes that got to run */
    USAGE_COMMANDS,     /* of /cay/v1's exec */
    USAGE_SANDBOX_MS,   /* sandboxes times their time: paused ones are part of it */
    USAGE_PAUSED_MS,    /* of that: paused */
    USAGE_CPU_MILLI_MS, /* the limits of those sandboxes times their time; the next two as well */
    USAGE_MEMORY_MIB_MS,
    USAGE_DISK_MIB_MS,
    USAGE_PEAK_SANDBOXES,  /* most at a time */
    USAGE_BUILDS,          /* of templates, that were started */
    USAGE_TEMPLATE_MIB_MS, /* images that builds stand on, times their time */
    USAGE_COUNT
};

struct core_usage {
    int64_t hour_real_ms; /* when it began */
    uint64_t n[USAGE_COUNT];
};

/* Calls fn for the tenant's hours within [from, to), oldest first; the hour that runs is as it is
 * now. ERR_NOT_FOUND: no such tenant. */
enum err_code core_tenant_usage(struct core *c, const char *tenant, int64_t from_real_ms,
                                int64_t to_real_ms,
                                void (*fn)(void *arg, const struct core_usage *u), void *arg,
                                struct err *e);

/* -- for core ---------------------------------------------------------------------------------- */

struct timer;
void usage_on_timer(struct timer *t);

/* Writes down what is not written yet, of all tenants, and counts no more. */
void usage_stop(struct core *c);
