#pragma once
/* The pool: of which kinds sandboxes are started before they are asked for (members), how many of
 * each, and which creates may have one. Tables and numbers only: slots_make.c makes them and
 * hands them out. Pure functions.
 *
 * A row is a template with the limits that its creates ask for. Each create counts for its row,
 * and what it counts is halved each POOL_HALF_MS. Of the members that there may be, each row gets
 * its share of these counts, rounded down, and at least one from POOL_LEAST creates on; the rest is
 * the busiest row's. Nothing is halved before the next create comes: a server that was not used for
 * a night has what it had in the evening. A kind without a row gets one when there is a free one,
 * or one whose count has fallen below one create. */

#include "base/util.h"
#include "contract/proto.h"

#define POOL_ROWS    PRIVSEP_POOL_ROWS
#define POOL_HALF_MS 30000
#define POOL_LEAST   4 /* creates */
/* Members of one row that are restored from memory: each holds that memory. */
#define POOL_WITH_MEMORY 2u

/* The properties of a sandbox that matter before it has an owner. */
struct slot_kind {
    uint32_t template_number, level;
    /* Of members that are restored from memory: the number that they are copies of, and whose that
     * is, as numbers are used again; 0: of those that are not. */
    uint32_t kept, flags; /* flags: PRIVSEP_CREATE_OF_POOL with kept, else 0 */
    uint8_t owner[PRIVSEP_OWNER_SIZE];
    struct privsep_limits limits;
};

struct pool_row {
    uint32_t id; /* 0: no row. Members of another id than their row's are never handed out */
    struct slot_kind kind;
    uint32_t recent; /* creates, in parts (pool.c) */
    uint32_t target; /* how many members it is to have */
    uint32_t ready, making;
};

/* Of a template, since the start of privd. */
struct pool_counts {
    uint32_t claims;  /* creates that got a member at once */
    uint32_t misses;  /* that might have had one, and there was none */
    uint32_t refills; /* members that were started */
};

struct pool {
    struct pool_row rows[POOL_ROWS];
    uint32_t last_id;
    uint32_t most; /* members of all rows together, as of pool_aim */
    uint64_t halved_ms;
};

/* Whether a member may be given to who asks so: a table of all fields of CREATE says what a member
 * of the right kind takes on; any byte that the table does not name has to be 0. */
bool pool_may_claim(const struct privsep_msg *create);

/* Of a create that may have one. */
struct slot_kind pool_kind(const struct privsep_msg *create);

/* The row of that very kind, or NULL. */
struct pool_row *pool_find(struct pool *p, const struct slot_kind *kind);

/* The row of that id; NULL: it stands for other members by now. */
struct pool_row *pool_row(struct pool *p, uint32_t id);

/* A create asks for a sandbox of that kind. */
void pool_note(struct pool *p, const struct slot_kind *kind, uint64_t now_ms);

/* Sets the targets of all rows: so many members there may be. */
void pool_aim(struct pool *p, uint32_t most);

/* Members of the template are not handed out any more; the rows stay, or go. */
void pool_renew(struct pool *p, uint32_t template_number);
void pool_forget(struct pool *p, uint32_t template_number);

/* Whether it begins with the memory that is that owner's by that number. */
bool pool_is_of(const struct slot_kind *k, uint32_t kept,
                const uint8_t owner[static PRIVSEP_OWNER_SIZE]);

/* There will be no more creates of it. */
void pool_forget_kept(struct pool *p, uint32_t kept,
                      const uint8_t owner[static PRIVSEP_OWNER_SIZE]);

/* The row gets no member before the next create of its kind. */
void pool_rest(struct pool *p, struct pool_row *row);

/* Which row has a member too many, where members have no room left; NULL: none. */
struct pool_row *pool_surplus(struct pool *p);

/* Whether less than a quarter of a row's members are there. */
bool pool_is_low(const struct pool *p);

/* Sum of all targets; of members, ready or being started. */
uint32_t pool_targets(const struct pool *p);
uint32_t pool_members(const struct pool *p);

/* Members that stand and that their rows are to have. */
uint32_t pool_within(const struct pool *p);
