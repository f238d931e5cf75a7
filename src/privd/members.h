#pragma once
/* Members of the pool (pool.h): prestarted slots, in which cay-init waits to be told whose it
 * is. */

#include "privd/slots.h"

/* Looks at memory, a second apart, and sets how many there shall be; ends one that is too many. */
void members_aim(struct privd *p);

/* Which row is to have the next member, with so many slots prepared, and none of a template that is
 * worked on; NULL: none. */
struct pool_row *members_row_to_fill(struct privd *p, uint32_t prepared,
                                     bool (*is_worked_on)(const struct privd *p, uint32_t number));

/* Starts cay-init in a slot that is on no list, for that row. Its namespaces are there, or are made
 * by the same task; for a row with memory they are not there. */
void members_start(struct privd *p, struct slot *s, struct pool_row *row);

/* The oldest of a row in which no process was killed, off the list; NULL: it has none. */
struct slot *members_take(struct privd *p, const struct pool_row *row);

/* The oldest of all ends, so that its place is another's. */
void members_give_up_oldest(struct privd *p);

/* Those that stand on that template are given up, because a job works on it. Its rows of the pool
 * stay: slots_refill fills them again when the job has ended. */
void members_discard(struct privd *p, uint32_t template_number);

/* The memory that is that owner's by that number is to go: members that were restored from it are
 * given up, and one that is being restored is when it is made. */
void members_discard_kept(struct privd *p, uint32_t kept,
                          const uint8_t owner[static PRIVSEP_OWNER_SIZE]);

/* PID 1 of one has ended by itself: off the list, and no more of its kind until the next create of
 * it. */
void members_lost(struct privd *p, struct slot *s);
