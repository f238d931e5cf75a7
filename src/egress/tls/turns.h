#pragma once
/* Shares the loop's time among sandboxes, so that one that moves as many bytes over as many
 * connections as it may delays another's events by one share, and not by all of its work. There are
 * two rules, of which a flow may be under both.
 *
 * Time: what an owner's (a sandbox's) flows do in one turn of the loop is measured, without the
 * time that other programs had the processor in the middle of it, and beyond TURNS_NS the rest of
 * them is left until another turn: their events come again, since libuv's are level-triggered. Work
 * that cannot be divided (a signature of a TLS handshake) and takes longer is owed, and its owner
 * waits for as many turns as that is worth. Which of them were left is found by rounds: in a round
 * each flow has one event's worth of work. An owner that no other was beside for TURNS_ALONE_NS may
 * use TURNS_LONG_NS: then it is the turns themselves that cost.
 *
 * The owners of one tenant have TURNS_TENANT_NS together in a turn, while another tenant has work:
 * in a round of the tenant's each of them has one turn. The upper half of an owner's number is its
 * tenant's.
 *
 * Bytes: answers that are searched for secrets, or decompressed for it, cost more than a copy. In
 * one turn TURNS_BYTES of them are worked on, whichever flows they belong to; where another owner
 * is beside it is TURNS_BESIDE_BYTES, as that one's request waits for a search in each turn that it
 * takes. A flow that comes when they are used up waits. Those that wait are served by tenant in
 * rotation, those of a tenant by owner likewise, and those of one owner in order of arrival. Flows
 * whose events do not come again (edge-triggered) wait in the same lines.
 *
 * Owners are told apart by hash (stochastic fairness queueing, McKenney 1990): two in one bucket
 * share its time, or its place in the rotation. Nothing is allocated for a flow or an owner. Used
 * by one loop; nothing blocks. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

/* a turn of the loop; what one call does may exceed it once */
#define TURNS_BYTES        (32u * 1024u)
#define TURNS_BESIDE_BYTES (8u * 1024u)
#define TURNS_BUCKETS      64u

#define TURNS_NS        40000u    /* of an owner in a turn; one event's work may exceed it */
#define TURNS_TENANT_NS 160000u   /* of all owners of a tenant, where another tenant is beside */
#define TURNS_LONG_NS   500000u   /* of one that has the loop for itself */
#define TURNS_ALONE_NS  20000000u /* after so much time */
#define TURNS_OWED_NS   2000000u  /* at most, from one turn to the next */
#define TURNS_SHARES    1024u
/* that is moved at a time, where another owner is beside */
#define TURNS_PIECE ((size_t)32 * 1024)

struct turns;

/* Part of what waits; all zero at first, and it outlives its waiting. */
struct turn {
    struct turn *next;
    void (*go)(void *arg); /* once, in a later turn; may wait again */
    void *arg;
    uint64_t owner;
    bool waiting;
};

int turns_new(uv_loop_t *loop, struct turns **out);

/* When nothing waits any more; freed when the loop has turned. NULL is none. */
void turns_free(struct turns *t);

/* Before one event of an owner's flow is worked on. True: it may be, and turns_exit follows in the
 * same call. False: it is to be left as it is, and comes again. *round is the flow's, 0 at first. t
 * NULL: always. Inside of another: true, and that one's. */
bool turns_enter(struct turns *t, uint64_t owner, uint32_t *round);

/* The same for what an event of the flow has left to do: also in the round that it has had its
 * event of, while no flow of its owner is left. */
bool turns_enter_again(struct turns *t, uint64_t owner, uint32_t *round);

/* The same for what does not come again: false, and it has to wait in the owner's line
 * (turns_wait). */
bool turns_enter_once(struct turns *t, uint64_t owner);
void turns_exit(struct turns *t);

/* Has the owner that has entered used its share up? */
bool turns_is_over(const struct turns *t);

/* How many bytes the owner that has entered is to move at a time at most. */
size_t turns_piece(const struct turns *t);

/* For tests: other clocks than uv_hrtime and the thread's own. */
void turns_set_clock(struct turns *t, uint64_t (*now_ns)(void), uint64_t (*cpu_ns)(void));

/* May w's owner go on now? False while w waits. t NULL: there is no limit. */
bool turns_may(const struct turns *t, const struct turn *w);

/* How many bytes are to be searched at a time at most: what a turn has. t NULL: TURNS_BYTES. */
size_t turns_bytes(const struct turns *t);

/* So many bytes were worked on. */
void turns_spend(struct turns *t, size_t n);

/* Calls w->go, as entered, in a turn that has bytes left. */
void turns_wait(struct turns *t, struct turn *w);

/* It waits no more. */
void turns_leave(struct turns *t, struct turn *w);
