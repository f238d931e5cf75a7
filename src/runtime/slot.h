#pragma once
/* Steps of making a slot that a start needs where both are one task, and the report of failure of
 * each task of the process level. Private to the runtime. */

#include "contract/proto.h"
#include "runtime/runtime.h"
#include "runtime/task.h"
#include "sys/nft.h"

struct process_slot_args {
    struct runtime *rt;
    uint32_t number, gen;
};

/* In a task. The writable layer and the cgroups of a slot; 0 or -errno, noted in *out. */
int process_make_dirs(struct runtime *rt, uint32_t number, uint32_t gen,
                      const struct runtime_start *start, /* NULL: of none */
                      struct task_result *out) WARN_UNUSED;

/* In a task. The layer of a prepared slot, which is empty, goes, and start's copy of kept files
 * takes its place; 0 or -errno, noted in *out. */
int process_replace_layer(struct runtime *rt, uint32_t number, uint32_t gen,
                          const struct runtime_start *start, struct task_result *out) WARN_UNUSED;

/* Likewise of a slot in which cay-init waits: its layer is put aside (disk.h), as it is mounted. */
int process_change_layer(struct runtime *rt, uint32_t number, uint32_t gen,
                         const struct runtime_start *start, struct task_result *out) WARN_UNUSED;

/* In a task: forks into a new user namespace of uid's and what else flags (CLONE_NEW*) say. As
 * ns_fork. */
pid_t process_fork_owned(uint32_t uid, uint64_t flags, int exit_signal, int *pidfd);

/* In a task: the user and network namespace of a slot, as out->fds[0] and [1]. 0 or -errno. */
int process_make_namespaces(uint32_t uid, struct task_result *out) WARN_UNUSED;

#define NFT_RATE_SANDBOX ((struct nft_rate){EGRESS_NEW_PER_SECOND, EGRESS_NEW_BURST})
#define NFT_RATE_COMMAND_SANDBOX \
    ((struct nft_rate){EGRESS_COMMAND_SANDBOX_NEW_PER_SECOND, EGRESS_COMMAND_SANDBOX_NEW_BURST})

/* In such a child, once its ids are mapped: becomes its root, sets up its network namespace. */
int process_set_up_network(struct nft_rate rate) WARN_UNUSED;

/* Notes where a task failed; returns rc. */
int process_fail(struct task_result *out, enum privsep_stage stage, int rc);

/* task_collect with the task's own status; *stage (may be NULL) is set when it failed. */
int process_collect(struct task *t, struct task_result *result, uint32_t *stage);
