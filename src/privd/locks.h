#pragma once
/* Locks on ranges of files (fcntl F_SETLK, F_OFD_SETLK), which the kernel charges to no control
 * group and does not bound: 200 bytes each (docs/kernel-pools.md).
 *
 * A child of privd watches: the kernel wakes it once in LOCKS_PERIOD calls of a processor, and says
 * who made the last of them. When the kernel's cache of locks has grown by LOCKS_STEP since it was
 * last lowest, the sandboxes that were seen to call most are counted, in /proc/PID/fdinfo of their
 * processes. All processes of one that has more than LOCKS_MAX are stopped while each is counted
 * and those with most are killed until the rest has fewer; then the rest goes on. Locks by
 * descriptors that are under way in sockets are in no such file: where a sandbox has such, the
 * growth by its calls counts, too. A sandbox that does not lock ranges by the thousand is never
 * looked at, and while none does, nothing wakes.
 *
 * The sandbox's cay-init is told by SIGUSR2, and writes a line of its log. */

struct privd;

#define LOCKS_MAX    8192u /* of a sandbox */
#define LOCKS_STEP   8192u
#define LOCKS_PERIOD 2048u

/* Before privd gives up what it takes (confine). 0; a kernel that cannot is logged, and there is no
 * watching. */
int locks_open(struct privd *p);

/* Starts the child, while privd holds little that it would get copies of. It dies with privd, and
 * privd with it. 0 or -errno. */
int locks_start(struct privd *p);

void locks_stop(struct privd *p);
