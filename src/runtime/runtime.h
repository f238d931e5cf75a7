#pragma once
/* Making, starting and ending sandboxes: the levels behind one table of functions.
 *
 * Linked into cay-privd and cay-job only. Everything here runs as root on the host,
 * single-threaded. Nothing takes a path or a name from outside: a slot number (and a generation)
 * gives the uid range, the cgroups and every path, a template number gives the layers.
 *
 * Life of a sandbox, as privd drives it (each *_begin starts a task, see task.h: watch
 * task.pidfd, then call the matching *_finish, which answers -EAGAIN until the result is
 * there):
 *
 *     slot_begin / slot_finish     pooled ahead: namespaces, rules, writable layer, cgroups
 *     start_begin / start_finish   ahead too, or at once: everything is mounted, cay-init runs in
 *                                  it and waits
 *     files_begin / files_finish   of one that waits: it gets kept files
 *     claim                        it is a sandbox; its ready byte comes over boot_fd
 *     listeners, sockets           sockets inside its network namespace (inline)
 *     stat                         numbers (inline, a dozen small reads)
 *     freeze, thaw                 its processes stop and go on (inline)
 *     kill                         then wait until the pidfd is readable, then reap
 *     end_begin / end_finish       nothing is left: cgroups, writable layers, of many at a time
 *
 * Each operation on a sandbox is a function of its level's row (struct runtime_driver); the
 * functions outside of it are of the host: opening, the state disk, and the remainders of an
 * earlier run.
 *
 * Per running sandbox the caller needs to keep only the pidfd. Slots that are pooled hold two or
 * three descriptors. Names on disk and in cgroups are <slot> and <slot>.<gen>, so that after a
 * crash runtime_scan finds every remainder and adopt takes over what still runs. */

#include "contract/agent_boot.h"
#include "contract/proto.h"
#include "runtime/task.h"

#define RUNTIME_UID_BASE        1006632960u /* default of runtime_config.uid_base */
#define RUNTIME_UID_COUNT       65536u
#define RUNTIME_SLOTS_MAX       16384u
#define RUNTIME_SOCKETS_MAX     PRIVSEP_MAX_FDS
#define RUNTIME_AGENT_BYTES_MAX (64 * 1024 * 1024)
#define RUNTIME_DUMP_MS         90000u /* longer than cay-checkpoint takes */

/* Where things are below the state directory:
 *   disk/                      the state disk (btrfs, nosuid, nodev), or a plain directory
 *   disk/templates/<n>/rootfs  a template's tree, disk ids 0..65535
 *   disk/templates/<n>/usrmask optional: then the host's /usr, with this layer on top of it (opaque
 *                              directories hide what must not be seen), is mounted at /usr
 *   disk/layers/<slot>.<gen>   a writable layer (a subvolume)
 *   disk/kept/<n>              one whose sandbox has ended, which is kept by number
 *   disk/volumes/<n>           a volume (a subvolume): its files in `root`, the kernel's own in
 *                              `root.work`
 *   disk/sysview/<sum>         what sandboxes see at /sys (sysfs_stub.h)
 *   disk/inodes                empty: the numbers of templates' inodes begin with its own
 *                              (job/inodes.h)
 *   disk/spare/<any>           one with nothing of a tenant, to be used again (recycled_layer.h)
 *   disk.img                   the loop image, where the host's file system is not usable
 *   stage/                     an empty directory: where set-up code of a sandbox puts its first
 * mount */
#define RUNTIME_DISK_DIR      "disk"
#define RUNTIME_TEMPLATES_DIR "templates"
#define RUNTIME_LAYERS_DIR    "layers"
#define RUNTIME_MAKING_DIR    "making"
#define RUNTIME_RECYCLED_DIR  "spare"
#define RUNTIME_KEPT_DIR      "kept"
#define RUNTIME_VOLUMES_DIR   "volumes"
#define RUNTIME_DISK_IMAGE    "disk.img"
#define RUNTIME_STAGE_DIR     "stage"

struct runtime;

enum runtime_disk { RUNTIME_DISK_AUTO, RUNTIME_DISK_BTRFS, RUNTIME_DISK_MEMORY };

struct runtime_config {
    const char *state_dir;  /* absolute, root:root 0700, no component owned by another user */
    const char *agent_path; /* the cay-init binary; read once, run from a sealed copy */
    /* cay-checkpoint and cay-seal, which are executed from there; the caller's, as long as the
     * runtime is open. NULL: memory cannot be dumped */
    const char *checkpoint_path, *seal_path;
    const char *exchange_key; /* likewise: the operator's file; NULL: there is none */
    /* of directories of the host, by the number of PRIVSEP_MOUNT_HOST_DIR less 1; -1: none; the
     * caller's, as long as the runtime is open. NULL: there are none */
    const int *host_dir_fds;
    const char *cgroup_name; /* "cay": one directory of this name in each hierarchy */
    enum runtime_disk disk;
    uint64_t disk_bytes; /* size of a loop image that has to be made (sparse) */
    /* a layer whose inodes have come to higher numbers is not used again; 0: whatever they are */
    uint32_t layer_inodes;
    uint32_t slots_max; /* <= RUNTIME_SLOTS_MAX */
    uint32_t uid_base; /* first host uid of slot 0; a multiple of RUNTIME_UID_COUNT; 0: the default.
                          * Two servers on one host need ranges and cgroup names of their own */
};

/* Finds out what the machine has, opens (makes, mounts) the state disk, makes the cgroup
 * directories, reads the agent, builds the seccomp program. Blocks (up to seconds when a disk image
 * is made): only at start. Logs what was chosen and why. 0 or -errno after logging the reason. */
int runtime_open(const struct runtime_config *config, struct runtime **out) WARN_UNUSED;

/* Forgets, and ends nothing: sandboxes live on, the disk stays mounted in this mount namespace. */
void runtime_close(struct runtime *rt);

/* After the last sandbox: unmounts the disk, gives the loop device back, removes cgroup
 * directories. */
int runtime_shutdown(struct runtime *rt);

/* Reads the agent's binary again (after an upgrade); running ones keep the old. 0 or -errno. */
int runtime_reload_agent(struct runtime *rt);

const char *runtime_disk_name(const struct runtime *rt); /* "btrfs", "memory" */
int runtime_disk_space(const struct runtime *rt, uint64_t *total_bytes, uint64_t *free_bytes);

/* Whether writing to the state disk fails for all: -EROFS, -ENOSPC, or 0. */
int runtime_disk_trouble(const struct runtime *rt);

/* Directory descriptor of disk/templates, owned by rt. */
int runtime_templates_fd(const struct runtime *rt);

/* Whether layers can outlive their slots here: not where they are in memory. */
bool runtime_can_keep(const struct runtime *rt);

/* Whether there is a kept layer of that number. */
bool runtime_is_kept(const struct runtime *rt, uint32_t number);

/* Whether memory lies beside it, as far as its name tells: the file's contents are not read. */
bool runtime_has_memory(const struct runtime *rt, uint32_t number);

/* Removes a kept layer, and the rest of the copies that were made ahead of it: in a task, or (at a
 * start) at once. A layer that is not there is success. records_fd is made durable first. 0,
 * -EAGAIN (finish), -errno. */
int runtime_drop_begin(struct runtime *rt, uint32_t number, uint32_t ahead, int records_fd,
                       struct task *out);
int runtime_drop_finish(struct task *t);
int runtime_drop(const struct runtime *rt, uint32_t number, uint32_t ahead);

/* The layer that a job made of a kept one (JOB_ARCHIVE) is signed and becomes that one, of which
 * nothing is in use: in a task. It is on the disk when finish answers 0; after a failure the layer
 * is as it was, or has become that one: is_archived tells. undo: what a job made goes, as long as
 * it has not become the layer; all: at a start. 0, -EAGAIN (finish), -errno. */
int runtime_archive_begin(struct runtime *rt, uint32_t number, int records_fd, struct task *out);
int runtime_archive_finish(struct task *t, char why[static TASK_WHY_SIZE]);
int runtime_archive_undo(const struct runtime *rt, uint32_t number);
void runtime_archive_undo_all(struct runtime *rt);

/* At a start: copies that were made ahead of creates, which did not outlive privd. */
void runtime_copies_undo_all(struct runtime *rt);

/* EXPORT and IMPORT (contract/exchange.h), what a job has left in ARCHIVING_DIR: in a task. export:
 * header has what cayd says of the snapshot; out_fds are of the signed file, to be read, which has
 * no name any more. import: where the MACs of the copy are right the layer is made whole, and is
 * number's when finish answers 0. Undone as an archive is. 0, -EAGAIN (finish), -errno and why. */
struct exchange_header;
int runtime_export_begin(struct runtime *rt, uint32_t template_number,
                         const struct exchange_header *header, struct task *out);
int runtime_export_finish(struct task *t, int out_fds[static PRIVSEP_EXPORT_FDS],
                          char why[static TASK_WHY_SIZE]);
int runtime_import_begin(struct runtime *rt, uint32_t number, uint32_t template_number,
                         int records_fd, struct task *out);
int runtime_import_finish(struct task *t, char why[static TASK_WHY_SIZE]);

/* Numbers of the host's loop devices that sandboxes on archives take: each has one. */
#define RUNTIME_ARCHIVE_DEVICES_MAX 256u

/* Whether the kept layer of that number has an archive. */
bool runtime_is_archived(const struct runtime *rt, uint32_t number);

/* Whether it has one whose contents are in the bucket: nothing can start on it. */
bool runtime_is_away(const struct runtime *rt, uint32_t number);

/* Whether there is a volume of that number. */
bool runtime_is_volume(const struct runtime *rt, uint32_t number);

/* Makes an empty volume that can hold so much, or removes one: in a task, or (at a start) at once.
 * A volume that is not there counts as removed. records_fd is made durable first, and the volume is
 * on the disk when finish answers 0. 0, -EAGAIN (finish), -errno; after a failure to make it
 * nothing is left of it. */
int runtime_volume_make_begin(struct runtime *rt, uint32_t number, uint64_t bytes, int records_fd,
                              struct task *out);
int runtime_volume_remove_begin(struct runtime *rt, uint32_t number, int records_fd,
                                struct task *out);
int runtime_volume_finish(struct task *t);
int runtime_volume_remove(const struct runtime *rt, uint32_t number);

/* First host uid (and gid) of a slot's range of RUNTIME_UID_COUNT. */
uint32_t runtime_slot_uid(const struct runtime *rt, uint32_t slot);

/* A pooled slot. The holder owns the descriptors; -1 where there is none. */
struct runtime_slot {
    uint32_t number, gen;
    int userns_fd, netns_fd;
};

#define RUNTIME_SLOT_NONE ((struct runtime_slot){.userns_fd = -1, .netns_fd = -1})

/* The end of a slot's use, and the result of its removal. */
struct runtime_end {
    uint32_t number, gen;
    int status; /* 0, or -errno: -EBUSY when a process still lives in it (try again later) */
    /* not 0: the layer gets this number (RUNTIME_KEPT_DIR) instead of being removed */
    uint32_t keep;
    int records_fd; /* with keep: made durable (fdatasync) before the disk changes */
    /* with keep: a start was to take the layer from that number; where the number has it still, the
     * slot's own is removed */
    bool taken;
    bool drop_image; /* with keep: a memory image in the layer is not whole, and removed */
    bool sync;       /* it wrote to a volume: what it wrote is on the disk when this is done */
};

#define RUNTIME_ENDS_MAX 32u /* at a time */

/* Whose memory a dump is, and of which files: an image is restored for the same alone. */
struct runtime_image {
    uint8_t owner[PRIVSEP_OWNER_SIZE];
    uint32_t template_number;
    int64_t template_made_ms;
    uint64_t memory_bytes; /* the sandbox's limit: an image has no more */
};

/* The files of an image in memory, which can only be read, and the sealed file that they are of.
 * Memory of a tenant's: nothing but a restore of that image gets the descriptor. */
struct runtime_opened {
    int fd; /* -1: none */
    uint64_t inode, bytes, changed_ns;
    uint64_t held_bytes; /* of memory */
    uint64_t agent;      /* inode of the server's cay-init, where its own is the same; or 0 */
};

#define RUNTIME_OPENED_NONE ((struct runtime_opened){.fd = -1})

struct runtime_start {
    uint32_t template_number;
    uint32_t flags; /* 0 */
    /* not 0: the layer is the kept one of this number, which it takes; whole starts only, but for
     * copies without memory */
    uint32_t kept;
    bool copy;      /* with kept: the layer is a copy of that one, which stays */
    bool last;      /* with copy: which need not stay: it may be moved */
    uint32_t ahead; /* with copy: so many were made for such starts, by copy_settle_begin */
    /* with kept: programs are restored from the memory that was kept with it; NULL: it boots */
    const struct runtime_image *image;
    /* with image: as join_fds of dump_begin, while the image is opened */
    const int *image_join_fds;
    int n_image_join_fds;
    struct runtime_opened opened; /* with image: by an earlier start on that number; the caller's */
    int records_fd;               /* with kept: as of runtime_end */
    struct privsep_limits limits;
    struct privsep_mount volumes[PRIVSEP_CREATE_VOLUMES]; /* whole starts only */
    uint64_t volume_bytes[PRIVSEP_CREATE_VOLUMES];        /* of each its size; 0: not known */
};

struct runtime_claim {
    char id[PRIVSEP_ID_SIZE]; /* becomes the host name */
    uint8_t key[PRIVSEP_KEY_SIZE];
};

/* A sandbox, or a command sandbox in one, that has been started. */
struct runtime_sandbox {
    uint32_t slot, gen;
    int pidfd; /* of its PID 1 (the command sandbox's); -1: none is held */
};

struct runtime_started {
    pid_t pid; /* PID 1 of the sandbox, in the caller's pid namespace; a child of the caller */
    int pidfd;
    int listener_fd;              /* of the filters of one that was restored: as pin's; else -1 */
    struct runtime_opened opened; /* of a copy that was restored: what a start on that number may
                                   * be given; the caller's */
};

/* How a process that has ended came to its end: fills the fields of waitid(2). */
struct runtime_exit {
    int code;   /* CLD_EXITED, CLD_KILLED, CLD_DUMPED; 0 when unknown */
    int status; /* exit code or signal */
};

struct runtime_stat {
    uint64_t memory_used_bytes, memory_limit_bytes, memory_cache_bytes;
    uint64_t cpu_used_us;
    uint64_t disk_used_bytes, disk_limit_bytes;
    uint32_t pids_used, pad;
};

/* The use of the resource that kept a sandbox from getting less of it. */
struct runtime_resized {
    uint32_t uses; /* enum privsep_uses */
    uint64_t used_bytes;
};

/* A row per enum privsep_level: everything that is done to a sandbox of that level. Every row has
 * every function (level.c does not compile without a new one, test_runtime.c finds one that was
 * left out). A level that this build or machine does not have has rows that refuse (absent.c):
 * -EOPNOTSUPP, and probe says why. */
struct runtime_driver {
    const char *name;

    /* 0, or -errno and why not, as a sentence. Blocks up to milliseconds: at start only. A row
     * whose probe refuses is never used further. */
    int (*probe)(struct runtime *rt, char *why, size_t why_size);

    /* -- making and starting ------------------------------------------------------------------- */

    /* Makes slot {number, gen}, whose remainders must have been ended before. */
    int (*slot_begin)(struct runtime *rt, uint32_t number, uint32_t gen, struct task *out);
    /* 0, -EAGAIN, or -errno with *stage; after a failure nothing is left of it. */
    int (*slot_finish)(struct runtime *rt, struct task *t, struct runtime_slot *out,
                       uint32_t *stage);
    /* Closes the descriptors, which ends the namespaces. The layer and cgroups go with
     * end_begin. */
    void (*slot_close)(struct runtime_slot *s);

    /* Starts cay-init in the slot; one that has no descriptors yet is made by the same task, which
     * is cheaper than both one after the other. *boot_fd (non-blocking, owned by the caller) is the
     * starter's end of the boot socket: struct agent_boot has been or will be written by the task.
     * Once claim has said whose it is, the caller reads AGENT_READY or AGENT_FAILED and its
     * sentence from it; end of file without either: it died. It ends by itself when boot_fd is
     * closed unclaimed. The slot's descriptors may be closed as soon as start_finish has not
     * answered -EAGAIN. */
    int (*start_begin)(struct runtime *rt, const struct runtime_slot *slot,
                       const struct runtime_start *start, struct task *out, int *boot_fd);
    /* 0, -EAGAIN, or -errno with *stage; after a failure no process is left, the caller still runs
     * end_begin for the layer and cgroups. */
    int (*start_finish)(struct runtime *rt, struct task *t, struct runtime_started *out,
                        uint32_t *stage);

    /* Gives a cay-init that waits to be claimed kept files in place of its slot's layer, which
     * nothing of a tenant was in: start's kept, copy, last, ahead and limits, its template the one
     * that it was started with; nothing else of start is used. pid: of sb's PID 1, a child of the
     * caller. In a task. */
    int (*files_begin)(struct runtime *rt, const struct runtime_sandbox *sb, pid_t pid,
                       const struct runtime_start *start, struct task *out);
    /* 0, -EAGAIN, or -errno with *stage: the sandbox can only be ended then. */
    int (*files_finish)(struct runtime *rt, struct task *t, uint32_t *stage);

    /* Gives what start_finish or command_sandbox_finish made its id and key: cay-init goes on to
     * its ready byte. Nothing of a tenant runs in it before. Inline, microseconds; aborts like
     * sockets. 0 or -errno. */
    int (*claim)(const struct runtime *rt, const struct runtime_sandbox *sb, int boot_fd,
                 const struct runtime_claim *claim);

    /* -- while it runs ------------------------------------------------------------------------- */

    /* n unconnected, non-blocking, close-on-exec TCP sockets inside its network namespace (7 µs
     * each). All or none. 0 or -errno (-ESRCH: it has ended). The calling process ends up in its
     * own namespace again; should that fail it aborts, as it would otherwise serve from the wrong
     * one. */
    int (*sockets)(const struct runtime *rt, const struct runtime_sandbox *sb, int *fds,
                   unsigned n);

    /* The sockets that cay-egress listens on inside its network namespace, both non-blocking, on
     * [::] for both families: a TCP listener on EGRESS_TCP_PORT and a UDP socket on EGRESS_UDP_PORT
     * that tells where each datagram was sent to. 0 or -errno (-EADDRINUSE: a process inside has
     * the port); aborts like sockets. About 25 µs. */
    int (*listeners)(const struct runtime *rt, const struct runtime_sandbox *sb,
                     int fds[PRIVSEP_EGRESS_FDS]);

    /* Numbers of a running sandbox. A number that cannot be read is 0. 0 or -errno. */
    int (*stat)(const struct runtime *rt, const struct runtime_sandbox *sb,
                struct runtime_stat *out);

    /* Other memory, disk and processor limits than those that it has; what else is in them is not
     * looked at. back: it has of each any of both, after one that was cut off, and gets those of
     * from, whatever its files use. */
    int (*resize_begin)(struct runtime *rt, const struct runtime_sandbox *sb,
                        const struct privsep_limits *from, const struct privsep_limits *to,
                        bool back, struct task *out);
    /* 0: they hold. -EAGAIN; -EBUSY: it uses more, and *out says of what; -EOPNOTSUPP: a disk that
     * is in memory has the size that it has; -errno. After a failure it has those of before; after
     * -ENOTRECOVERABLE or -ECHILD it has of each any of both. */
    int (*resize_finish)(struct runtime *rt, struct task *t, struct runtime_resized *out);

    /* Stops every process of the sandbox, PID 1 and command sandboxes included, until thaw. Inline,
     * microseconds: freeze asks for it, is_frozen tells when it is complete. 0 or -errno. */
    int (*freeze)(const struct runtime *rt, const struct runtime_sandbox *sb);
    bool (*is_frozen)(const struct runtime *rt, const struct runtime_sandbox *sb);
    int (*thaw)(const struct runtime *rt, const struct runtime_sandbox *sb);
    /* How many processes live in it, PID 1 included; a killed one that stands still, and so has not
     * ended yet, is none of them. Inline, some ten microseconds for each. -errno. */
    int (*living)(const struct runtime *rt, const struct runtime_sandbox *sb);
    /* Tells its agent that it goes on after a pause; called before thaw, so that it is the first
     * that the agent does then. Inline. */
    void (*notify_resumed)(const struct runtime_sandbox *sb);

    /* Writes its processes into its layer, sealed, and ends them when that is done. The task begins
     * by writing "0" into each of join_fds, which moves it and all that it starts into a control
     * group of the caller's. The sandbox's cay-init has to be prepared. Seconds; the caller ends
     * one that takes longer than RUNTIME_DUMP_MS. */
    int (*dump_begin)(struct runtime *rt, const struct runtime_sandbox *sb,
                      const struct runtime_image *image, const int *join_fds, int n_join_fds,
                      struct task *out);
    /* 0: its memory is on the disk, and none of its processes is left. -EAGAIN; -ETIMEDOUT,
     * -ECHILD, or after the task was ended: it cannot go on; -errno, and why: it goes on. */
    int (*dump_finish)(struct runtime *rt, struct task *t, char why[static TASK_WHY_SIZE]);

    /* -- its end ------------------------------------------------------------------------------- */

    /* Kills every process of the sandbox: SIGKILL to PID 1 (the kernel ends the rest of its pid
     * namespace), then thaws, so that a frozen one dies too. Inline, microseconds. Without a pidfd:
     * cgroup only. */
    int (*kill)(const struct runtime *rt, const struct runtime_sandbox *sb);

    /* How many programs of the kernel's BPF machine are freed with a sandbox of these limits and
     * that many command sandboxes (limits NULL: with the command sandbox alone): what kills are
     * paced by (privd/pace.h). */
    uint32_t (*kill_cost)(const struct privsep_limits *limits, uint32_t command_sandboxes);

    /* A descriptor that holds those programs of one cay-init, a sandbox's or a command sandbox's
     * that has just been started, so that its end does not free them. Inline, microseconds. -errno:
     * there is none (-EOPNOTSUPP at some levels). */
    int (*pin)(const struct runtime_sandbox *sb);

    /* Does not block. 0; -EAGAIN: still alive; -ECHILD: ended, but it is not a child of this
     * process (status unknown). */
    int (*reap)(const struct runtime_sandbox *sb, struct runtime_exit *out);

    /* Whether the memory limit killed something in it (then a SIGKILL of PID 1 is
     * PRIVSEP_CAUSE_OOM). Call before end_begin. */
    bool (*was_oom)(const struct runtime *rt, const struct runtime_sandbox *sb);

    /* Copies its files, whose processes stand still, to a kept number (runtime_can_keep): in a
     * task. They are on the disk when copy_finish answers 0. settle, which the sandbox need not
     * stand still for, nor be there any more: records_fd is made durable, and the copy fit to be
     * started from; or, where `ahead` is not 0, so many copies of it are made for starts that
     * follow, as `ahead` of theirs says. 0, -EAGAIN (finish), -errno. */
    int (*copy_begin)(struct runtime *rt, const struct runtime_sandbox *sb, uint32_t number,
                      struct task *out);
    int (*copy_settle_begin)(struct runtime *rt, uint32_t number, uint32_t ahead, int records_fd,
                             struct task *out);
    int (*copy_finish)(struct task *t);

    /* Removes what 1..RUNTIME_ENDS_MAX slots have outside their processes, pooled or used: cgroups,
     * writable layers. Only after their processes ended. Idempotent: success where it is not
     * there. */
    int (*end_begin)(struct runtime *rt, const struct runtime_end *ends, unsigned n,
                     struct task *out);
    /* 0 and the status of each, -EAGAIN, or -errno (nothing is known of any then). */
    int (*end_finish)(struct runtime *rt, struct task *t, struct runtime_end *ends, unsigned n);

    /* -- command sandboxes --------------------------------------------------------------------- */

    /* Makes a command sandbox in a running sandbox: network namespace with rules, pid, mount and
     * IPC namespace of its own, else the sandbox's; a cay-init of its own is PID 1 there, and waits
     * for claim on *boot_fd as a sandbox's does. Its processes are the sandbox's, in its control
     * groups, and end with it; killing that PID 1 ends the command sandbox alone. Nothing of it is
     * on disk. claim, sockets, listeners and reap take it with its own pidfd. */
    int (*command_sandbox_begin)(struct runtime *rt, const struct runtime_sandbox *sb,
                                 uint32_t open_files, struct task *out, int *boot_fd);
    /* As start_finish; after a failure nothing is left of it. */
    int (*command_sandbox_finish)(struct runtime *rt, struct task *t, struct runtime_started *out,
                                  uint32_t *stage);
    int (*command_sandbox_kill)(const struct runtime_sandbox *command_sandbox);

    /* After a restart: kills the command sandbox of a sandbox that was taken over; no user of them
     * is left. How many those were. */
    uint32_t (*command_sandboxes_kill)(const struct runtime *rt, uint32_t slot);

    /* Kills what was begun for command sandboxes of a sandbox and is no cay-init yet, tasks
     * included: a task that is killed can leave processes that a tenant stopped. About 0.1 ms. */
    void (*command_sandboxes_kill_unfinished)(const struct runtime *rt, uint32_t slot);

    /* -- programs ------------------------------------------------------------------------------ */

    /* For the watcher of locks (privd/locks.h), a process that holds no descriptor of the sandbox:
     * it names a sandbox by its slot, and each of these checks what a pid is once it is held. */

    /* Up to max pids of the processes in which the tenant's programs run, as this process sees
     * them. How many, or -errno. */
    int (*program_pids)(const struct runtime *rt, uint32_t slot, pid_t *pids, int max);

    /* Sends a signal to one of them. 0; -ESRCH: it is none of them. */
    int (*program_signal)(const struct runtime *rt, uint32_t slot, pid_t pid, int signal);

    /* Tells the sandbox's cay-init that a program was killed for the locks that it held. */
    void (*notify_locks)(const struct runtime *rt, uint32_t slot);

    /* -- after a restart ----------------------------------------------------------------------- */

    /* Takes over PID 1 of a slot by its recorded pid. Checks that the process is in the slot's
     * cgroup and is PID 1 of a pid namespace of its own, and owned by the slot's user namespace, so
     * that a recycled pid is never taken. 0 and *pidfd, or -ESRCH. */
    int (*adopt)(const struct runtime *rt, uint32_t slot, pid_t pid, int *pidfd);
};

/* The row of a level; NULL for a number that is no level. */
const struct runtime_driver *runtime_driver(uint32_t level);

/* After a restart: the sandboxes that are there. Calls found() once per slot that has a cgroup with
 * processes in it (pid = one of them that is PID 1 of its own pid namespace, else 0) or remainders
 * (gen as in the layer's name, 0 where there is only a cgroup). Blocks as long as reading the
 * directories takes. */
struct runtime_found {
    uint32_t slot, gen;
    bool has_layer, has_cgroup;
    pid_t pid;
};
int runtime_scan(const struct runtime *rt, void (*found)(void *arg, const struct runtime_found *f),
                 void *arg);
