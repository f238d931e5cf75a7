#pragma once
/* What the files of core share among themselves: the core and a sandbox with all that hangs on it.
 *
 * No pointer to a sandbox_obj is kept across a turn of the loop: calls under way hold its id and
 * look it up again. Whatever answers a caller goes through a call of its own (call.h) or core_defer,
 * so that core_free can end all of it. */

#include "base/clock.h"
#include "base/log.h"
#include "core/core.h"
#include "core/counters.h"
#include "core/life.h"
#include "core/registry.h"
#include "core/reserve.h"
#include "core/store.h"
#include "core/tenant.h"
#include "core/timers.h"

#include <assert.h>
#include <string.h>

#define CORE_SERVER_KEY_SIZE  32
#define CORE_SOCKET_CACHE_MAX PRIVSEP_MAX_FDS

struct metric_ring;
struct metric_waiter;
struct log_ring;
struct job;
struct templates;
struct egress;
struct egress_waiter;
struct exec_command_sandbox;
struct exec_op;
struct pause_waiter;
struct events;
struct policy;

/* A sandbox that was made, with what waits for it. s comes first: a struct sandbox that core handed
 * out is one of these. */
struct sandbox_obj {
    struct sandbox s;
    struct core *core;
    struct sandbox_obj *hash_next;
    struct tenant *tenant; /* whose it is: a reference; s.tenant is its name */
    struct sandbox_obj *tenant_next, *tenant_prev;
    struct tenant_charge charges[TENANT_SANDBOX_RESOURCES]; /* by enum tenant_resource */

    struct timer end;            /* what it means in each state: life.h */
    bool known_to_privd;         /* slot and gen are valid */
    uint64_t used_ms;            /* the last call (clock_mono_ms) */
    unsigned commands;           /* of core_exec that are under way: it is used as long */
    bool has_create_key;         /* its row has one (create_key.h) */
    bool kill_wanted;            /* asked for while CREATE is under way */
    bool listed;                 /* privd's LIST has it */
    uint64_t begun_us;           /* of the create, clock_mono_us */
    uint64_t made_us;            /* privd had made it */
    uint64_t kill_asked_us;      /* by a call; 0: none */
    char *init_body;             /* JSON for the agent's /init, until it is sent */
    bool init_waits;             /* for its tenant's CA (tenant_ca.h) */
    bool tenant_ca_installing;   /* tenant_ca.c: that, after its start */
    uint64_t tenant_ca_retry_ms; /* it has failed: not before that (clock_mono_ms) */
    core_sandbox_cb create_done, kill_done;
    void *create_arg, *kill_arg;

    /* pause.c */
    bool change_asked; /* privd owes the answer to FREEZE, THAW, KEEP or a CREATE on kept files */
    int64_t resume_ttl_ms; /* what those who resume it ask for; 0: the default */
    struct pause_waiter *pausers, *resumers;
    bool reboot;                  /* those want it to boot anew */
    bool reboot_keeps;            /* for that alone it is being kept */
    enum sandbox_tier pause_tier; /* what the last of pausers wants */

    /* keep.c */
    unsigned copies;  /* of its files that are being made (snapshot.c) */
    uint32_t copy_of; /* its create: the kept number whose copy it begins with; 0: none */
    bool env_asked;   /* its agent owes its environment */
    bool keep_asked;  /* privd owes the answer to KEEP */
    bool dropping;    /* its files go; until drop_until_ms that is tried again without a word */
    uint64_t drop_until_ms;

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
     * since it was; who waits for it */
    struct sandbox_obj *egress_next, *egress_prev;
    bool egress_queued, egress_sending, egress_changed;
    struct egress_waiter *egress_waiters;

    struct exec_command_sandbox *command_sandboxes; /* exec.c: whose policies are to be in force */

    bool announced;         /* events: a client may know of it, so that its end is an event too */
    const char *end_reason; /* a literal, in the words of docs/events.md; NULL: not known */
};

/* What privd keeps, by number (keep.c). */
struct kepts {
    bool can;                           /* privd can keep files at all */
    uint8_t seen[PRIVSEP_KEPT_MAX + 1]; /* the last KEPTS: enum kept_seen */
    bool stray[PRIVSEP_KEPT_MAX + 1];   /* no row names it: being dropped */
};

struct deferred {
    struct deferred *next;
    void (*fn)(void *arg);
    void *arg;
};

/* One list per core of the calls under way (call.h). */
struct call;

struct core {
    uv_loop_t *loop;
    struct core_config config; /* strings are copies */
    struct store *store;
    struct privsep_client *privd;
    struct timers timers;
    struct registry registry;
    struct tenants tenants;
    struct timer usage_due; /* usage.c */
    int64_t usage_hour_ms;  /* what is counted since usage_due was armed belongs to it */
    int64_t usage_purged_ms;
    uint8_t server_key[CORE_SERVER_KEY_SIZE];
    int64_t started_real_ms;
    int64_t clock_offset_ms; /* real less monotonic time, when last looked at; 0: not yet */

    struct reserve reserve; /* for what callers are owed when memory is out */

    bool privd_up, ready, stopping;
    struct call *calls;
    struct job *jobs;
    struct templates *templates;
    struct egress *egress;        /* NULL: there is none */
    struct tenant_ca *tenant_cas; /* all of them */
    struct events *events;
    struct counters counters;
    struct pipe_writer *pipe_writers; /* pipe_writer.c */
    unsigned pipe_writer_handles;     /* of theirs that are not closed yet */
    struct timer tenant_ca_retry;     /* for those that could not be had or given */
    struct renewals *renewals;        /* renewal.c */
    struct share_pool *execs;         /* exec.c: those under way, by tenant and sandbox */
    struct exec_op *exec_ops;         /* the same, in no order */
    uint64_t exec_last;               /* the last one's number */
    struct share_pool *audits;        /* egress_ask.c: questions about the log, by tenant */
    unsigned audit_handles;           /* of theirs that are not closed yet */

    struct privsep_msg *listed; /* ITEM events of the LIST under way */
    size_t listed_n, listed_cap;

    struct kepts kepts;
    struct snapshot_obj *snapshots; /* snapshot.c; newest first */

    void (*on_paused)(void *arg, const char *id);
    void *on_paused_arg;

    struct timer relist; /* LIST once more, or no answer to what is asked after a connection */
    bool asking;         /* LIST, then TEMPLATES: relist is the deadline of their answers */
    bool sweeping;       /* that LIST only looks for strays */
    uint64_t templates_asked_ms;

    uv_idle_t idle;
    struct deferred *deferred, **deferred_end;
    unsigned handles;                /* that are not closed yet, when stopping */
    void (*release)(struct core *c); /* at the last one */
};

/* -- deferred.c -------------------------------------------------------------------------------- */

/* c->loop is set. */
void deferred_init(struct core *c);

/* The core stops: now, what was deferred and what that defers. */
void deferred_run_all(struct core *c);

/* fn(arg) in the next turn of the loop, or from core_free. */
void core_defer(struct core *c, void (*fn)(void *arg), void *arg);

/* Answers a core_sandbox_cb in the next turn with an error. */
void core_defer_error(struct core *c, core_sandbox_cb done, void *arg, const struct err *why);

/* One of the handles that core_free counted is closed. */
void core_handle_closed(struct core *c);

/* ERR_UNAVAILABLE with what to do, when requests cannot be served. */
enum err_code core_check_ready(const struct core *c, struct err *e);

/* -- sandbox.c --------------------------------------------------------------------------------- */

/* Whose one is that core handed out. */
static inline struct tenant *sandbox_tenant(const struct sandbox *s)
{
    return ((const struct sandbox_obj *)s)->tenant;
}

static inline const struct life *sandbox_life(const struct sandbox_obj *o)
{
    return life_of(o->s.state);
}

/* Aborts when life.c does not have the step. */
void sandbox_move(struct sandbox_obj *o, enum sandbox_state to);

/* Charges its tenant with what its state and limits cost, by enum tenant_resource: when it is made, and with each step. */
void sandbox_account(struct sandbox_obj *o);

/* Any state but ENDED; NULL when there is none. tenant NULL: any. */
struct sandbox_obj *sandbox_get(struct core *c, const char *tenant, const char *id);

/* Is there one of that id, for that tenant, that a client may know of (life.h)?
 * ERR_NOT_FOUND otherwise. */
enum err_code sandbox_visible(struct core *c, const char *tenant, const char *id,
                              struct sandbox_obj **out, struct err *e);

/* Whether a sandbox of the tenant has the name, or is being made with it. */
bool sandbox_name_is_taken(const struct core *c, const char *tenant, const char *name);

/* -- sandbox_make.c --------------------------------------------------------------------------- */

/* What it gets: no field is 0. */
struct privsep_limits sandbox_limits(const struct core *c, const struct sandbox_request *r,
                                     const struct template_info *asked);

/* Makes one from a request (checked, defaults filled in) and puts it into the registry, CREATING. */
enum err_code sandbox_make(struct core *c, const struct sandbox_request *r,
                           const struct template_info *asked, const struct template_info *used,
                           struct sandbox_obj **out, struct err *e);

/* One that the store had; takes over the references in s. NULL: memory is out. */
struct sandbox_obj *sandbox_adopt(struct core *c, const struct sandbox *s);

/* Takes it out of everything and frees it. Nothing may wait for it any more. */
void sandbox_free(struct sandbox_obj *o);

/* -- sandbox_network.c ------------------------------------------------------------------------ */

/* ERR_INVALID, with the place of the mistake, or the credential that neither own nor the tenant has. NULL
 * is good: nothing may leave. */
enum err_code sandbox_check_policy(struct core *c, const char *tenant, const json_t *policy,
                                   const json_t *own, struct err *e);

/* -- lifecycle.c ------------------------------------------------------------------------------- */

/* Finds out whether the clock was set, and then moves what is told and stored of the ends of
 * sandboxes along with it. Called with every request and when anything ends: no client sees the end
 * of before. */
void lifecycle_check_clock(struct core *c);

/* At its end: true when it goes on, because it was used meanwhile. */
bool lifecycle_renew(struct sandbox_obj *o);

/* (Re-)arms the end of a sandbox from its end_real_ms, where its state has a lifetime. */
void lifecycle_arm(struct sandbox_obj *o);

/* ERR_INVALID: not above 0 and within the server's longest. */
enum err_code lifecycle_check_ttl(const struct core *c, int64_t ttl_ms, struct err *e);

/* Any state -> ENDING: written, then privd is told. reason is for the log; for events it is o->end_reason. */
void lifecycle_end(struct sandbox_obj *o, const char *reason);

/* The events of life.h. Each may free o. */
void lifecycle_on_timer(struct sandbox_obj *o);   /* o->end fired */
void lifecycle_on_missing(struct sandbox_obj *o); /* LIST does not have it */
void lifecycle_on_listed(struct sandbox_obj *o, uint32_t slot, uint32_t gen,
                         bool frozen); /* LIST has it */

/* A row of the store, when the core starts; takes over the references in s. */
enum err_code lifecycle_adopt(struct core *c, const struct sandbox *s, struct err *e);

/* Sends KILL for an ENDING one, or DROP for kept files of it; tries again later when the channel is full. */
void lifecycle_tell_privd(struct sandbox_obj *o);

/* Nothing of it is left: row removed, those who wait are told, o is freed. */
void lifecycle_ended(struct sandbox_obj *o, const char *reason);

/* The kill's caller is told why in the next turn, once. */
void lifecycle_kill_failed(struct sandbox_obj *o, const struct err *why);

/* privd's ENDED event. */
void lifecycle_on_ended(struct core *c, const struct privsep_msg *m);

/* -- create.c ---------------------------------------------------------------------------------- */

/* The create's caller is told why, once; the sandbox itself is the lifecycle's. */
void create_fail(struct sandbox_obj *o, const struct err *why);
void create_fail_text(struct sandbox_obj *o, enum err_code code, const char *text);

/* o->init_waits was set, and is not any more. why: only when the server stops. */
void create_go_on(struct sandbox_obj *o, const struct err *why);

/* Sends CREATE for o, with the files that it has kept. The sequence number or -errno. */
int64_t create_ask_privd(struct sandbox_obj *o, uint32_t template_number);

/* What an agent is told at /init: a new object. NULL: memory is out. */
json_t *create_init_body(const struct sandbox_obj *o, json_t *env);

/* The deadline of a create has passed. */
void create_on_deadline(struct sandbox_obj *o);

/* -- template.c -------------------------------------------------------------------------------- */

enum err_code templates_init(struct core *c, struct err *e);
void templates_free(struct core *c);
enum err_code templates_load_limits(struct core *c, struct err *e); /* after the store is open */
struct template_info *templates_entry(struct core *c, const char *name); /* or NULL */
void templates_forget(struct core *c);                                   /* privd lists them anew */
void templates_on_event(struct core *c, const struct privsep_msg *m);
void templates_on_progress(struct core *c, const struct privsep_msg *m);

/* Asks privd for them; fn (may be NULL) when they are known (status 0) or not. 0, or -errno when
 * nothing was asked. */
int templates_ask(struct core *c, void (*fn)(struct core *c, int status));

/* Name -> what was asked for and what is used: base gives host until it is built. */
enum err_code templates_resolve(struct core *c, const char *name,
                                const struct template_info **asked,
                                const struct template_info **used, struct err *e);

/* -- credential.c ------------------------------------------------------------------------------ */

/* Does own (may be NULL) or the tenant have every credential that the policy names? */
enum err_code credentials_check(struct core *c, const char *tenant, const struct policy *policy,
                                const json_t *own, struct err *e);

/* The policies above s's own: the operator's for all and the tenant's. NULL: not known, with the reason; then nothing
 * may be let out. */
json_t *ceilings_of(struct sandbox_obj *o, struct err *e);

/* The sealed records that s's policy names: a new array, as cay-egress takes it. */
json_t *credentials_for(struct core *c, const struct sandbox *s);

/* Sandboxes of the tenant that use it are given it anew. */
void credentials_touch(const struct tenant *t, const char *name);

/* Those that a command's own policy names, and s's too. */
json_t *credentials_for_command(struct core *c, const struct sandbox *s, json_t *policy);

/* -- key_id.c ---------------------------------------------------------------------------------- */

/* Of a well-formed API key, as the store has it. */
void key_hash(const char *key, uint8_t out[static STORE_HASH_SIZE]);

/* -- token.c ----------------------------------------------------------------------------------- */

/* Reads the server's key, or makes it. */
enum err_code token_load_key(struct core *c, struct err *e);

/* -- metrics.c --------------------------------------------------------------------------------- */

/* o->sample: a sample is due. */
void metrics_on_timer(struct timer *t);

/* It was used: samples are taken for a while. */
void metrics_touch(struct sandbox_obj *o, uint64_t for_ms);

/* Waiting callers are told why not; the samples are freed. */
void metrics_free(struct sandbox_obj *o, const struct err *why);

/* -- logs.c ------------------------------------------------------------------------------------ */

void logs_add(struct sandbox_obj *o, const char *level, const char *fmt, ...) PRINTF(3, 4);
void logs_free(struct sandbox_obj *o);

/* -- sockets.c --------------------------------------------------------------------------------- */

void sockets_put(struct sandbox_obj *o, int *fds, size_t n); /* takes them over */
void sockets_discard(struct sandbox_obj *o);
void sockets_on_expiry(struct timer *t);
