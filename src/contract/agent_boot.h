#pragma once
/* The input of cay-init at exec, and its reports. Shared by runtime (which starts it) and agent.
 *
 * Descriptor AGENT_BOOT_FD is one end of a SOCK_STREAM pair. The starter has written one struct
 * agent_boot into it; cay-init reads it, sets itself up and listens on 127.0.0.1:AGENT_PORT. Then
 * it waits, perhaps for long, for one struct agent_claim: from there on it has an owner. It writes
 * the sandbox's names, then one byte AGENT_READY, or AGENT_FAILED and a NUL-terminated sentence,
 * and closes it.
 * AGENT_CGROUP_FD_FIRST.. (boot.cgroup_fds of them) are files opened for writing by privd: each new
 * process writes "0" to every one before exec, which moves it from the `agent` leaf into `work`.
 * With cgroup v1 they are `tasks` files: one thread that moves itself takes no global lock in the
 * kernel (cgroup.procs does, and costs milliseconds).
 * AGENT_LISTENER_FD is the system call filter's, for what it leaves to cay-init (agent/netlink.h,
 * agent/filters.h).
 * AGENT_OOM_FD is the file of the `work` leaf in which the kernel counts the processes that it
 * killed at the memory limit (`oom_kill`), opened for reading: so that who asks learns why a
 * command was killed. Absent where boot.oom_fd is 0. */

#include <stdint.h>

#define AGENT_BOOT_FD         3
#define AGENT_CGROUP_FD_FIRST 4
#define AGENT_CGROUP_FDS_MAX  4
#define AGENT_LISTENER_FD \
    8 /* where the filter's questions come in; above the files of control groups */
#define AGENT_OOM_FD       9
#define AGENT_BOOT_VERSION 5
#define AGENT_PORT         49983
#define AGENT_KEY_HEADER   "X-Cay-Agent-Key" /* hex of key: every request from cayd carries it */
#define AGENT_ACCESS_HEADER \
    "X-Cay-Access" /* "user": files with the user's own rights, not with root's */
/* /init's status where a start command must run, and ended; its message says how */
#define AGENT_START_FAILED  424
#define AGENT_READY         'R'
#define AGENT_FAILED        'F'
#define AGENT_NAMES_DIR     "/etc" /* in it the starter has made these files, empty and root's */
#define AGENT_HOSTS_NAME    "hosts"
#define AGENT_HOSTNAME_NAME "hostname"
/* root's too, and not to be written */
#define AGENT_MACHINE_ID_NAME "machine-id"
/* of all hooks of one pause, or resume, together (agent/hooks.h) */
#define AGENT_HOOKS_MS 5000u
/* in it a volume each, by the place that CREATE gave it: 0, 1, .. */
#define AGENT_VOLUMES_DIR "/run/volumes"
#define AGENT_VOLUMES_MAX 4u /* PRIVSEP_CREATE_VOLUMES */
/* cay-init's own uid and gid inside: no user of the sandbox has it */
#define AGENT_UID 65533u

struct agent_boot {
    uint32_t version;
    uint32_t cgroup_fds;
    uint32_t open_files; /* RLIMIT_NOFILE for children */
    uint32_t flags;
    uint64_t child_caps; /* capability bounding set of every process it starts */
    /* not 0: PID 1 of one command's sandbox in a sandbox whose files have all been written */
    uint32_t command_sandbox;
    uint32_t netlink_pass[2]; /* with which it makes netlink sockets (sys/filter_netlink.h) */
    /* how many system call filters its programs may have (agent/filters.h); 0: none */
    uint32_t filters;
    uint32_t oom_fd; /* not 0: AGENT_OOM_FD is there */
    uint32_t unused; /* 0 */
};

struct agent_claim {
    uint8_t key[32];
    char id[32]; /* NUL-terminated; the host name is set already */
};
