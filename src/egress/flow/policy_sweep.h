#pragma once
/* A changed policy, open connections and requests. New rules count at once for whatever is worked
 * on next (flow_settle). A sweep asks about all the rest, idle or not, and cuts what the rules do
 * not allow any more: the caller who changed the policy is told that it is in force when the sweep
 * is over, so that no connection carries a byte from then on that the policy refuses.
 *
 * A sandbox may have thousands of connections and requests, and its policy thousands of names: a
 * sweep asks in slices, one of one sandbox in a turn of the loop, in its owner's share of the time
 * (turns.h). An owner who uses all of its share otherwise does not stop it: one question is asked
 * in each turn, and POLICY_SWEEP_LATE of them once it has had POLICY_SWEEP_LATE_TURNS. A policy
 * that changes again during it begins it anew; the callers of the first one wait for that.
 *
 * Requests that wait for a credential are looked at by sweeps too: with the policy that brings it,
 * and each second while there are such, since their time runs out (oauth.h). */

#include <stdbool.h>

struct egress;
struct policy_sweeps;
struct sandbox;

#define POLICY_SWEEP_DELAY_MS   1000u
#define POLICY_SWEEP_LATE       8u /* questions in a turn */
#define POLICY_SWEEP_LATE_TURNS 1000u

/* The sweeps of a loop. */
int policy_sweeps_new(struct egress *eg, struct policy_sweeps **out);

/* After the last sandbox has ended. Freed when the loop has turned. */
void policy_sweeps_free(struct policy_sweeps *all);

/* s, no command sandbox, has new rules, and its command sandboxes with it. The first slice is done
 * before it returns, which is all of it as a rule. */
void policy_sweep_start(struct sandbox *s);

/* In POLICY_SWEEP_DELAY_MS, once: requests that wait for a credential in s (or its sandbox) are
 * looked at. */
void policy_sweep_schedule(struct sandbox *s);

struct policy_waiter {
    struct policy_waiter *next;
    void (*done)(struct policy_waiter *w, bool ended); /* once; ended: the sandbox has */
};

/* False: there is none under way, and done is not called. */
bool policy_sweep_await(struct sandbox *s, struct policy_waiter *w);

/* It waits no more, if it did. */
void policy_sweep_leave(struct sandbox *s, struct policy_waiter *w);

/* Before s ends. */
void policy_sweep_end(struct sandbox *s);
