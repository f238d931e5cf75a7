#pragma once
/* A tenant in memory: the object on which all hangs that core holds for one tenant, and the account
 * of it. Modelled on dbus-broker's util/user.c: reference, charge, refund.
 *
 * Ownership: tenant_get finds or makes the object of a name, and gives a reference. Each sandbox,
 * ring of events, CA, command, stream and charge holds one; the object goes with the last. Its
 * lasting data are in the store: name, keys, quotas, ceiling, credentials; the object has the
 * last three in memory (quota.h, tenant_settings.h) from when they are first asked for on.
 *
 * Charges: a charge belongs to the object that costs something (a sandbox, a command, a build, a
 * webhook), is made when that begins and refunded when it ends, by its amount at that time, so that
 * the two cannot differ. At the core's end all are refunded: tenants_free aborts where one is not.
 *
 * Control loop only; nothing blocks. */

#include "core/core.h"
#include "core/quota.h"
#include "core/tenant_settings.h"
#include "core/usage.h"

struct sandbox_obj;
struct event_ring;
struct tenant_ca;

enum tenant_resource {
    TENANT_SANDBOXES,    /* that hold a place (life.h) */
    TENANT_PAUSED,       /* of them: paused, being paused or resumed */
    TENANT_CPU_MILLI,    /* limits of sandboxes that hold a place, summed; the next two as well */
    TENANT_MEMORY_BYTES, /* */
    TENANT_DISK_BYTES,   /* */
    TENANT_FILTERS,      /* sandboxes whose programs may have system call filters */
    TENANT_KEPT,         /* numbers of kept files: of sandboxes, and of snapshots too */
    TENANT_SANDBOX_RESOURCES, /* those above are charged by sandboxes, as their state says */
    TENANT_EXECS = TENANT_SANDBOX_RESOURCES, /* commands of core_exec under way */
    TENANT_COMMAND_SANDBOXES,                /* of them: with a policy of their own */
    TENANT_AUDITS,                           /* questions about the log */
    TENANT_FOLLOWERS,                        /* of its events */
    TENANT_SNAPSHOTS,                        /* those of forks are not among them */
    TENANT_VOLUMES,
    TENANT_TEMPLATE_BYTES, /* of images that its builds begin with, unpacked */
    TENANT_BUILDS,         /* rows of builds, of all its templates */
    TENANT_LATER,          /* creates that wait for the build of their image, or have failed */
    TENANT_WEBHOOKS,
    TENANT_DELIVERIES, /* of its webhooks, that wait */
    TENANT_RESOURCE_COUNT
};

struct tenant {
    struct tenant *next; /* of the same bucket */
    struct core *core;
    unsigned refs;
    char name[CORE_TENANT_SIZE];
    uint64_t charged[TENANT_RESOURCE_COUNT];
    struct sandbox_obj *sandboxes;   /* by tenant_next and tenant_prev, in no order */
    struct event_ring *events;       /* events.c; NULL: it had none yet */
    uint64_t archive_turn;           /* core.archive_turns of its last; archive_file.c */
    struct tenant_ca *ca;            /* tenant_ca.c; NULL: it was not asked for yet */
    struct quotas quotas;            /* quota.c */
    struct tenant_settings settings; /* its ceiling and credentials; tenant_settings.c */

    /* Since it was written down last. While that is to be done, the object holds itself. */
    uint64_t usage[USAGE_COUNT];
    uint64_t settled_ms; /* clock_mono_ms: up to which charges are counted */
    bool usage_pending;
};

/* All zero: nothing is charged. */
struct tenant_charge {
    struct tenant *tenant;
    uint64_t amount;
    enum tenant_resource what;
};

#define TENANT_BUCKETS 256u

/* Of a core. All zero: none. */
struct tenants {
    struct tenant *buckets[TENANT_BUCKETS];
    uint64_t charged[TENANT_RESOURCE_COUNT]; /* of all together */
};

/* A new reference. NULL: memory is out. */
struct tenant *tenant_get(struct core *c, const char *name);

/* Borrowed. NULL: nothing of the tenant lives. */
struct tenant *tenant_find(struct core *c, const char *name);

/* How much is charged to the tenant of that name. */
uint64_t tenant_held(struct core *c, const char *name, enum tenant_resource what);

/* NULL stays NULL. */
struct tenant *tenant_ref(struct tenant *t);
void tenant_unref(struct tenant *t);

/* ch must be empty; an amount of 0 leaves it so. Cannot fail: limits are asked about before. */
void tenant_charge(struct tenant *t, enum tenant_resource what, uint64_t amount,
                   struct tenant_charge *ch);

/* Gives it back, once: ch is empty afterwards. */
void tenant_refund(struct tenant_charge *ch);

/* ch, which may be empty, is amount afterwards. */
void tenant_recharge(struct tenant *t, enum tenant_resource what, uint64_t amount,
                     struct tenant_charge *ch);

/* Counts in usage; with a charge that is done already. */
void tenant_count(struct tenant *t, enum usage what);

/* From now until its usage is written and its last minute had no create, t holds itself. */
void tenant_usage_begin(struct tenant *t);

/* Charges are counted up to now. */
void tenant_settle(struct tenant *t);

/* usage was written: it begins anew. False: nothing of the tenant goes on, and t may be gone. */
bool tenant_usage_written(struct tenant *t);

/* usage is not written any more. May free t. */
void tenant_usage_forget(struct tenant *t);

/* The timer that writes usage down: at the hour's end, and where it is often within a minute. */
void tenant_usage_arm(struct core *c, bool often);

/* ERR_NOT_FOUND: no tenant of that name was ever made. */
enum err_code tenant_check_made(struct core *c, const char *name, struct err *e);

/* The number by which cay-privd shares dumps, restores, archives and fetches out: one for each
 * tenant, never 0. */
uint32_t tenant_privd_account(const char *name);

/* Aborts where a reference or a charge is left. */
void tenants_free(struct tenants *all);
