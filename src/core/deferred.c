/* The services of core that all its parts use: work and answers for the next turn of the loop, so
 * that no caller is answered from inside its own call; whether requests can be served; and the
 * count of handles that the last part to close takes to 0. Work runs in the order in which it was
 * deferred; what it defers has the turn after. When the core stops all of it runs at once, with
 * what it defers (ROUNDS times at most, against work that always defers more), since no turn
 * follows. */

#include "core/deferred.h"

#include "core/core.h"
#include "core/core_internal.h"
#include "core/reserve.h"

#define ROUNDS 1000u

static void run_deferred(struct core *c)
{
    struct deferred *next, *list = c->deferred;

    c->deferred = NULL;
    c->deferred_end = &c->deferred;
    for (struct deferred *d = list; d; d = next) {
        next = d->next;
        d->fn(d->arg);
    }
    if (!c->deferred && !c->stopping)
        uv_idle_stop(&c->idle);
}

static void on_idle(uv_idle_t *idle)
{
    run_deferred(idle->data);
}

void deferred_init(struct core *c)
{
    c->deferred_end = &c->deferred;
    uv_idle_init(c->loop, &c->idle);
    c->idle.data = c;
}

void deferred_run_all(struct core *c)
{
    for (unsigned i = 0; c->deferred && i < ROUNDS; i++)
        run_deferred(c);
}

void core_defer(struct core *c, struct deferred *d, void (*fn)(void *arg), void *arg)
{
    *d = (struct deferred){NULL, fn, arg};
    *c->deferred_end = d;
    c->deferred_end = &d->next;
    if (!c->stopping)
        uv_idle_start(&c->idle, on_idle);
}

struct deferred_error {
    core_sandbox_cb done;
    void *arg;
    struct err why;
    struct deferred later;
};

static void answer_error(void *arg)
{
    CLEANUP_FREE struct deferred_error *d = arg;

    d->done(d->arg, NULL, &d->why);
}

void core_defer_error(struct core *c, core_sandbox_cb done, void *arg, const struct err *why)
{
    struct deferred_error *d = RESERVE_NEW(&c->reserve, struct deferred_error);

    *d = (struct deferred_error){done, arg, *why};
    core_defer(c, &d->later, answer_error, d);
}

struct deferred_refusal {
    core_done_cb done;
    void *arg;
    struct err why;
    struct deferred later;
};

static void answer_refusal(void *arg)
{
    CLEANUP_FREE struct deferred_refusal *d = arg;

    d->done(d->arg, &d->why);
}

void core_defer_refusal(struct core *c, core_done_cb done, void *arg, const struct err *why)
{
    struct deferred_refusal *d = RESERVE_NEW(&c->reserve, struct deferred_refusal);

    *d = (struct deferred_refusal){done, arg, *why};
    core_defer(c, &d->later, answer_refusal, d);
}

enum err_code core_check_ready(const struct core *c, struct err *e)
{
    if (c->ready && !c->stopping)
        return ERR_OK;
    err_set(e, ERR_UNAVAILABLE, "%s",
            c->stopping    ? "the server is stopping"
            : !c->privd_up ? "cay-privd, which makes and ends sandboxes, does not answer"
                           : "the server is still finding out what lives");
    err_hint(e, "it is started again by itself: try again in a second; see `cay status`");
    return ERR_UNAVAILABLE;
}

bool core_admits(struct core *c)
{
    return reserve_fill(&c->reserve);
}

bool core_call_begin(struct core *c)
{
    return reserve_begin(&c->reserve);
}

void core_call_end(struct core *c)
{
    reserve_end(&c->reserve);
}

bool core_is_ready(const struct core *c)
{
    return c->ready;
}

/* -- handles ----------------------------------------------------------------------------------- */

void core_handle_closed(struct core *c)
{
    if (--c->handles == 0)
        c->release(c);
}
