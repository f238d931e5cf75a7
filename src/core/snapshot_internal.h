#pragma once
/* Shared by snapshot.c (deleting, a restart), snapshot_find.c, snapshot_memory.c and
 * snapshot_make.c (COPY): a snapshot in cayd. The list of them is the core's (c->snapshots), newest
 * first. */

#include "core/events.h"
#include "core/snapshot.h"
#include "core/tenant.h"
#include "core/timers.h"
#include "core/trace.h"

struct snapshot_obj {
    struct snapshot s;
    struct snapshot_obj *next; /* older ones */
    struct core *core;
    struct tenant *tenant;
    struct tenant_charge charge, counted, memory_charge, memory_counted;
    struct timer again;
    uint32_t creates; /* that follow, for which alone it is made; 0: it is to last */
    bool waits;       /* for an earlier one of the same sandbox */
    bool requested;   /* privd owes the answer to COPY, IMPORT or DROP */
    bool imports;     /* its files are still coming (transfer_import.c) */
    bool quiet;       /* it was never told to be there: nor is its end */
    core_snapshot_cb made;
    core_done_cb deleted;
    void *arg;
    struct trace_span trace; /* of its making */
    uint64_t copy_begun_us;  /* clock_mono_us */
};

/* By id; NULL: there is none. */
struct snapshot_obj *snapshot_get(struct core *c, const char *id);

/* The tenant's of that id or name that is ready, those of builds aside; NULL: there is none. */
struct snapshot_obj *snapshot_named(struct core *c, const char *tenant, const char *name);

/* Sets and returns ERR_NOT_FOUND: the tenant has no snapshot of that id or name. */
enum err_code snapshot_missing(const char *name, struct err *e);

/* A new one, in the list. NULL: memory is out. */
struct snapshot_obj *snapshot_enter(struct core *c, const struct snapshot *s);

/* Its row and itself. */
void snapshot_forget(struct snapshot_obj *o);

/* Written through; on failure nothing has changed. */
enum err_code snapshot_set_state(struct snapshot_obj *o, enum snapshot_state state, struct err *e);

/* Those who wait for it to be made or deleted, once. why NULL: it is. */
void snapshot_notify(struct snapshot_obj *o, const struct err *why);
void snapshot_add_event(struct snapshot_obj *o, enum event_type type);

/* Its kept files are removed, and then itself. */
void snapshot_drop(struct snapshot_obj *o);

/* ERR_INVALID: it is no name of a snapshot. "" is allowed: it has none. */
enum err_code snapshot_check_name(const char *name, struct err *e);

/* Whether the tenant may have another one. */
enum err_code snapshot_check_quota(struct core *c, const char *tenant, struct err *e);

/* privd has answered COPY or IMPORT: it is ready, or goes with why (where status is not 0); its
 * waiters are told. */
void snapshot_was_made(struct snapshot_obj *o, int status, const struct err *why);
