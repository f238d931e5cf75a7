#pragma once
/* Copies of the listeners of sandboxes' and command sandboxes' system call filters, held so that
 * the end of a process does not free its filters.
 *
 * A listener's file holds the filter that it belongs to and all before it (struct seccomp_filter,
 * refs; Linux kernel/seccomp.c), so both programs of a cay-init. Processes that privd ends take
 * turns before they are killed (pace.h); one that ends without it (root inside kills the cay-init
 * of a command sandbox, memory is out, cay-init itself fails) leaves its filters to privd, which
 * lets go of them in turn.
 *
 * The copy is taken when the start of a cay-init is reported, before anything of a tenant runs in
 * it: so its descriptor is what the set-up code placed there, and closing it does not wait. A
 * sandbox that is taken over from an earlier privd has none. A copy is never read. */

#include "runtime/runtime.h"

#include <stdbool.h>
#include <stdint.h>

struct privd;
struct slot;

/* Descriptors left for everything else than what each sandbox has. */
#define PINS_RESERVE 4096u

/* -1: there is none, as the process has ended, or descriptors are for sandboxes (a pidfd each)
 * first. The caller owns it until pins_drop. */
int pins_take(struct privd *p, const struct runtime_driver *driver,
              const struct runtime_sandbox *sb);

/* The same of a slot in which a cay-init has been started: s->pin. */
void pins_take_slot(struct slot *s);

/* Likewise, of one that was restored: with that copy, which becomes its own. */
void pins_take_fd(struct slot *s, int fd);

/* *fd, which becomes -1, is closed: at once when its programs had their turn (paid), else in turn.
 * Without one, programs freed out of turn are counted, so that the next to be freed waits for it.
 * programs: how many there are. */
void pins_drop(struct privd *p, int *fd, uint32_t programs, bool paid);
