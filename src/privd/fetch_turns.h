#pragma once
/* Whose archive is fetched from the bucket next (bucket.h). Accounts have their turns one after the
 * other: one that asks while it has nothing waiting comes after all that wait, and one that had its
 * turn goes behind them. Of one account the request that came first comes first. An account has its
 * share of the places (base/share.h), so that one that has many archives leaves a place for
 * others. Pure. */

#include "contract/proto.h"

#include <stdint.h>

#define FETCHES_MAX 3u /* at a time: two of one account, and one of another */

enum fetch_state { FETCH_NONE, FETCH_WAITS, FETCH_RUNS };

struct fetch_turns {
    struct {
        uint64_t turn, asked;
        uint32_t account;
        enum fetch_state state;
    } all[PRIVSEP_KEPT_MAX + 1];   /* by number */
    uint32_t running[FETCHES_MAX]; /* numbers; 0: this place is free */
    uint64_t count;
};

/* The number has no fetch. */
void fetch_turns_add(struct fetch_turns *t, uint32_t number, uint32_t account);

/* The number whose turn it is; 0: there is none, or no place for it. */
uint32_t fetch_turns_next(const struct fetch_turns *t);

/* It was the next. */
void fetch_turns_begin(struct fetch_turns *t, uint32_t number);

/* Whether it ran, waits or is none. */
void fetch_turns_end(struct fetch_turns *t, uint32_t number);
