#include "privd/pace.h"

#include "base/clock.h"

static void turn(void *pace);

/* The items that were freed since the last look. */
static void drain(struct pace *p, uint64_t now_ms)
{
    uint64_t done = now_ms > p->at_ms ? (now_ms - p->at_ms) * PACE_PER_MS : 0;

    p->level = done >= p->level ? 0 : p->level - (uint32_t)done;
    p->at_ms = MAX(p->at_ms, now_ms);
}

void pace_note(struct pace *p, uint64_t now_ms, uint32_t programs)
{
    drain(p, now_ms);
    p->level = MIN(p->level + programs, PACE_LEVEL_MAX);
}

uint32_t pace_try(struct pace *p, uint64_t now_ms, uint32_t programs)
{
    drain(p, now_ms);
    if (p->level == 0 || p->level + programs <= PACE_BURST) {
        p->level += programs;
        return 0;
    }
    /* Until all before it are done, or until there is room. */
    uint32_t over = programs >= PACE_BURST ? p->level : p->level + programs - PACE_BURST;
    return (over + PACE_PER_MS - 1) / PACE_PER_MS;
}

static void wait_for_turn(struct pace *p, uint32_t in_ms)
{
    loop_arm(p->loop, &p->timer, in_ms, turn, p);
}

static void turn(void *pace)
{
    struct pace *p = pace;

    while (p->first) {
        struct pace_item *i = p->first;
        uint32_t in_ms = pace_try(p, clock_mono_ms(), i->programs);
        const struct pace_item next = *i;

        if (in_ms > 0) {
            wait_for_turn(p, in_ms);
            return;
        }
        pace_cancel(p, i);
        next.go(next.arg); /* may end it, and ask for others */
    }
}

void pace_request(struct pace *p, struct pace_item *i, uint32_t programs, void (*go)(void *arg),
                  void *arg)
{
    if (i->go)
        return;
    uint32_t in_ms = p->first ? 1 : pace_try(p, clock_mono_ms(), programs);
    if (in_ms == 0) {
        go(arg);
        return;
    }
    *i = (struct pace_item){.go = go, .arg = arg, .programs = programs};
    if (p->last)
        p->last->next = i;
    else
        p->first = i;
    p->last = i;
    if (!loop_timer_armed(&p->timer))
        wait_for_turn(p, in_ms);
}

void pace_cancel(struct pace *p, struct pace_item *i)
{
    struct pace_item *before = NULL;

    if (!i->go)
        return;
    for (struct pace_item *at = p->first; at != i; at = at->next)
        before = at;
    if (before)
        before->next = i->next;
    else
        p->first = i->next;
    if (p->last == i)
        p->last = before;
    *i = (struct pace_item){0};
}
