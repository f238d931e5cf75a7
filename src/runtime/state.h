#pragma once
/* The one struct of the runtime, opened and closed by runtime.c, and the numbers that its files
 * agree on. Private to the runtime. */

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
    int state_fd;               /* the state directory */
    int stage_fd;               /* its empty directory for the first mount of a sandbox */
    const int *host_dir_fds;    /* of runtime_config */
    int agent_fd;               /* sealed memfd with cay-init, execute-only */
    int own_uts_fd, own_net_fd; /* privd's own namespaces: the way back from a sandbox's */
    char *agent_path;
    const char *checkpoint_path, *seal_path, *exchange_key; /* of runtime_config */
    struct cgroup *cgroups;
    struct filter filter, asking_filter; /* the second: of sandboxes with limits.filters */
    struct disk disk;
    uint32_t slots_max;
    uint32_t uid_base;
    uint32_t cpus; /* that may ever be there */
};

/* Resources that PID 1 may use beyond the sandbox's limits, so that it goes on answering. */
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
