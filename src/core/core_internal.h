#pragma once
/* struct core, as core's own files see it: what there is one of. Each part of it is its file's
 * (timers.h, registry.h, tenant.h, ...), which alone changes it. */

#include "core/core.h"
#include "core/counters.h"
#include "core/deferred.h"
#include "core/keep.h"
#include "core/registry.h"
#include "core/reserve.h"
#include "core/tenant.h"
#include "core/timers.h"
#include "core/trace.h"

struct build_cached;
struct build_files;
struct build_log_follower;
struct build_obj;
struct call;
struct egress;
struct events;
struct transfer;
struct exec_op;
struct job;
struct later_obj;
struct pipe_writer;
struct privsep_client;
struct published;
struct renewals;
struct share_pool;
struct snapshot_obj;
struct state_follower;
struct store;
struct templates;
struct tenant_ca;
struct traces;
struct volume_obj;
struct webhooks;

#define CORE_SERVER_KEY_SIZE 32

struct core {
    uv_loop_t *loop;
    struct core_config config; /* strings are copies */
    struct store *store;
    struct privsep_client *privd;
    struct timers timers;
    struct registry registry;
    struct tenants tenants;
    struct timer usage_due; /* usage.c */
    int64_t usage_hour_ms;  /* usage since usage_due was armed belongs to it */
    int64_t usage_purged_ms;
    bool usage_often; /* usage_due is less than a minute away */
    uint8_t server_key[CORE_SERVER_KEY_SIZE];
    int64_t started_real_ms;
    int64_t clock_offset_ms; /* real less monotonic time, when last looked at; 0: not yet */

    struct reserve reserve; /* for what callers are owed when memory is out */

    bool privd_up, ready, stopping;
    struct call *calls;
    struct job *jobs;
    struct templates *templates;
    struct published *published;  /* publish.c */
    struct egress *egress;        /* NULL: there is none */
    struct tenant_ca *tenant_cas; /* all of them */
    struct events *events;
    struct state_follower *state_followers;         /* state_follow.c */
    struct build_log_follower *build_log_followers; /* build_log_follow.c */
    struct share_pool *state_shares;                /* theirs, by tenant */
    struct counters counters;
    struct pipe_writer *pipe_writers; /* pipe_writer.c */
    unsigned pipe_writer_handles;     /* of theirs that are not closed yet */
    struct timer tenant_ca_retry;     /* for those that could not be had or given */
    struct renewals *renewals;        /* renewal.c */
    struct webhooks *webhooks;        /* webhook.c */
    struct traces *traces;            /* trace.c; NULL: no collector is set */
    struct trace_context trace;       /* in force: each new span is below it */
    struct share_pool *streams;       /* pipe_writer.c: answers that are not taken yet, likewise */
    struct share_pool *resizes;       /* resize.c: those with cay-privd, likewise */
    struct share_pool *execs;         /* exec.c: those under way, by tenant and sandbox */
    struct exec_op *exec_ops;         /* the same, in no order */
    struct timer images_due;          /* build_image.c: images that nothing stands on any more */
    struct build_image *images;       /* being made: one of a tenant, at most 16 */
    struct timer images_unused;       /* build_of_create.c */
    struct later_obj *creates_later;  /* create_later.c; newest first */
    uint64_t exec_last;               /* the last one's number */
    struct share_pool *audits;        /* egress_query.c: questions about the log, by tenant */
    unsigned audit_handles;           /* of theirs that are not closed yet */

    struct privsep_msg *listed; /* ITEM events of the LIST under way */
    size_t listed_n, listed_cap;

    struct kepts kepts;
    struct timer archive_due; /* archive_file.c */
    uint64_t archive_turns;
    struct timer to_disk_due; /* to_disk.c */
    /* Removes a cached step of the tenant to make room for what it keeps (build_cache.c); false:
     * there is none. NULL: not yet. */
    bool (*kept_gives_way)(struct core *c, const char *tenant);
    struct snapshot_obj *snapshots;  /* snapshot.c; newest first */
    struct transfer *transfers;      /* transfer.c; oldest first */
    uint64_t transfer_last;          /* the last one's number */
    struct template_making *makings; /* template_memory.c */
    struct build_obj *builds;        /* build.c; likewise */
    struct build_files *build_files;
    struct build_cached *build_cached; /* build_cache.c */
    uint64_t build_uses;
    struct volume_obj *volumes;         /* volume.c; likewise */
    const struct tier_functions *tiers; /* by enum sandbox_tier (tier.h) */
    /* The events of a sandbox's timers and of its end, told by core.c, so that making one needs
     * nothing of them. on_server_gone: one that served a volume has been freed. */
    struct {
        void (*on_end_timer)(struct timer *t), (*on_destroy_timer)(struct timer *t);
        void (*on_server_gone)(struct core *c);
    } events_of_sandboxes;
    struct deferred volume_end; /* volume_content.c */
    bool volume_end_deferred;
    struct kept_listed volumes_listed[PRIVSEP_VOLUMES_MAX + 1]; /* by the last VOLUMES, by number */

    void (*on_paused)(void *arg, const char *id);
    void *on_paused_arg;
    void (*on_key_revoked)(void *arg, const char *key_id);
    void *on_key_revoked_arg;

    struct timer relist; /* LIST once more, or no answer to what is asked after a connection */
    bool list_pending;   /* LIST, then TEMPLATES: relist is the deadline of their answers */
    bool listing;        /* LIST has no answer yet: ITEM events belong to it */
    bool sweeping;       /* that LIST only looks for strays */
    uint64_t templates_requested_ms;

    uv_idle_t idle;
    struct deferred *deferred, **deferred_end;
    unsigned handles;                /* that are not closed yet, when stopping */
    void (*release)(struct core *c); /* at the last one */
};
