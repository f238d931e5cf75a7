#pragma once
/* Snapshots: copies of the files of sandboxes, which new ones begin with. cay-privd copies a
 * sandbox's layer to a number (COPY) while it stands still for some milliseconds, and each sandbox
 * that is made from a snapshot gets a copy of that copy. The blocks are shared by the file system,
 * which counts who has them: a snapshot may go at any time, and nothing that was made from it
 * changes.
 *
 * A snapshot is its tenant's. Its row is written before privd is asked, and confirmed after; the
 * files of one that was not confirmed are dropped (snapshots_reconcile). Its number comes from the
 * pool of kept files (keep.h), and is charged to the tenant (TENANT_KEPT). */

#include "core/core.h"

#define CORE_SNAPSHOT_NAME_SIZE 101 /* NUL included; [A-Za-z0-9][A-Za-z0-9._-]* */

/* The store holds these numbers. */
/* Its purpose. The store holds these numbers. */
enum snapshot_kind {
    SNAPSHOT_PLAIN,
    SNAPSHOT_OF_FORK,  /* in no list; goes with the fork */
    SNAPSHOT_OF_BUILD, /* in no list and under no name of its own: build.c knows what it is of */
    SNAPSHOT_KIND_COUNT
};

enum snapshot_state { SNAPSHOT_MAKING, SNAPSHOT_READY, SNAPSHOT_DELETING, SNAPSHOT_STATE_COUNT };

struct snapshot {
    char id[IDS_SANDBOX_SIZE]; /* "s" and 20 of [a-z0-9] */
    const char *tenant;
    char name[CORE_SNAPSHOT_NAME_SIZE]; /* one of a kind for the tenant; "": none */
    char sandbox[IDS_SANDBOX_SIZE];     /* the source of the files */
    char template_id[CORE_NAME_SIZE];   /* of the base of its files */
    enum snapshot_state state;
    enum snapshot_kind kind;
    uint32_t number;
    uint32_t level;
    struct privsep_limits limits; /* of the sandbox: what those made from it get */
    int64_t made_real_ms;
    uint32_t memory;                  /* snapshot_memory.h: the number of its memory; 0: none */
    char memory_of[IDS_SANDBOX_SIZE]; /* the sandbox that privd kept that of */
};

typedef void (*core_snapshot_cb)(void *arg, const struct snapshot *s, const struct err *why);

/* done when it is on the disk and the sandbox goes on. name NULL or "": none; one that another of
 * the tenant's has moves to this one. ERR_NOT_FOUND; ERR_INVALID: that is no name; ERR_CONFLICT:
 * the sandbox is paused with its files alone, or is just being paused or resumed; ERR_TIMEOUT: a
 * process cannot be stopped; ERR_UNIMPLEMENTED, ERR_EXHAUSTED as of a pause with the files
 * alone. */
void core_snapshot_create(struct core *c, const char *tenant, const char *sandbox, const char *name,
                          enum snapshot_kind kind, core_snapshot_cb done, void *arg);

/* For fork.c: one for count creates that follow at once, and a deletion; it does not outlive a
 * loss of power. */
void snapshot_for_forks(struct core *c, const char *tenant, const char *sandbox, size_t count,
                        core_snapshot_cb done, void *arg);

/* By id or name ("name", "name:default"); NULL: the tenant has none that is ready, those of builds
 * aside. Valid until the next turn. */
const struct snapshot *core_snapshot_find(struct core *c, const char *tenant, const char *name);

/* Whether one of the tenant's has that name or id, or is being made with it. */
bool core_snapshot_has_name(struct core *c, const char *tenant, const char *name);

/* done when it is gone. ERR_NOT_FOUND. */
void core_snapshot_delete(struct core *c, const char *tenant, const char *name, core_done_cb done,
                          void *arg);

/* The tenant's that are ready, newest first. tenant NULL: of all; sandbox, name NULL or "": any.
 * Valid until the next turn. Stops when fn says false. */
void core_snapshot_each(struct core *c, const char *tenant, const char *sandbox, const char *name,
                        bool (*fn)(void *arg, const struct snapshot *s), void *arg);

/* -- for core's other files -------------------------------------------------------------------- */

/* A row of the store, when the core starts; the strings are copied. */
enum err_code snapshots_adopt(void *core, const struct snapshot *s, struct err *e);

/* By id, of any kind; NULL: there is none that is ready. */
const struct snapshot *snapshots_ready(struct core *c, const char *id);

/* It goes, of whatever kind, and counts no more; one that is not there is none. */
void snapshots_remove(struct core *c, const char *id);

/* Those of builds: fn says which stay, the others go. */
void snapshots_sweep_builds(struct core *c, bool (*stays)(struct core *c, const char *id));

/* The tenant's snapshot of that name has none from now on. */
void snapshots_drop_name(struct core *c, const char *tenant, const char *name);

/* KEPTS was answered. */
void snapshots_reconcile(struct core *c);

/* Is there one, of any kind, that lies on that template? */
bool snapshots_lie_on(const struct core *c, const char *template_id);

/* Sets named[n] of each number that a snapshot has. */
void snapshots_mark(const struct core *c, bool *named);

/* At the core's end: those who wait are told. */
void snapshots_free(struct core *c, const struct err *why);
