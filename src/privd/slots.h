#pragma once
/* Slots: one for each uid range. A slot is made ahead (pooled), claimed by a create, ended,
 * cleaned, and made again; its generation names one use of it. */

#include "privd/loop.h"
#include "privd/pace.h"
#include "privd/permit.h"
#include "privd/pool.h"
#include "privd/reply.h"
#include "privd/resize.h"
#include "runtime/runtime.h"

#define SLOTS_PREPARED 2 /* kept beside prestarted ones, for creates of another kind */

struct command_sandbox;
struct create_request;
struct privd;

struct slot {
    struct privd *privd;
    uint32_t number, gen;
    enum slot_state state;
    struct runtime_slot pooled; /* descriptors of its namespaces until cay-init runs in it */
    struct task task;           /* the one that works on it now */
    struct loop_source task_source;
    struct loop_timer timer; /* deadline of STARTING, retry of ENDING, next look while FREEZING */
    uint32_t retries;

    /* PID 1; 0: none */
    pid_t pid;
    uint64_t pid_start; /* when it began, as in its record; 0: not asked for yet */
    int pidfd;          /* -1: none */
    int pin;            /* pins.h; -1: none */
    bool paid;          /* its programs had their turn (pace.h) */
    struct loop_source pid_source;
    int boot_fd;
    struct loop_source boot_source;

    /* the number that its layer is to have when it has ended (kept.h); 0: it is removed */
    uint32_t kept;
    struct reply_to keeper;              /* the request that waits for that */
    uint16_t keeper_op;                  /* with what: 0 is KEEP, or DUMP */
    int keeper_status;                   /* of a DUMP that did not keep its memory */
    const struct runtime_driver *driver; /* row of its level, from the beginning of its use on */
    struct create_request *create;       /* owned; SLOT_STARTING, or ENDING after a failed start */
    int failure;                         /* -errno and stage of a failed start */
    uint32_t failure_stage;
    struct reply_to killer;  /* the request that waits for its end */
    struct reply_to freezer; /* the FREEZE that waits: SLOT_FREEZING */
    struct reply_to thawer;  /* the THAW that waits: SLOT_FREEZING, too */
    uint64_t freeze_end_ms;  /* SLOT_FREEZING: when it is given up (clock_mono_ms) */
    bool copying;            /* SLOT_FREEZING: for a COPY */
    int freeze_status;       /* of a freeze that was given up, for when all go on */
    /* since the kernel was asked; 0: its command sandboxes are being made still */
    uint32_t freeze_polls;
    struct resize resize;
    struct pace_item kill; /* SLOT_KILLING: its kill waits for its turn */

    /* its contents; valid from SLOT_STARTING on, kind from when it is prestarted */
    char id[PRIVSEP_ID_SIZE]; /* all NUL: no owner yet */
    struct privsep_mount volumes[PRIVSEP_CREATE_VOLUMES];
    struct slot_kind kind;
    bool on_archive; /* archive_devices.h; whose it is then: */
    uint32_t account;
    uint32_t pool_row; /* id of the row of the pool that it was prestarted for; 0: of none */
    int living;        /* of a member that was restored: so many processes stand still in it */
    int64_t started_real_ms;

    int egress_fds[PRIVSEP_EGRESS_FDS]; /* waiting for a cay-egress; -1: it has them, or none are */

    struct command_sandbox *command_sandboxes; /* command_sandbox.h */
    uint32_t n_command_sandboxes, last_command_sandbox;

    struct slot *next; /* of the list it is on: empty, ready, prestarted, ended, none */
};

struct slot_list {
    struct slot *first, *last;
    uint32_t n;
};

/* All slots as SLOT_EMPTY, on no list yet: recover_run puts them where they belong. 0 or -errno. */
int slots_init(struct privd *p);
void slots_free(struct privd *p);

/* Its record again, with what has changed but its state. */
void slots_write(struct privd *p, const struct slot *s);

/* A slot is on one list at most. */
void slots_list_put(struct slot_list *l, struct slot *s);
struct slot *slots_list_take(struct slot_list *l); /* the oldest; NULL: none */
void slots_list_remove(struct slot_list *l, struct slot *s);

/* Puts an empty slot on the list it is made from again. */
void slots_put_empty(struct privd *p, struct slot *s);

/* Starts making slots until enough are ready or under way. */
void slots_refill(struct privd *p);

/* The same a moment later, while enough are ready: else the refill takes the processors from the
 * sandbox that was just claimed. */
void slots_refill_later(struct privd *p);

/* A ready slot for that kind, off its list: a prestarted one when there is one and it may be
 * claimed. NULL: none yet. */
struct slot *slots_take_ready(struct privd *p, const struct slot_kind *kind, bool may_claim);

/* A member of that kind, off its list; NULL: there is none, and none is waited for. */
struct slot *slots_take_member(struct privd *p, const struct slot_kind *kind);

/* An empty slot, SLOT_READY, off its list: its task makes the whole of it. For levels that nothing
 * is made ahead for, for kept layers and for volumes. NULL: none yet. */
struct slot *slots_take_unpooled(struct privd *p, uint32_t level);

/* Writes the slot's record with the state that it is about to enter, then enters it. A record that
 * cannot be written is logged: the sandbox would be undone instead of found after a crash. */
void slots_enter(struct privd *p, struct slot *s, enum slot_state state);

/* Watches the slot's task; cb(slot) when its result may be there. 0 or -errno. */
int slots_watch_task(struct slot *s, loop_source_cb cb);

/* The sandbox as its driver's functions take it. */
struct runtime_sandbox slots_sandbox(const struct slot *s);

/* Slot of a request that passed permit_fields; NULL when permit_state refuses (*why). */
struct slot *slots_find(struct privd *p, const struct privsep_msg *m, int *why);
