#pragma once
/* Shared by the files of cgroup.h. */

#include "sys/cgroup.h"

#include <stdint.h>

/* The controllers that cay uses, and whether each needs leaves: the freezer and the processor
 * accounting act on the whole sandbox, so that there is one directory less to make and remove. */
enum controller { MEMORY, PIDS, CPU, CPUACCT, FREEZER, CONTROLLERS };

struct hierarchy {
    int fd;       /* the `name` directory in it */
    int mount_fd; /* its mount */
    bool leaves;
};

struct cgroup {
    bool v2;
    char name[64];
    int count;
    struct hierarchy h[CONTROLLERS];
    int of[CONTROLLERS]; /* index into h, or -1 */
    /* Bit k: the name spare.k is taken, as far as the tasks know, which share this page with the
     * process that opened it; NULL in version 2. A bit is where to look: rename(2) decides. */
    _Atomic uint64_t *spares;
};

#define PATH_SIZE 64

/* mkdirat(2); one that is there already is as good. 0 or -errno. */
int cgroup_make_dir(int dir_fd, const char *path) WARN_UNUSED;

/* In version 2 a controller has to be handed down at every level above the one that uses it. 0 or
 * -errno. */
int cgroup_delegate(int dir_fd) WARN_UNUSED;

/* Version 1 only: the directories of a slot in which nothing runs any more, and which nothing can
 * be seen of in another's use, are kept under another name, to be a slot's again.
 *
 * Making and removing them is the largest part of what a sandbox costs the kernel where there are
 * or were many: each memory group has a table of all file systems of the machine, which is
 * allocated, walked when the group goes, and freed (alloc_shrinker_info,
 * reparent_shrinker_deferred).
 *
 * State of a group between two uses, and why none of a sandbox's is left: no process is in it
 * (pids.current of the whole is 0, dead ones that are not yet reaped included; each is in the same
 * slot of every hierarchy). Every limit that cay sets is set again, and a processor quota, which is
 * not always, refuses. The processor time counted is set to 0; it is thawed. Charges of memory for
 * pages and kernel objects that outlive the processes stay, but at most SPARE_CHARGE_MAX, or it is
 * not kept: a number by which the next sandbox's use of memory reads higher, and what it can have
 * is lower. Counts of events (failcnt, max_usage, memory.stat) go on; only the host can read them,
 * and cay reads one, of processes killed for memory: a group with one is not kept. Test: unit
 * cgroup_spare. */

#define CGROUP_SPARES    64u /* a bit each */
#define SPARE_CHARGE_MAX (512u << 10)

/* Finds those that are there. Version 2: nothing. 0 or -errno. close is safe after a failure. */
int cgroup_spare_open(struct cgroup *cg) WARN_UNUSED;
void cgroup_spare_close(struct cgroup *cg);

/* 0; -errno: they are not kept (-EBUSY: a process is there), and still the slot's, or in parts. */
int cgroup_spare_put(const struct cgroup *cg, uint32_t slot) WARN_UNUSED;

/* 0: the slot has all its directories. -ENOENT: there are none that are kept. */
int cgroup_spare_take(const struct cgroup *cg, uint32_t slot) WARN_UNUSED;

void cgroup_spare_remove_all(const struct cgroup *cg);
