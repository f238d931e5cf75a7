#pragma once
/* Quotas: the maxima of a tenant's resources, set by the operator. A quota is asked about before a
 * charge (tenant.h), in the same turn of the loop, so that no number of calls at once exceeds it. A
 * tenant has the quotas of its rows in the store, read when they are first asked about; without a
 * row there is none, and only the server's own limits hold. 0 permits none. Lowering one ends
 * nothing.
 *
 * Control loop only; nothing blocks. */

#include "core/core.h"
#include "core/quota_rate.h"

struct tenant;

enum quota {
    QUOTA_SANDBOXES, /* that hold a place (life.h): running, paused in either way, in between */
    QUOTA_CREATED_PER_MINUTE, /* creates that were taken on, whatever came of them */
    QUOTA_CPU_MILLI,          /* limits of those sandboxes, summed; the next two as well */
    QUOTA_MEMORY_BYTES,
    QUOTA_DISK_BYTES,
    /* asked about by a call to pause; a pause at the end of a sandbox's time is always made */
    QUOTA_PAUSED,
    QUOTA_SNAPSHOTS, /* that are there, or being made; those of forks do not count */
    QUOTA_VOLUMES,
    QUOTA_TEMPLATES,      /* that the tenant has built, by name, whatever came of it */
    QUOTA_TEMPLATE_BYTES, /* of images of registries that its builds begin with, unpacked */
    QUOTA_COUNT
};

#define QUOTA_NONE (-1)
#define QUOTA_MAX  (INT64_MAX / 2) /* of a value; sums do not overflow */

/* "sandboxes", "createdPerMinute", "cpuMilli", "memoryBytes", "diskBytes", "paused",
 * "snapshots", "volumes", "templates", "templateBytes". */
const char *quota_name(enum quota q);

/* -1: there is none of that name. */
int quota_from(const char *name);

/* -- for core ---------------------------------------------------------------------------------- */

/* Of a tenant; all zero: not read yet. */
struct quotas {
    bool known;
    int64_t most[QUOTA_COUNT];
    struct quota_rate creates;
};

/* May the tenant have one more sandbox with these limits? ERR_EXHAUSTED with the quota that it
 * would exceed, and how to raise that. Where it may, it counts as a create. */
enum err_code quota_take_create(struct tenant *t, const struct privsep_limits *l, struct err *e);

/* May the limits of a sandbox of the tenant's become others? */
enum err_code quota_check_resize(struct tenant *t, const struct privsep_limits *from,
                                 const struct privsep_limits *to, struct err *e);
enum err_code quota_check_pause(struct tenant *t, struct err *e);
enum err_code quota_check_snapshot(struct tenant *t, struct err *e);
enum err_code quota_check_volume(struct tenant *t, uint64_t bytes, struct err *e);
enum err_code quota_check_template(struct tenant *t, struct err *e);

/* more 0: are those that it has too many? */
enum err_code quota_check_template_bytes(struct tenant *t, uint64_t more, struct err *e);

/* -- for api ----------------------------------------------------------------------------------- */

struct core_quotas {
    int64_t most[QUOTA_COUNT]; /* QUOTA_NONE: none */
    int64_t used[QUOTA_COUNT];
};

/* ERR_NOT_FOUND: no such tenant. */
enum err_code core_tenant_quotas(struct core *c, const char *tenant, struct core_quotas *out,
                                 struct err *e);

/* Sets those that are given; most is QUOTA_NONE or 0..QUOTA_MAX. Written through; in force for the
 * next call. ERR_NOT_FOUND. */
enum err_code core_tenant_set_quotas(struct core *c, const char *tenant,
                                     const int64_t most[static QUOTA_COUNT],
                                     const bool given[static QUOTA_COUNT], struct err *e);
