#pragma once
/* struct privd: what there is one of. Each part of it is its file's, which alone changes it.
 *
 * Which file does what: slots_make.c makes slots ahead and gives them out; sandbox.c starts one in
 * a slot; end.c ends it and cleans up, for every reason there is, as fast as pace.c lets it;
 * recover.c does the same for what an earlier privd left; freeze.c stops and lets go on;
 * dump.c keeps memory; archive.c makes one file of kept files, and bucket.c fetches it from where
 * it went;
 * command_sandbox.c makes and ends networks for single commands; jobs.c runs cay-job; template.c
 * says which templates are there; request.c checks and distributes what the peer asks. All of it
 * runs on one loop, nothing blocks: work of more than 100 µs runs in a task (a child,
 * runtime/task.h) or a job. */

#include "base/log.h"
#include "privd/archive.h"
#include "privd/bucket.h"
#include "privd/command_sandbox.h"
#include "privd/copy.h"
#include "privd/dump.h"
#include "privd/end.h"
#include "privd/exchange.h"
#include "privd/keep.h"
#include "privd/kept.h"
#include "privd/list.h"
#include "privd/loop.h"
#include "privd/opened.h"
#include "privd/options.h"
#include "privd/pace.h"
#include "privd/permit.h"
#include "privd/pool.h"
#include "privd/records.h"
#include "privd/slots.h"
#include "privd/template.h"
#include "privd/volume.h"
#include "privsep/server.h"
#include "runtime/runtime.h"

struct create_request;
struct egress;
struct jobs;
struct locks;
struct unkilled;

struct privd {
    struct options options;
    struct permit_bounds bounds;
    struct loop loop;
    struct runtime *rt;
    const struct runtime_driver *drivers[PRIVSEP_LEVEL_COUNT]; /* NULL: not on this machine */
    char level_why[PRIVSEP_LEVEL_COUNT][PRIVSEP_WHY_SIZE];     /* why a level is not there */
    _Atomic uint8_t *slot_levels; /* by slot: its level and 1, or 0; levels.c, shared */
    uint32_t pool_level;          /* of slots that are made ahead: the first that is there */
    struct privsep_server *server;
    struct loop_source server_source, signal_source;
    int signal_fd, lock_fd, state_lock_fd;
    struct records records;
    struct template_meta templates[PERMIT_TEMPLATE_MAX + 1]; /* by number; template.c */
    struct kept kept;
    struct dropper dropper;
    struct copier copier;
    struct archiver archiver;
    struct fetcher fetcher;
    struct exchanger exchanger;
    struct dumper dumpers[DUMPS_MAX];
    struct opened_images opened;
    struct volume_records volumes;
    struct volume_worker volume_worker;
    int host_dir_fds[HOST_DIRS_MAX]; /* of options.host_dirs; -1: it is not there */

    struct slot *slots; /* options.slots_max */
    struct slot_list empty, ready, prestarted;
    uint32_t n_making, n_starting, n_sandboxes; /* the last: those that permit_lives */
    uint32_t n_cold;            /* those of n_starting that are neither claims nor restores */
    uint32_t n_resizing;        /* resize.h */
    uint32_t n_prestarting;     /* those of n_making in which cay-init is started */
    uint32_t n_restoring_ahead; /* those of them that are restored (restores.h) */
    struct pool pool;           /* of which kinds they are */
    struct pool_counts pool_counts[PERMIT_TEMPLATE_MAX + 1]; /* by template */
    uint64_t memory_checked_ms;     /* when it was looked at how much memory there is; 0: never */
    struct loop_timer memory_timer; /* while there are members: to look at it (members.c) */
    uint32_t make_failures;         /* in a row: refilling backs off */
    struct command_sandbox *command_sandboxes_starting
        [COMMAND_SANDBOXES_STARTING_MAX]; /* those whose task works; command_sandbox.c */
    uint32_t n_command_sandboxes_starting;
    struct command_sandbox *command_sandboxes_left; /* their sandboxes have ended before them */
    struct log_rate command_sandbox_log, peer_log,
        owner_log; /* lines that tenants, and connecting programs, can cause at will */
    struct loop_timer refill_timer; /* after a failure: until then none is made */
    /* after a start: until then a slot is made only for a waiting create */
    struct loop_timer refill_delay_timer;
    struct cleaner cleaner;
    struct pace pace;          /* of all kills */
    uint32_t n_pins;           /* descriptors that pins.c holds */
    struct unkilled *unkilled; /* unkilled.h */
    struct listing listing;

    struct create_request *waiting_first, *waiting_last; /* creates without a slot yet */
    uint32_t n_waiting;
    uint32_t n_waiting_pooled; /* of them those that may have a slot that was made ahead */

    struct egress *egress; /* NULL: there is no cay-egress */
    struct jobs *jobs;
    uint32_t image_groups_over; /* those that are to be removed still */
    struct loop_timer image_groups_timer;
    struct cgroup *jobs_cgroup; /* image_groups.c has a part of it, too; NULL: there is none */
    struct locks *locks;        /* NULL: they are not watched */
    bool sweep_wanted; /* a replaced template waits for the end of those that may stand on it */
    char boot_id[40];
    char cgroup_name[INSTANCE_CGROUP_SIZE]; /* sandboxes' directories; jobs' has "-jobs" added */
    bool stopping;                          /* SIGTERM: everything is being ended */
    struct loop_timer stop_timer;
    int exit_status;
};
