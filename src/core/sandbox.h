#pragma once
/* A sandbox with all that hangs on it, and how core's files find one.
 *
 * No pointer to a sandbox_obj is kept across a turn of the loop: calls under way hold its id and
 * look it up again. Whatever answers a caller goes through a call of its own (call.h) or
 * core_defer, so that core_free can end all of it. */

#include "core/core.h"
#include "core/life.h"
#include "core/tenant.h"
#include "core/timers.h"
#include "core/trace.h"

struct egress_waiter;
struct exec_command_sandbox;
struct log_ring;
struct metric_ring;
struct metric_waiter;
struct pause_waiter;

#define CORE_SOCKET_CACHE_MAX PRIVSEP_MAX_FDS

/* A sandbox that was made, with what waits for it. s comes first: a struct sandbox that core handed
 * out is one of these. */
struct sandbox_obj {
    struct sandbox s;
    struct core *core;
    struct sandbox_obj *hash_next;
    struct tenant *tenant; /* the owner: a reference; s.tenant is its name */
    struct sandbox_obj *tenant_next, *tenant_prev;
    struct tenant_charge charges[TENANT_SANDBOX_RESOURCES]; /* by enum tenant_resource */

    struct timer end;           /* its meaning in each state: life.h */
    struct timer destroy;       /* armed: it is ended then, in any state (auto_destroy.h) */
    bool known_to_privd;        /* slot and gen are valid */
    uint64_t used_ms;           /* the last use that counts (clock_mono_ms); idle.c */
    bool idle_requested;        /* privd owes what its programs used */
    uint64_t idle_check_ms;     /* at the last look (clock_mono_ms; 0: none), and what they */
    uint64_t idle_cpu_us;       /* had used until then */
    unsigned commands;          /* of core_exec that are under way: it is used as long */
    bool has_create_key;        /* its row has one (create_key.h) */
    bool kill_wanted;           /* asked for while CREATE is under way */
    bool listed;                /* privd's LIST has it */
    uint64_t begun_us;          /* of the create, clock_mono_us */
    uint64_t made_us;           /* privd had made it */
    uint64_t kill_requested_us; /* by a call; 0: none */
    char *init_body;            /* JSON for the agent's /init, until it is sent */
    /* Not NULL: it waits for its tenant's CA (tenant_ca.h), and goes on so. why: only when the
     * server stops. */
    void (*on_tenant_ca)(struct sandbox_obj *o, const struct err *why);
    bool tenant_ca_installing;   /* tenant_ca.c: that, after its start */
    uint64_t tenant_ca_retry_ms; /* it has failed: not before that (clock_mono_ms) */
    core_sandbox_cb create_done, kill_done;
    void *create_arg, *kill_arg;

    /* pause.c */
    /* privd owes the answer to FREEZE, THAW, KEEP or a CREATE on kept files */
    bool change_requested;
    bool change_reserved;  /* memory is set aside for the pause or resume under way (reserve.h) */
    bool hooks_requested;  /* hooks.c: before it is paused, and its agent owes how they went */
    bool resize_requested; /* resize.c: privd owes the answer to RESIZE */
    int64_t resume_ttl_ms; /* asked for by those who resume it; 0: the default */
    struct pause_waiter *pausers, *resumers;
    bool reboot;                  /* those want it to boot anew */
    bool reboot_keeps;            /* for that alone it is being kept */
    bool reboot_ran;              /* it ran until then: its clients were not told of a pause */
    enum sandbox_tier pause_tier; /* of the last of pausers */
    /* stop.c: it goes on for a moment, so that its files alone are kept, and was paused for this
     * before; NONE: not so, or a caller wants it to run since then */
    enum sandbox_pause_reason paused_before;

    /* reboot.c */
    struct timer copies_wait; /* armed: it boots anew when no copy of its files is made any more */
    char
        rollback_to[IDS_SANDBOX_SIZE]; /* the snapshot that it then boots with; "": its own files */

    /* keep.c */
    bool rolled_back; /* being restarted on a copy of a snapshot's files: its own are kept still */
    unsigned copies;  /* of its files that are being made (snapshot_make.c), and calls of fork.c */
    int64_t forks_ttl_ms; /* paused for forks alone: for so long it goes on after them; 0: not so */
    uint32_t copy_of;     /* its create: the kept number whose copy it begins with; 0: none */
    bool copies_memory;   /* with the processes, from the memory beside those files */
    bool takes_snapshot;  /* as its request says */
    char memory_snapshot[IDS_SANDBOX_SIZE]; /* the snapshot whose memory that is; "": a fork's */
    /* create.c: CREATE waits until the contents of a volume that it is to have are not served any
     * more (volume_content.h); the request that is sent then */
    bool held;
    uint32_t held_template, held_kept;
    char held_snapshot[IDS_SANDBOX_SIZE]; /* "": none */
    bool env_requested;                   /* its agent owes its environment */
    uint64_t env_us;                      /* it has told it (clock_mono_us) */
    bool keep_requested;                  /* privd owes the answer to KEEP */
    bool keep_late; /* it has ended, and privd has said that it could not keep its files so far */
    bool dropping;  /* its files go; until drop_until_ms that is tried again without a word */
    uint64_t drop_until_ms;

    bool to_disk_tried; /* to_disk.c: since it was frozen */

    /* archive_file.c */
    bool archiving;                 /* privd owes the answer to ARCHIVE */
    bool archive_requested;         /* by a call: it waits for its turn, or is being archived */
    bool archive_tried;             /* since it was stopped: it is not tried again by age */
    uint64_t archive_not_before_ms; /* clock_mono_ms */
    bool archive_sent;              /* it is in the bucket, or is not to go there */
    bool archive_here;              /* it was fetched for a start */
    bool fetching;                  /* privd owes the answer to FETCH */
    struct pause_waiter *archivers;

    /* dump.c */
    bool dump_requested; /* its agent prepares for a dump, or privd owes the answer to DUMP */
    bool dump_prepared;  /* DUMP was sent, or is to be */
    bool dump_waits;     /* until its timer fires, and at most until dump_until_ms */
    bool dump_ends;      /* it was refused for dump_why, and its agent is told to go on */
    struct err dump_why;
    uint64_t dump_until_ms;
    bool restoring;       /* being restarted from its memory */
    bool restart_refused; /* that was, for dump_why: KEPTS is to say whether its memory is there */
    struct err fell;      /* core_sandbox_fell */
    int64_t
        refused_end_ms; /* the end of its time at which its memory could not be written (pause.c) */

    /* sockets.c: unconnected sockets that came with a batch and were not needed yet */
    struct timer socket_cache_expiry;
    int socket_cache[CORE_SOCKET_CACHE_MAX];
    size_t socket_cache_n;
    uint64_t sockets_used_ms;

    /* metrics.c */
    struct timer sample;
    uint64_t sample_until_ms;
    bool sample_pending;
    struct metric_ring *metrics;
    struct metric_waiter *metric_waiters;

    struct log_ring *logs; /* logs.c */

    /* egress.c: its policy is to be sent (on the list of its process), is being sent, has changed
     * since it was; its waiters */
    struct sandbox_obj *egress_next, *egress_prev;
    bool egress_queued, egress_sending, egress_changed;
    struct egress_waiter *egress_waiters;

    struct exec_command_sandbox *command_sandboxes; /* exec.c: whose policies are to be in force */

    /* trace_sandbox.c: the span of its create, pause or resume under way, and of what tier; the
     * context of the call that asked for a change last */
    struct trace_span trace;
    const char *trace_tier;
    struct trace_context trace_requested;

    bool no_start_command;  /* at its create */
    bool announced;         /* events: a client may know of it, so that its end is an event too */
    const char *end_reason; /* a literal, in the words of docs/events.md; NULL: not known */
    bool end_written;       /* ended.c: the reason is in the store */
};

/* Whose one is that core handed out. */
static inline struct tenant *sandbox_tenant(const struct sandbox *s)
{
    return ((const struct sandbox_obj *)s)->tenant;
}

static inline const struct life *sandbox_life(const struct sandbox_obj *o)
{
    return life_of(o->s.state);
}

/* Sets memory aside for a pause or resume that is about to begin: many may be under way by their
 * timers alone, each with calls of its agent. It is given back at the change's end (sandbox_move).
 * ERR_EXHAUSTED: memory is out. */
enum err_code sandbox_reserve_change(struct sandbox_obj *o, struct err *e);
void sandbox_release_change(struct sandbox_obj *o); /* where it did not begin */

/* Aborts when life.c does not have the step. */
void sandbox_move(struct sandbox_obj *o, enum sandbox_state to);

/* Charges its tenant with what its state and limits cost, by enum tenant_resource: when it is made,
 * and with each step. */
void sandbox_account(struct sandbox_obj *o);

/* Any state but ENDED; NULL when there is none. tenant NULL: any. */
struct sandbox_obj *sandbox_get(struct core *c, const char *tenant, const char *id);

/* Is there one of that id, for that tenant, that a client may know of (life.h)?
 * ERR_NOT_FOUND otherwise. */
enum err_code sandbox_visible(struct core *c, const char *tenant, const char *id,
                              struct sandbox_obj **out, struct err *e);

/* The same, and its agent and its ports can be reached now: ERR_CONFLICT otherwise, with *out
 * set. */
enum err_code sandbox_reachable(struct core *c, const char *tenant, const char *id,
                                struct sandbox_obj **out, struct err *e);

/* Its state in an owner's words, after "it is". */
const char *sandbox_state_text(const struct sandbox_obj *o);

/* Its row, as it is now: where that fails it goes on, as LIST is what counts at the next start. */
void sandbox_write_row(struct sandbox_obj *o);

/* Writes changed to the store, then makes it the sandbox's: all of o->s, or nothing. *out is it. */
enum err_code sandbox_write_through(struct sandbox_obj *o, const struct sandbox *changed,
                                    const struct sandbox **out, struct err *e);

/* Whether it is paused with its memory on the disk. */
bool sandbox_has_memory_on_disk(const struct sandbox_obj *o);

/* ERR_CONFLICT: what it does instead of running, and how it is resumed. */
enum err_code sandbox_not_running(const struct sandbox_obj *o, struct err *e);

/* Whether a sandbox of the tenant has the name, or is being made with it. */
bool sandbox_name_is_taken(const struct core *c, const char *tenant, const char *name);
