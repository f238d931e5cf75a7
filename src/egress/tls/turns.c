#include "egress/tls/turns.h"

#include "base/util.h"

#include <errno.h>
#include <time.h>

/* Of the owners in a bucket, or of the tenants. */
struct share {
    uint64_t turn;  /* the last that it had work in */
    uint64_t ns;    /* which that took so far, with what is owed from turns before */
    uint32_t round; /* a flow with this number has had its part */
    uint32_t lined; /* flows that wait in line */
    bool left;      /* an event was left for want of time, in that turn */
    bool behind;    /* and in the one before: the round goes on for those */
    /* of an owner: the round of its tenant that it has had its part of, in that turn */
    uint32_t part;
    uint64_t part_turn;
    /* of a tenant: when one of its lines was worked on last, and where its rotation is */
    uint64_t picked;
    unsigned at;
};

struct turns {
    uv_prepare_t begin; /* of each turn, before its events */
    uv_idle_t awake;    /* while anything waits: the loop does not sleep */
    size_t left;
    struct turn *first[TURNS_BUCKETS], *last[TURNS_BUCKETS];
    uint64_t busy;  /* buckets with something in them */
    uint64_t picks; /* of lines, so far */
    unsigned handles;
    uint64_t turn; /* counts them */
    uint64_t (*now_ns)(void);
    uint64_t (*cpu_ns)(void); /* the thread's own time of the processor */
    uint64_t cpu_mark_ns;     /* which was that when it was asked for last */
    struct share shares[TURNS_SHARES], tenants[TURNS_SHARES];
    struct share *inside; /* the owner of the work that is being done, or NULL */
    struct share *inside_tenant;
    unsigned depth; /* enters without their exits */
    uint64_t entered_ns;
    const struct share *worked;        /* that had work, */
    uint64_t beside_ns;                /* and when another one had last */
    const struct share *worked_tenant; /* the same of tenants */
    uint64_t tenant_beside_ns;         /* 0: never */
};

_Static_assert(TURNS_BUCKETS == 64, "one bit for each");
_Static_assert(TURNS_SHARES == 1u << 10, "find_share");

/* No limit: a second, which no turn takes. */
#define TURNS_TENANT_ALONE_NS 1000000000u

static unsigned bucket_of(const struct turn *w)
{
    return (unsigned)((w->owner * UINT64_C(0x9e3779b97f4a7c15)) >> 58);
}

/* -- time -------------------------------------------------------------------------------------- */

static uint64_t thread_ns(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct share *find_share(struct turns *t, uint64_t owner)
{
    return &t->shares[(owner * UINT64_C(0x9e3779b97f4a7c15)) >> 54];
}

/* Tenants whose names have one hash are one here. */
static struct share *find_tenant(struct turns *t, uint64_t owner)
{
    return &t->tenants[((owner >> 32) * UINT64_C(0x9e3779b97f4a7c15)) >> 54];
}

static bool is_alone(const struct turns *t, uint64_t now)
{
    return now - t->beside_ns > TURNS_ALONE_NS;
}

static uint64_t most_ns(const struct turns *t, uint64_t now)
{
    return is_alone(t, now) ? TURNS_LONG_NS : TURNS_NS;
}

/* All of a tenant's sandboxes together, where another tenant is beside. */
static uint64_t most_of_tenant_ns(const struct turns *t, uint64_t now)
{
    bool alone = t->tenant_beside_ns == 0 || now - t->tenant_beside_ns > TURNS_ALONE_NS;

    return alone ? TURNS_TENANT_ALONE_NS : TURNS_TENANT_NS;
}

/* The time that it used beyond its share, less a share for each turn since. */
static uint64_t owed_ns(const struct turns *t, const struct share *s, uint64_t most)
{
    uint64_t paid = MIN(t->turn - s->turn, (uint64_t)TURNS_OWED_NS) * most;

    return MIN(s->ns - MIN(s->ns, paid), (uint64_t)TURNS_OWED_NS);
}

/* Its share of this turn. */
static struct share *begin_share(const struct turns *t, struct share *s, uint64_t most)
{
    if (s->turn == t->turn)
        return s;
    s->round +=
        !s->left; /* those that were left come first; with none of them a new round begins */
    s->ns = owed_ns(t, s, most);
    s->turn = t->turn;
    s->behind = s->left;
    s->left = false;
    return s;
}

static struct share *share_of(struct turns *t, uint64_t owner, uint64_t now)
{
    return begin_share(t, find_share(t, owner), most_ns(t, now));
}

static struct share *tenant_of(struct turns *t, uint64_t owner, uint64_t now)
{
    return begin_share(t, find_tenant(t, owner), most_of_tenant_ns(t, now));
}

static void enter(struct turns *t, struct share *s, struct share *tenant, uint64_t now)
{
    if (t->worked != s)
        t->beside_ns = now;
    if (t->worked_tenant && t->worked_tenant != tenant)
        t->tenant_beside_ns = now;
    t->worked = s;
    t->worked_tenant = tenant;
    t->inside = s;
    t->inside_tenant = tenant;
    t->entered_ns = now;
    t->depth = 1;
}

/* A turn within a turn is part of it; without shares there is nothing to wait for. */
static bool is_inside(struct turns *t)
{
    if (!t)
        return true;
    if (t->inside)
        t->depth++;
    return t->inside != NULL;
}

/* The owner's share, and what time it is. NULL: this is inside of a turn, and part of it. */
static struct share *share_outside(struct turns *t, uint64_t owner, uint64_t *now)
{
    if (is_inside(t))
        return NULL;
    *now = t->now_ns();
    return share_of(t, owner, *now);
}

/* Has the owner's tenant time for it? In a round of the tenant's each of its owners has one turn,
 * as each flow has one event in a round of its owner's: or those whose events come first would have
 * all of it. */
static bool has_tenants_time(const struct turns *t, struct share *s, struct share *tenant,
                             uint64_t now)
{
    bool had = s->part == tenant->round && s->part_turn != t->turn;

    tenant->left |= tenant->ns >= most_of_tenant_ns(t, now);
    if (tenant->left || had) {
        s->left = true;
        return false;
    }
    return true;
}

static bool enter_flow(struct turns *t, uint64_t owner, bool again, uint32_t *round)
{
    uint64_t now;
    struct share *s = share_outside(t, owner, &now), *tenant;

    if (!s)
        return true;
    s->left |= s->ns >= most_ns(t, now);
    if (s->left || (*round == s->round && !(again && !s->behind)))
        return false;
    tenant = tenant_of(t, owner, now);
    if (!has_tenants_time(t, s, tenant, now))
        return false;
    s->part = tenant->round;
    s->part_turn = t->turn;
    *round = s->round;
    enter(t, s, tenant, now);
    return true;
}

bool turns_enter(struct turns *t, uint64_t owner, uint32_t *round)
{
    return enter_flow(t, owner, false, round);
}

bool turns_enter_again(struct turns *t, uint64_t owner, uint32_t *round)
{
    return enter_flow(t, owner, true, round);
}

bool turns_enter_once(struct turns *t, uint64_t owner)
{
    uint64_t now;
    struct share *s = share_outside(t, owner, &now), *tenant;

    if (!s)
        return true;
    tenant = tenant_of(t, owner, now);
    if (s->lined > 0 || s->ns >= most_ns(t, now) || tenant->ns >= most_of_tenant_ns(t, now))
        return false;
    enter(t, s, tenant, now);
    return true;
}

/* The time of the work. In the middle of it another program may have had the processor, for longer
 * than many turns, as a program does that the work has woken: the owner does not owe that. The
 * thread's own time is asked for (a system call) in each turn, and where much time has gone by: no
 * more is counted then than it has had since it was asked for last. */
static uint64_t took_ns(struct turns *t)
{
    uint64_t ns = t->now_ns() - t->entered_ns, before = t->cpu_mark_ns;

    if (ns < TURNS_NS)
        return ns;
    t->cpu_mark_ns = t->cpu_ns();
    return MIN(ns, t->cpu_mark_ns - before);
}

void turns_exit(struct turns *t)
{
    uint64_t took;

    if (!t || --t->depth > 0)
        return;
    took = took_ns(t);
    t->inside->ns += took;
    t->inside_tenant->ns += took;
    t->inside = t->inside_tenant = NULL;
}

bool turns_is_over(const struct turns *t)
{
    uint64_t now;

    if (!t || !t->inside)
        return false;
    now = t->now_ns();
    return t->inside->ns + (now - t->entered_ns) >= most_ns(t, now) ||
           t->inside_tenant->ns + (now - t->entered_ns) >= most_of_tenant_ns(t, now);
}

size_t turns_piece(const struct turns *t)
{
    return t && t->inside && !is_alone(t, t->entered_ns) ? TURNS_PIECE : SIZE_MAX;
}

void turns_set_clock(struct turns *t, uint64_t (*now_ns)(void), uint64_t (*cpu_ns)(void))
{
    t->now_ns = now_ns;
    t->cpu_ns = cpu_ns;
    t->cpu_mark_ns = cpu_ns();
}

/* -- lines ------------------------------------------------------------------------------------- */

/* The tenant whose turn it is: which has not been picked for longest, of those whose flows are
 * first in a bucket. */
static struct share *next_tenant(struct turns *t)
{
    struct share *next = find_tenant(t, t->first[__builtin_ctzll(t->busy)]->owner);

    for (uint64_t left = t->busy; left; left &= left - 1) {
        struct share *one = find_tenant(t, t->first[__builtin_ctzll(left)]->owner);

        if (one->picked < next->picked)
            next = one;
    }
    return next;
}

/* The first of its flows in a bucket, from tenant->at on. */
static struct turn *take_next(struct turns *t)
{
    struct share *tenant = next_tenant(t);
    unsigned b = tenant->at;
    struct turn *w;

    while (!t->first[b] || find_tenant(t, t->first[b]->owner) != tenant)
        b = (b + 1) % TURNS_BUCKETS;
    w = t->first[b];
    turns_leave(t, w);
    tenant->at = (b + 1) % TURNS_BUCKETS;
    tenant->picked = ++t->picks;
    return w;
}

static void on_awake(uv_idle_t *h)
{
}

static void on_begin(uv_prepare_t *h)
{
    struct turns *t = h->data;

    uint64_t began = t->now_ns(), now = began;

    t->turn++;
    t->left = is_alone(t, began) ? TURNS_BYTES : TURNS_BESIDE_BYTES;
    /* A flow that waits again without having spent anything does not keep the turn from ending. */
    for (unsigned calls = 0;
         t->busy && t->left > 0 && now - began < TURNS_NS && calls < TURNS_BUCKETS; calls++) {
        struct turn *w = take_next(t);

        enter(t, share_of(t, w->owner, now), tenant_of(t, w->owner, now), now);
        w->go(w->arg);
        turns_exit(t);
        now = t->now_ns();
    }
    if (!t->busy)
        uv_idle_stop(&t->awake);
    t->cpu_mark_ns = t->cpu_ns();
}

int turns_new(uv_loop_t *loop, struct turns **out)
{
    struct turns *t = calloc(1, sizeof(*t));

    if (!t)
        return -ENOMEM;
    t->left = TURNS_BESIDE_BYTES;
    t->turn = 1;
    t->now_ns = uv_hrtime;
    t->cpu_ns = thread_ns;
    t->cpu_mark_ns = thread_ns();
    uv_prepare_init(loop, &t->begin);
    uv_idle_init(loop, &t->awake);
    t->begin.data = t->awake.data = t;
    t->handles = 2;
    uv_prepare_start(&t->begin, on_begin);
    uv_unref((uv_handle_t *)&t->begin); /* it alone is no reason for the loop to go on */
    *out = t;
    return 0;
}

static void on_closed(uv_handle_t *h)
{
    struct turns *t = h->data;

    if (--t->handles == 0)
        free(t);
}

void turns_free(struct turns *t)
{
    if (!t)
        return;
    uv_close((uv_handle_t *)&t->begin, on_closed);
    uv_close((uv_handle_t *)&t->awake, on_closed);
}

bool turns_may(const struct turns *t, const struct turn *w)
{
    return !t || (!w->waiting && t->left > 0);
}

size_t turns_bytes(const struct turns *t)
{
    return t && !is_alone(t, t->now_ns()) ? TURNS_BESIDE_BYTES : TURNS_BYTES;
}

void turns_spend(struct turns *t, size_t n)
{
    if (t)
        t->left -= MIN(n, t->left);
}

void turns_wait(struct turns *t, struct turn *w)
{
    unsigned b = bucket_of(w);

    if (w->waiting)
        return;
    w->waiting = true;
    w->next = NULL;
    find_share(t, w->owner)->lined++;
    if (t->first[b])
        t->last[b]->next = w;
    else
        t->first[b] = w;
    t->last[b] = w;
    t->busy |= UINT64_C(1) << b;
    uv_idle_start(&t->awake, on_awake);
}

void turns_leave(struct turns *t, struct turn *w)
{
    unsigned b = bucket_of(w);
    struct turn **at, *before = NULL;

    if (!w->waiting)
        return;
    for (at = &t->first[b]; *at != w; at = &(*at)->next)
        before = *at;
    *at = w->next;
    if (t->last[b] == w)
        t->last[b] = before;
    if (!t->first[b])
        t->busy &= ~(UINT64_C(1) << b);
    w->waiting = false;
    w->next = NULL;
    find_share(t, w->owner)->lined--;
}
