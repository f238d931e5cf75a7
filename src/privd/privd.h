#pragma once
/* What privd's files share: one struct privd, one struct slot per uid range.
 *
 * Who does what: slots.c makes slots ahead and gives them out; sandbox.c starts one in a slot; end.c
 * ends it and cleans up, for every reason there is, as fast as pace.c lets it; recover.c does the same for what an earlier privd
 * left; freeze.c stops and lets go on; command_sandbox.c makes and ends networks for single commands; jobs.c runs cay-job; template.c says which templates are there; request.c checks and
 * distributes what the peer asks. All of it runs on one loop, nothing blocks: what takes longer than
 * 100 µs runs in a task (a child, runtime/task.h) or a job. */

#include "base/log.h"
#include "privd/kept.h"
#include "privd/loop.h"
#include "privd/options.h"
#include "privd/pace.h"
#include "privd/permit.h"
#include "privd/records.h"
#include "privsep/server.h"
#include "runtime/runtime.h"

/* The receiver of an answer: number of the connection, sequence number of the request. */
struct reply_to {
    uint64_t peer, seq; /* seq 0: none */
};

/* What a sandbox is made for, as far as it matters before it has an owner. */
struct slot_kind {
    uint32_t template_number, level;
    struct privsep_limits limits;
};

struct create_request {
    struct privd *privd;
    struct reply_to reply_to;
    struct loop_timer timer; /* while it waits for a slot */
    struct slot_kind kind;
    struct runtime_claim claim;
    uint32_t kept; /* files that it takes (kept.h), or a copy of them; 0: none */
    bool copy;
    struct create_request *next;
};

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

    pid_t
        pid; /* PID 1; 0: none. SLOT_READY with one: it is prestarted, cay-init waits to be claimed */
    uint64_t pid_start; /* when it began, as in its record; 0: not asked for yet */
    int pidfd;          /* -1: none */
    int pin;            /* pins.h; -1: none */
    bool paid;          /* its programs had their turn (pace.h) */
    struct loop_source pid_source;
    int boot_fd;
    struct loop_source boot_source;

    uint32_t
        kept; /* the number that its layer is to have when it has ended (kept.h); 0: it is removed */
    struct reply_to keeper;              /* who waits for that */
    const struct runtime_driver *driver; /* row of its level, from the beginning of its use on */
    struct create_request *create;       /* owned; SLOT_STARTING, or ENDING after a failed start */
    int failure;                         /* -errno and stage of a failed start */
    uint32_t failure_stage;
    struct reply_to killer;  /* who waits for its end */
    struct reply_to freezer; /* who waits for FREEZE: SLOT_FREEZING */
    uint64_t freeze_end_ms;  /* SLOT_FREEZING: when it is given up (clock_mono_ms) */
    bool copying;            /* SLOT_FREEZING: for a COPY */
    uint32_t
        freeze_looks; /* since the kernel was asked; 0: its command sandboxes are being made still */
    struct pace_item kill; /* SLOT_KILLING: its kill waits for its turn */

    /* what it runs; valid from SLOT_STARTING on, kind from when it is prestarted */
    char id[PRIVSEP_ID_SIZE]; /* all NUL: no owner yet */
    struct slot_kind kind;
    uint32_t prestart_epoch; /* p->prestart_epoch when it was begun to be prestarted */
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

/* A LIST under way. */
struct listing {
    struct reply_to reply_to; /* seq 0: none */
    uint32_t next;            /* slot to look at */
    struct loop_timer timer;
};

/* Removes what is left of ended sandboxes, many with one task. */
struct cleaner {
    struct slot_list ended; /* no process of theirs lives; not yet under way */
    struct task task;
    const struct runtime_driver *driver; /* of all that the task removes */
    struct loop_source source;
    struct loop_timer timer; /* gathers them for a moment */
    struct slot *slots[RUNTIME_ENDS_MAX];
    struct runtime_end ends[RUNTIME_ENDS_MAX]; /* of the task; n of both */
    unsigned n;
};

/* Removes kept layers, one after the other: those whose record says KEPT_DROPPING. */
struct dropper {
    uint32_t number;                             /* which is being removed; 0: none */
    struct reply_to asked[PRIVSEP_KEPT_MAX + 1]; /* by number */
    struct task task;
    struct loop_source source;
};

/* Copies layers of sandboxes to kept numbers, one after the other: those whose record says KEPT_COPYING (copy.c). */
struct copier {
    uint32_t number;                             /* which is being made; 0: none */
    uint32_t slot, gen;                          /* of what */
    bool thaw;                                   /* it ran, and is to run again */
    struct reply_to asked[PRIVSEP_KEPT_MAX + 1]; /* by number */
    struct task task;
    struct loop_source source;
    struct loop_timer timer; /* the next, from outside of whatever ended this one */
};

struct egress;
struct jobs;
struct locks;
struct unkilled;
struct command_sandbox;

#define COMMAND_SANDBOXES_STARTING_MAX 32u /* at a time, of all sandboxes */

/* What privd tells of a template. */
struct template_meta {
    bool there;
    uint32_t ready; /* whole and usable */
    int64_t made_real_ms;
    uint64_t size_bytes;
};

struct privd {
    struct options options;
    struct permit_bounds bounds;
    struct loop loop;
    struct runtime *rt;
    const struct runtime_driver *drivers[PRIVSEP_LEVEL_COUNT]; /* NULL: not on this machine */
    char level_why[PRIVSEP_LEVEL_COUNT][PRIVSEP_WHY_SIZE];     /* why a level is not there */
    uint32_t pool_level; /* whose slots are made ahead: the first that is there */
    struct privsep_server *server;
    struct loop_source server_source, signal_source;
    int signal_fd, lock_fd, state_lock_fd;
    struct records records;
    struct template_meta templates[PERMIT_TEMPLATE_MAX + 1]; /* by number; template.c */
    struct kept kept;
    struct dropper dropper;
    struct copier copier;

    struct slot *slots; /* options.slots_max */
    struct slot_list empty, ready, prestarted;
    uint32_t n_making, n_starting, n_sandboxes; /* the last: those that permit_lives */
    uint32_t n_prestarting;                     /* those of n_making in which cay-init is started */
    struct slot_kind kind;                      /* what most creates ask for: what is prestarted */
    bool has_kind;
    uint32_t kind_misses;    /* creates in a row that asked for something else */
    uint32_t prestart_epoch; /* slots prestarted in an earlier one are not used */
    uint32_t make_failures;  /* in a row: refilling backs off */
    struct command_sandbox *command_sandboxes_starting
        [COMMAND_SANDBOXES_STARTING_MAX]; /* those whose task works; command_sandbox.c */
    uint32_t n_command_sandboxes_starting;
    struct log_rate command_sandbox_log,
        peer_log;                   /* what tenants, and who connects, can have said at will */
    struct loop_timer refill_timer; /* after a failure: until then none is made */
    struct loop_timer
        refill_delay_timer; /* after a start: until then a slot is made only for a waiting create */
    struct cleaner cleaner;
    struct pace pace;          /* of all kills */
    uint32_t n_pins;           /* descriptors that pins.c holds */
    struct unkilled *unkilled; /* unkilled.h */
    struct listing listing;

    struct create_request *waiting_first, *waiting_last; /* creates without a slot yet */
    uint32_t n_waiting;

    struct egress *egress; /* NULL: there is no cay-egress */
    struct jobs *jobs;
    struct locks *locks; /* NULL: they are not watched */
    bool sweep_wanted;   /* a replaced template waits for the end of those that may stand on it */
    char boot_id[40];
    char cgroup_name[INSTANCE_CGROUP_SIZE]; /* sandboxes' directories; jobs' has "-jobs" added */
    bool stopping;                          /* SIGTERM: everything is being ended */
    struct loop_timer stop_timer;
    int exit_status;
};

/* -- request.c --------------------------------------------------------------------------------- */

void request_handle(void *privd, const struct privsep_msg *m);
void request_peer(void *privd, bool there);

/* Tells the peer what templates there are now, unasked. */
void request_tell_templates(struct privd *p);

/* Answers a request: m's op and contents are the caller's, seq and peer the asker's. 0, or -errno when
 * the asker is gone, or is now because it did not take it. */
int request_reply(struct privd *p, const struct reply_to *to, struct privsep_msg *m, const int *fds,
                  size_t n_fds);
void request_reply_status(struct privd *p, const struct reply_to *to, uint16_t op, int status,
                          uint32_t stage);

/* -- list.c ------------------------------------------------------------------------------------ */

void list_begin(struct privd *p, const struct reply_to *to);

/* The asker is gone. May be called from inside any reply. */
void list_forget(struct privd *p);

/* -- slots.c ----------------------------------------------------------------------------------- */

/* All slots as SLOT_EMPTY, on no list yet: recover_run puts them where they belong. 0 or -errno. */
int slots_init(struct privd *p);
void slots_free(struct privd *p);

/* A slot is on one list at most. */
void slots_list_put(struct slot_list *l, struct slot *s);
struct slot *slots_list_take(struct slot_list *l); /* the oldest; NULL: none */

/* Puts an empty slot on the list it is made from again. */
void slots_put_empty(struct privd *p, struct slot *s);

/* Starts making slots until enough are ready or under way. */
void slots_refill(struct privd *p);

/* The same a moment later, while enough are ready: else the refill takes the processors from the
 * sandbox that was just claimed. */
void slots_refill_later(struct privd *p);

/* A ready slot for that kind, off its list: a prestarted one when there is one. NULL: none yet. */
struct slot *slots_take_ready(struct privd *p, const struct slot_kind *kind);

/* An empty slot, SLOT_READY, off its list: its task makes the whole of it. For levels that nothing is made ahead
 * for, and for kept layers. NULL: none yet. */
struct slot *slots_take_unpooled(struct privd *p, uint32_t level);

/* A create asks for a sandbox of that kind: slots made ahead follow. */
void slots_note_kind(struct privd *p, const struct slot_kind *kind);

/* All prestarted slots are given up, and no kind is made ahead until a sandbox is asked for. */
void slots_forget_prestarted(struct privd *p);

/* Warm slots that stand on that template are given up, because a job works on it. The kind that is made ahead
 * stays: slots_refill prestarts it again when the job has ended. */
void slots_discard_prestarted(struct privd *p, uint32_t template_number);

/* PID 1 of a prestarted slot has ended by itself: off the list, and no more of them until the next
 * create. */
void slots_lose_prestarted(struct privd *p, struct slot *s);

/* Writes the slot's record with the state that it is about to enter, then enters it. A record that
 * cannot be written is logged: the sandbox would be undone instead of found after a crash. */
void slots_enter(struct privd *p, struct slot *s, enum slot_state state);

/* Watches the slot's task; cb(slot) when its result may be there. 0 or -errno. */
int slots_watch_task(struct slot *s, loop_source_cb cb);

/* What its driver's functions are told of it. */
struct runtime_sandbox slots_sandbox(const struct slot *s);

/* Slot of a request that passed permit_fields; NULL when permit_state refuses (*why). */
struct slot *slots_find(struct privd *p, const struct privsep_msg *m, int *why);

/* -- sandbox.c --------------------------------------------------------------------------------- */

void sandbox_create(struct privd *p, const struct reply_to *to, const struct privsep_msg *m);

/* Gives ready slots to waiting creates. Called when a slot became ready or a start has ended. */
void sandbox_pump(struct privd *p);

/* There will be no slot for the oldest waiting create: it gets to know. */
void sandbox_no_slot(struct privd *p, int status, uint32_t stage);

/* The peer is gone: creates that wait for a slot are forgotten; a create under way ends when it is
 * ready, as there is no peer to be told. May be called from inside any reply. */
void sandbox_forget_waiting(struct privd *p);

/* -- end.c ------------------------------------------------------------------------------------- */

/* KILL: who is answered when no process is left. Layer and cgroups go a moment later. */
void end_asked(struct privd *p, struct slot *s, const struct reply_to *to);

/* Its pidfd is watched from now on: an end that was not asked for becomes PRIVSEP_ENDED. 0 or
 * -errno. */
int end_watch(struct privd *p, struct slot *s);

/* Kills what runs in it, whatever its state, then cleans up. For failed starts, recovery, stop. */
void end_force(struct privd *p, struct slot *s);

/* A create waits for a slot: ended ones are not gathered any longer. */
void end_hurry(struct privd *p);

/* -- levels.c ---------------------------------------------------------------------------------- */

/* Asks each isolation level whether it can be used here. 0, or -errno (logged) when none can. */
int levels_probe(struct privd *p);

/* The row of a level that can be used here, or NULL. */
const struct runtime_driver *levels_driver(const struct privd *p, uint32_t level);

/* Why not, as printable text. */
void levels_why(const struct privd *p, uint32_t level, char out[static PRIVSEP_WHY_SIZE]);

/* -- freeze.c ---------------------------------------------------------------------------------- */

/* FREEZE: who is answered when every process of it stands still, or goes on again. */
void freeze_asked(struct privd *p, struct slot *s, const struct reply_to *to,
                  const struct privsep_msg *m);

/* THAW. */
void freeze_undo_asked(struct privd *p, struct slot *s, const struct reply_to *to,
                       const struct privsep_msg *m);

/* It ends: the asker of FREEZE gets to know. The caller that ends it tells the kernel. */
void freeze_forget(struct slot *s);

/* The peer is gone: what was not frozen yet goes on. */
void freeze_forget_all(struct privd *p);

/* As FREEZE, for a COPY of its layer: copy_frozen is called instead of an answer. s is running. */
void freeze_for_copy(struct slot *s);

/* s, which is frozen, goes on. */
void freeze_end(struct slot *s);

/* -- copy.c ------------------------------------------------------------------------------------ */

void copy_asked(struct privd *p, struct slot *s, const struct reply_to *to,
                const struct privsep_msg *m);

/* s stands still (0), or does not (-errno). */
void copy_frozen(struct slot *s, int status);

/* Begins the next that waits, if none is under way. */
void copy_next(void *privd);

/* -- keep.c ------------------------------------------------------------------------------------ */

void keep_asked(struct privd *p, struct slot *s, const struct reply_to *to,
                const struct privsep_msg *m);
void keep_drop_asked(struct privd *p, const struct reply_to *to, const struct privsep_msg *m);
void keep_list_asked(struct privd *p, const struct reply_to *to, const struct privsep_msg *m);

/* Whether a create on that template may take it: 0, -ENOENT, -EBUSY, -EINVAL (it lies on another one). */
int keep_may_take(const struct privd *p, uint32_t number, uint32_t template_number);

/* The same, for a copy of it: others may be made of it at the same time. */
int keep_may_copy(const struct privd *p, uint32_t number, uint32_t template_number);

/* s, which is about to be started, takes it. 0 or -errno. */
int keep_take(struct slot *s, uint32_t number);

/* s runs: what it took is its own. */
void keep_slot_runs(struct slot *s);

/* Nothing of s is left (0), or its layer could not be kept (-errno). */
void keep_slot_gone(struct slot *s, int status);

/* At a start, once it is known which sandboxes live and the remainders of others were undone. Blocks. */
void keep_recover(struct privd *p);

/* -- recover.c --------------------------------------------------------------------------------- */

/* Finds what lives and undoes what does not. Blocks: at start only. 0 or -errno. */
int recover_run(struct privd *p);

/* -- jobs.c ------------------------------------------------------------------------------------ */

/* Makes the cgroup that jobs run below. 0 or -errno. */
int jobs_init(struct privd *p);

/* After jobs_stop. */
void jobs_free(struct privd *p);

/* kind as in contract/meta.h; who NULL: privd itself asks, done is told. done may be NULL. 0, -EBUSY:
 * one for the same template runs, or too many run. */
typedef void (*jobs_done_cb)(struct privd *p, int status, const char *reason);
int jobs_start(struct privd *p, uint32_t kind, uint32_t template_number, const struct reply_to *to,
               jobs_done_cb done);

/* A job builds, refreshes or removes that template now. */
bool jobs_work_on(const struct privd *p, uint32_t template_number);

/* Removes what replaced templates left, if anything, once no sandbox may stand on it any more. */
void jobs_sweep_if_idle(struct privd *p);

/* Kills all of them (they leave nothing that the next of its kind does not remove). */
void jobs_stop(struct privd *p);

/* -- template.c -------------------------------------------------------------------------------- */

/* At the start, before there is a peer: one small read for each number that has a template. 0. */
int templates_load(struct privd *p);

/* A job on it has ended: one small read. */
void template_refresh(struct privd *p, uint32_t number);

/* Of the table; NULL: there is none of that number. */
const struct template_meta *template_find(const struct privd *p, uint32_t number);
bool template_in_use(const struct privd *p, uint32_t number);
