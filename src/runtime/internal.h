#pragma once
/* What the runtime's files share. Private to the runtime. */

#include "base/test_bypass.h"
#include "contract/proto.h"
#include "runtime/disk.h"
#include "runtime/runtime.h"
#include "sys/caps.h"
#include "sys/cgroup.h"
#include "sys/filter.h"
#include "sys/mnt.h"
#include "sys/nft.h"

struct runtime {
    int state_fd; /* the state directory */
    int stage_fd; /* its empty directory for the first mount of a sandbox */
    int agent_fd; /* sealed memfd with cay-init, execute-only */
    char *agent_path;
    struct cgroup *cgroups;
    struct filter filter, asking_filter; /* the second: of sandboxes with limits.filters */
    struct disk disk;
    uint32_t slots_max;
    uint32_t uid_base;
    uint32_t cpus; /* that may ever be there */
};

/* What PID 1 may use beyond the sandbox's limits, so that it goes on answering. */
#define RUNTIME_RESERVE_MEMORY_BYTES (UINT64_C(64) << 20)
#define RUNTIME_RESERVE_PIDS         64
#define RUNTIME_RESERVE_CPU_MILLI    250

/* The bounding set of everything that a tenant runs: root inside may own files, drop and change
 * ids, bind low ports, make device nodes (which do not open), write audit lines; nothing that
 * reaches the kernel's configuration, other processes' memory or the network's. */
#define RUNTIME_CHILD_CAPS                                                                     \
    (CAPS_BIT(CAP_CHOWN) | CAPS_BIT(CAP_DAC_OVERRIDE) | CAPS_BIT(CAP_FOWNER) |                 \
     CAPS_BIT(CAP_FSETID) | CAPS_BIT(CAP_KILL) | CAPS_BIT(CAP_SETGID) | CAPS_BIT(CAP_SETUID) | \
     CAPS_BIT(CAP_SETPCAP) | CAPS_BIT(CAP_NET_BIND_SERVICE) | CAPS_BIT(CAP_SYS_CHROOT) |       \
     CAPS_BIT(CAP_MKNOD) | CAPS_BIT(CAP_AUDIT_WRITE) | CAPS_BIT(CAP_SETFCAP))

/* PID 1 has one more that none of its children can ever have: the kernel lets no process trace, or
 * take descriptors of, another whose capabilities are not a subset of its own. Test: probe
 * "pid1". */
#define RUNTIME_AGENT_CAPS (RUNTIME_CHILD_CAPS | CAPS_BIT(CAP_SYS_PTRACE))

/* The set in force: the above, but for positive controls in test builds. */
static inline uint64_t runtime_agent_caps(void)
{
    return TEST_BYPASS(CAPABILITIES) ? ~UINT64_C(0) : RUNTIME_AGENT_CAPS;
}

static inline uint64_t runtime_child_caps(void)
{
    uint64_t all = runtime_agent_caps(), own = RUNTIME_AGENT_CAPS & ~RUNTIME_CHILD_CAPS;
    return TEST_BYPASS(SUPERSET) ? all : all & ~own;
}

/* Template layers and the host's /usr are mounted with these. */
#define RUNTIME_LOWER_ATTR \
    (MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOATIME)

/* A level's functions, as struct runtime_driver says what each does. */
#define RUNTIME_DECLARE_LEVEL(p)                                                                  \
    int p##_slot_begin(struct runtime *rt, uint32_t number, uint32_t gen, struct task *out);      \
    int p##_slot_finish(struct runtime *rt, struct task *t, struct runtime_slot *out,             \
                        uint32_t *stage);                                                         \
    void p##_slot_close(struct runtime_slot *s);                                                  \
    int p##_start_begin(struct runtime *rt, const struct runtime_slot *slot,                      \
                        const struct runtime_start *start, struct task *out, int *boot_fd);       \
    int p##_start_finish(struct runtime *rt, struct task *t, struct runtime_started *out,         \
                         uint32_t *stage);                                                        \
    int p##_claim(const struct runtime *rt, const struct runtime_sandbox *sb, int boot_fd,        \
                  const struct runtime_claim *claim);                                             \
    int p##_sockets(const struct runtime *rt, const struct runtime_sandbox *sb, int *fds,         \
                    unsigned n);                                                                  \
    int p##_listeners(const struct runtime *rt, const struct runtime_sandbox *sb,                 \
                      int fds[PRIVSEP_EGRESS_FDS]);                                               \
    int p##_stat(const struct runtime *rt, const struct runtime_sandbox *sb,                      \
                 struct runtime_stat *out);                                                       \
    int p##_freeze(const struct runtime *rt, const struct runtime_sandbox *sb);                   \
    bool p##_is_frozen(const struct runtime *rt, const struct runtime_sandbox *sb);               \
    int p##_thaw(const struct runtime *rt, const struct runtime_sandbox *sb);                     \
    int p##_kill(const struct runtime *rt, const struct runtime_sandbox *sb);                     \
    int p##_pin(const struct runtime_sandbox *sb);                                                \
    uint32_t p##_kill_cost(const struct privsep_limits *limits, uint32_t command_sandboxes);      \
    int p##_reap(const struct runtime_sandbox *sb, struct runtime_exit *out);                     \
    bool p##_was_oom(const struct runtime *rt, const struct runtime_sandbox *sb);                 \
    int p##_end_begin(struct runtime *rt, const struct runtime_end *ends, unsigned n,             \
                      struct task *out);                                                          \
    int p##_end_finish(struct runtime *rt, struct task *t, struct runtime_end *ends, unsigned n); \
    int p##_command_sandbox_begin(struct runtime *rt, const struct runtime_sandbox *sb,           \
                                  uint32_t open_files, struct task *out, int *boot_fd);           \
    int p##_command_sandbox_finish(struct runtime *rt, struct task *t,                            \
                                   struct runtime_started *out, uint32_t *stage);                 \
    int p##_command_sandbox_kill(const struct runtime_sandbox *command_sandbox);                  \
    uint32_t p##_command_sandboxes_kill(const struct runtime *rt, uint32_t slot);                 \
    void p##_command_sandboxes_kill_unfinished(const struct runtime *rt, uint32_t slot);          \
    int p##_adopt(const struct runtime *rt, uint32_t slot, pid_t pid, int *pidfd)

/* slot.c, process.c, process_live.c, observe.c, command_sandbox.c */
RUNTIME_DECLARE_LEVEL(process);
int process_probe(struct runtime *rt, char *why, size_t why_size);

/* absent.c: refuses everything. A level that is not there has these, and a probe of its own. */
RUNTIME_DECLARE_LEVEL(absent);

/* observe.c: one of a slot's processes that is PID 1 of its own pid namespace; 0: none. */
pid_t process_find_first(const struct runtime *rt, uint32_t slot);

/* The socket over which cay-init gets its boot block and tells that it is ready, in a task's
 * arguments. */
struct process_boot {
    int agent_fd; /* cay-init's end */
    int own_fd;   /* the starter's end */
};

/* In the task: says what cay-init is to be, with the descriptors that *in has for it. filters: of
 * its limits. 0 or -errno. */
struct inside;
int process_write_boot(const struct process_boot *b, const struct inside *in, uint32_t open_files,
                       uint32_t filters) WARN_UNUSED;

/* Begins a task that starts a cay-init: fills *boot, which is part of args, then runs it. *boot_fd
 * is the caller's, non-blocking. 0 or -errno; nothing is open then. */
int process_begin(int (*run)(void *args, struct task_result *out), void *args,
                  struct process_boot *boot, struct task *out, int *boot_fd) WARN_UNUSED;

struct process_slot_args {
    struct runtime *rt;
    uint32_t number, gen;
};

/* In a task. The writable layer and the cgroups of a slot; 0 or -errno, noted in *out. */
int process_make_places(struct runtime *rt, uint32_t number, uint32_t gen,
                        const struct runtime_start *start, /* NULL: of none */
                        struct task_result *out) WARN_UNUSED;

/* In a task: forks into a new user namespace of uid's and what else flags (CLONE_NEW*) say. As
 * ns_fork. */
pid_t process_fork_owned(uint32_t uid, uint64_t flags, int exit_signal, int *pidfd);

#define NFT_RATE_SANDBOX ((struct nft_rate){EGRESS_NEW_PER_SECOND, EGRESS_NEW_BURST})
#define NFT_RATE_COMMAND_SANDBOX \
    ((struct nft_rate){EGRESS_COMMAND_SANDBOX_NEW_PER_SECOND, EGRESS_COMMAND_SANDBOX_NEW_BURST})

/* In such a child, once its ids are mapped: becomes its root, sets up its network namespace. */
int process_set_up_network(struct nft_rate rate) WARN_UNUSED;

/* What a task and the cay-init that it starts speak by: a pipe whose end says that the program was
 * executed, before that why not, and a socket pair. Each end -1, or open and the task's;
 * close-on-exec. */
struct process_ends {
    int status_fd, status_end; /* read by the task; written by the child */
    int sock, sock_end;        /* the task's; the child's */
};

#define PROCESS_ENDS_NONE    ((struct process_ends){-1, -1, -1, -1})
#define CLEANUP_PROCESS_ENDS CLEANUP(process_ends_close)

/* 0 or -errno; what was opened is in *e either way. */
int process_ends_open(struct process_ends *e) WARN_UNUSED;
void process_ends_close(struct process_ends *e);

/* Waits until a child with in->status_fd has become cay-init, or says why not. */
int process_await_exec(int status_fd, struct task_result *out);

/* Notes where a task failed; returns rc. */
int process_fail(struct task_result *out, enum privsep_stage stage, int rc);

/* task_collect with the task's own status; *stage (may be NULL) is set when it failed. */
int process_collect(struct task *t, struct task_result *result, uint32_t *stage);

/* The device nodes in /dev: the usual ones, which are each sandbox's own (stage.c); a test build
 * knows more, of the host's, for the control of what the others are kept from. */
#ifdef CAY_TEST_SWITCHES
#define INSIDE_DEVICES 13
#else
#define INSIDE_DEVICES 6
#endif
#define INSIDE_DEVICES_USUAL 6

/* inside.c: everything that is done inside the new namespaces, up to exec. */
struct inside {
    const struct runtime_start *start;
    const struct filter *filter;
    int agent_fd;
    int lower_fd; /* detached, idmapped: the template's root */
    int view_fd;  /* detached, idmapped: what is at /sys, the layer below; negative: none */
    int mask_fd;  /* detached, idmapped: layer over the host's /usr; -1: the template has its own */
    int usr_fd;   /* detached, idmapped: the host's /usr; -1 likewise */
    int upper_fd; /* detached, idmapped: the writable layer; -1: a tmpfs is to be made */
    /* detached, idmapped: those of start->volumes; -1: there is none */
    int volume_fds[PRIVSEP_CREATE_VOLUMES];
    int stage_fd; /* detached: the tmpfs of stage_make */
    int device_fds
        [INSIDE_DEVICES]; /* the host's, detached; negative: the sandbox's own, or left out */
    int boot_fd;
    int cgroup_fds[CGROUP_ATTACH_MAX];
    int n_cgroup_fds;
    int agent_cgroup_fds
        [CGROUP_ATTACH_MAX]; /* into the agent's leaf; a command sandbox needs none */
    int n_agent_cgroup_fds;
    int oom_fd;    /* AGENT_OOM_FD, or negative */
    int status_fd; /* close-on-exec; gets a struct inside_failure when something fails */
    /* of a sandbox that runs: its tree is there; all above but the layers is used */
    bool command_sandbox;
};

struct inside_failure {
    uint32_t stage;
    int32_t status;
};

extern const char *const inside_devices[INSIDE_DEVICES];

/* The working directory has to be the stage directory. Does not return: execs cay-init, or
 * reports. */
NORETURN void inside_run(const struct inside *in);

/* command_sandbox.c: gives the calling process, alone in its pid and mount namespace, a /proc and
 * terminals of these namespaces in the sandbox's tree. 0 or -errno. */
int command_sandbox_mount(void) WARN_UNUSED;

/* rootfs.c: what is done to a new /proc. */
#define ROOTFS_PROC_READ_ONLY 2
#define ROOTFS_PROC_MASKED    28
#define ROOTFS_BOOT_ID        "sys/kernel/random/boot_id"
#define ROOTFS_STRICT         (MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | MOUNT_ATTR_NOEXEC)
extern const char *const rootfs_proc_read_only[ROOTFS_PROC_READ_ONLY];
extern const char *const rootfs_proc_masked[ROOTFS_PROC_MASKED];
int rootfs_make_read_only(int dir_fd, const char *path) WARN_UNUSED;

/* Sysctls of the user and network namespace of the process that mounted this /proc. */
int rootfs_set_sysctls(int proc_fd, bool command_sandbox) WARN_UNUSED;

/* stage.c: a new, detached tmpfs that belongs to uid (a slot's first), with its `dev` and the usual
 * device nodes in it. As root of the host. A descriptor or -errno. */
int stage_make(uint32_t uid, uint64_t memory_bytes) WARN_UNUSED;

/* rootfs.c: builds the file system tree. Returns the root's descriptor (attached below the working
 * directory, ready for mnt_pivot), or -errno. */
int rootfs_build(const struct inside *in) WARN_UNUSED;
