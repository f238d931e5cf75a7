#include "privd/fetch_turns.h"

#include "base/share.h"
#include "base/util.h"

#include <stdbool.h>
#include <stddef.h>

void fetch_turns_add(struct fetch_turns *t, uint32_t number, uint32_t account)
{
    uint64_t turn = t->count + 1;

    for (uint32_t n = 1; n <= PRIVSEP_KEPT_MAX; n++)
        if (t->all[n].state == FETCH_WAITS && t->all[n].account == account)
            turn = t->all[n].turn;
    t->count++;
    t->all[number].turn = turn;
    t->all[number].asked = t->count;
    t->all[number].account = account;
    t->all[number].state = FETCH_WAITS;
}

static bool has_place(const struct fetch_turns *t, uint32_t account)
{
    size_t used = 0, held = 0;

    for (size_t i = 0; i < FETCHES_MAX; i++) {
        used += t->running[i] != 0;
        held += t->running[i] != 0 && t->all[t->running[i]].account == account;
    }
    return share_leaves_space(FETCHES_MAX, used, held);
}

static bool comes_before(const struct fetch_turns *t, uint32_t a, uint32_t b)
{
    if (t->all[a].turn != t->all[b].turn)
        return t->all[a].turn < t->all[b].turn;
    return t->all[a].asked < t->all[b].asked;
}

uint32_t fetch_turns_next(const struct fetch_turns *t)
{
    uint32_t found = 0;

    for (uint32_t n = 1; n <= PRIVSEP_KEPT_MAX; n++)
        if (t->all[n].state == FETCH_WAITS && (!found || comes_before(t, n, found)) &&
            has_place(t, t->all[n].account))
            found = n;
    return found;
}

void fetch_turns_begin(struct fetch_turns *t, uint32_t number)
{
    uint32_t account = t->all[number].account;
    size_t place = 0;

    while (place < FETCHES_MAX - 1 && t->running[place])
        place++;
    t->running[place] = number;
    t->all[number].state = FETCH_RUNS;
    t->count++;
    for (uint32_t n = 1; n <= PRIVSEP_KEPT_MAX; n++)
        if (t->all[n].state == FETCH_WAITS && t->all[n].account == account)
            t->all[n].turn = t->count;
}

void fetch_turns_end(struct fetch_turns *t, uint32_t number)
{
    for (size_t i = 0; i < FETCHES_MAX; i++)
        if (t->running[i] == number)
            t->running[i] = 0;
    t->all[number].state = FETCH_NONE;
}
