#pragma once
/* System call filters that programs of the sandbox install for themselves, where its owner allows
 * them.
 *
 * Each is memory of a pool that the whole host shares, so cay-init counts them. The sandbox's own
 * filter makes seccomp(SECCOMP_SET_MODE_FILTER) and prctl(PR_SET_SECCOMP) wait for an answer on the
 * listener that only cay-init holds (netlink.h reads it); the answer is to go on, or EPERM:
 *
 *   - at most FILTERS_EACH_MAX of its own for a process, by "Seccomp_filters" in /proc/PID/status;
 *   - a process with several threads has to set them for all (SECCOMP_FILTER_FLAG_TSYNC), and its
 *     first thread has to live: so all threads of a process have the same filters, and one count;
 *   - at most FILTERS_PROCESSES_MAX processes with filters of their own, and agent.filters_max
 *     filters;
 *   - at most FILTERS_PER_SECOND after the first FILTERS_BURST: more wait for their answer.
 *
 * The count never falls short: an allowed filter is added at once, and the sum is only replaced by
 * that of a look at all processes, each with every filter that it has, shared or not, and of
 * filters allowed that cannot be seen yet. A refusal is a line of the sandbox's log. The call
 * cannot change before its answer: operation and flags are in registers of a thread that waits, and
 * answers are given one by one.
 *
 * Nothing waits: files of /proc are read, and calls over the rate are kept, FILTERS_WAITING_MAX at
 * most. */

#include "agent/common/agent.h"

#include <linux/seccomp.h>

#define FILTERS_EACH_MAX      2u
#define FILTERS_PROCESSES_MAX 64u
#define FILTERS_PER_SECOND    50u
#define FILTERS_BURST         100u
#define FILTERS_WAITING_MAX   256u

struct filters;

/* For a->filters_max; before any program of a tenant's is started. Lives as long as the program.
 * NULL: memory is out, or /proc is not there. */
struct filters *filters_new(struct agent *a);

/* A thread waits for the answer of one of the two calls: gives it, or keeps it for later. */
void filters_requested(struct filters *f, const struct seccomp_notif *n);

/* -- the parts that need no kernel ------------------------------------------------------------- */

/* Values of /proc/TID/status. */
struct filters_task {
    pid_t tid, process;
    uint32_t filters, threads;
    bool zombie;
};

/* false: a field is missing. */
bool filters_parse(const char *status, struct filters_task *out);

/* Why a thread may not have one more, as the end of a sentence; NULL: it may, as far as it alone
 * tells. base: filters of cay-init itself, which everything has. */
const char *filters_refusal(const struct filters_task *thread, const struct filters_task *first,
                            uint32_t base, uint32_t flags);
