#pragma once
/* Control groups of sandboxes, version 2 or 1, whichever the machine has its controllers in.
 *
 * Below one directory (`cay`) in each hierarchy that matters, a sandbox has a directory named by
 * its slot number, and in it two leaves: `agent` for PID 1, with a reserve of its own, and `work`
 * for everything it starts, with the sandbox's limits; a fork bomb or a memory hog in `work` does
 * not take PID 1 with it. In version 1 the slot's own directory is the agent's, and a few that are
 * removed are kept to be used again (cgroup_internal.h says what of). Calls are short reads and
 * writes of kernel files (1 to 100 µs each). */

#include "base/util.h"

#include <stdbool.h>
#include <sys/types.h>

/* CGROUP_WHOLE is the slot's directory itself, with all of both. */
enum cgroup_leaf { CGROUP_AGENT, CGROUP_WORK, CGROUP_WHOLE };

#define CGROUP_ATTACH_MAX 4 /* descriptors that it takes to enter a leaf */

struct cgroup;

struct cgroup_limits {
    uint64_t memory_bytes; /* 0: none */
    uint64_t pids;         /* 0: none */
    uint32_t cpu_milli;    /* 0: left as it is, which is none in a new group */
};

struct cgroup_stat {
    uint64_t memory_used_bytes;  /* without page cache */
    uint64_t memory_cache_bytes; /* page cache, tmpfs included */
    uint64_t memory_limit_bytes; /* of the work leaf; 0: none */
    uint64_t cpu_used_us;
    uint32_t pids_used;
};

/* Finds the hierarchies with memory, pids, cpu, cpuacct and freezer, makes directory `name` in each
 * and holds it open. why (may be NULL) gets a sentence on failure. 0, -EOPNOTSUPP (no memory or
 * pids controller), or -errno. */
int cgroup_open(const char *name, struct cgroup **out, char *why, size_t why_size) WARN_UNUSED;
void cgroup_close(struct cgroup *cg);

/* "v1", "v2": where the controllers are. */
const char *cgroup_version(const struct cgroup *cg);

/* Removes the `name` directories themselves; -EBUSY while a sandbox has one. Ignores what is gone.
 */
int cgroup_remove_base(struct cgroup *cg);

/* Makes a slot's directories and leaves, or takes some that were kept; those there already stay. 0
 * or -errno. */
int cgroup_make(const struct cgroup *cg, uint32_t slot) WARN_UNUSED;

int cgroup_limit(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf,
                 const struct cgroup_limits *limits) WARN_UNUSED;

/* The memory and the processor limit alone, of a leaf in use, where they differ from those of
 * before; cpu_milli 0 is none here. Memory that is not free is taken back where that is possible,
 * which may take long. -EBUSY: it holds more than that. */
int cgroup_change(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf,
                  const struct cgroup_limits *from, const struct cgroup_limits *to) WARN_UNUSED;

/* Opens the files (v1 `tasks`, v2 `cgroup.procs`) into which writing "0" moves the writer into the
 * leaf, with permission of the opener. Returns their number (1..CGROUP_ATTACH_MAX) or -errno. */
int cgroup_open_attach(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf,
                       int fds[static CGROUP_ATTACH_MAX]) WARN_UNUSED;

/* The same files of the hierarchies in which a slot has no leaves: 0 or more of them. A process
 * that was moved by all of both kinds is in the slot as after cgroup_enter. */
int cgroup_open_attach_whole(const struct cgroup *cg, uint32_t slot,
                             int fds[static CGROUP_ATTACH_MAX]) WARN_UNUSED;

/* Moves the calling process (single-threaded) into a leaf. 0 or -errno. */
int cgroup_enter(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf) WARN_UNUSED;

/* Another process that has one thread. */
int cgroup_move(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf,
                pid_t pid) WARN_UNUSED;

/* Asks the kernel to freeze or thaw; freezing is complete a little later (cgroup_is_frozen). */
int cgroup_freeze(const struct cgroup *cg, uint32_t slot, bool frozen);
bool cgroup_is_frozen(const struct cgroup *cg, uint32_t slot);

/* SIGKILL to every process in it, and thaws it: a task killed inside a frozen v1 cgroup stays until
 * then. 0 when there is none left to kill. */
int cgroup_kill(const struct cgroup *cg, uint32_t slot);

int cgroup_stat(const struct cgroup *cg, uint32_t slot, struct cgroup_stat *out);

/* How many processes the memory limit killed in a leaf. */
uint64_t cgroup_oom_kills(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf);

/* The file that this number is in, after "oom_kill " at the start of a line, opened for reading
 * alone: its holder reads how many there are by now, and changes nothing. A descriptor or
 * -errno. */
int cgroup_open_oom(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf) WARN_UNUSED;

/* Up to max pids (in the caller's pid namespace) of a leaf. Returns how many, or -errno. */
int cgroup_pids(const struct cgroup *cg, uint32_t slot, enum cgroup_leaf leaf, pid_t *pids,
                int max);

/* Whether no process is in the slot, nor a dead one that was not reaped yet. False also where that
 * cannot be read. */
bool cgroup_is_empty(const struct cgroup *cg, uint32_t slot);

/* Whether pid is in one of the slot's leaves. */
bool cgroup_holds(const struct cgroup *cg, uint32_t slot, pid_t pid);

/* Removes a slot's directories. 0 (also when there are none) or -EBUSY while a process is in them.
 */
int cgroup_remove(const struct cgroup *cg, uint32_t slot);

/* Calls found(arg, slot) for every slot that has a directory. */
int cgroup_scan(const struct cgroup *cg, void (*found)(void *arg, uint32_t slot), void *arg);
